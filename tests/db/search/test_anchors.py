"""How far a scan goes, and how many providers are counted to choose a strategy."""

from math import isqrt

import pytest
from sqlalchemy import Connection, Engine, text

from placement_svc.db.connections.engine import Database
from placement_svc.db.search import anchor_statement
from placement_svc.db.search.anchors import Anchor, ScanCursor, find_anchors
from placement_svc.db.search.criteria_builder import resolve_criteria
from placement_svc.db.search.demand_rows import MAX_SUBQUERY_DEMANDS
from placement_svc.db.search.name_lookup import (
    HIGHEST_MAX_COUNT,
    LOWEST_MAX_COUNT,
    NamesLookup,
    fetch_name_rows,
)
from placement_svc.db.search.sharing import find_shared_supplies
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from tests.db.search.test_search_statements import CLASSES, MANY, TOTAL, build

REQUEST = CandidatesRequest((RequestGroup("", {"VCPU": 1, "DISK_GB": 1}),))


@pytest.mark.parametrize(
    ("max_anchors", "roots_to_scan", "found", "scanned"),
    [(10, 140, 10, 12), (10, 5, 3, 5), (300, 300, MANY - 2, MANY), (None, 20, 18, 20)],
)
def test_a_scan_counts_the_roots_up_to_the_last_anchor_that_is_needed(
    database: Database,
    engine: Engine,
    max_anchors: int | None,
    roots_to_scan: int,
    found: int,
    scanned: int,
) -> None:
    build(engine, MANY)
    with engine.begin() as connection:
        connection.execute(
            text("""
                UPDATE inventories SET reserved = :total
                 WHERE root_id IN (SELECT id FROM resource_providers ORDER BY id LIMIT 2)
            """),
            {"total": TOTAL},
        )

    def search(connection: Connection) -> tuple[int, int]:
        criteria = resolve_criteria(connection, REQUEST, one_provider_per_tree=False)
        anchors, cursor = find_anchors(
            connection,
            criteria,
            {},
            ScanCursor(),
            max_anchors=max_anchors,
            roots_to_scan=roots_to_scan,
            deadline=Deadline.of(60),
            memory=MemoryBudget(1_000_000),
        )
        return len(anchors), cursor.roots_scanned

    assert database.read(search) == (found, scanned)


@pytest.mark.parametrize("sharing", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("groups", [2, MAX_SUBQUERY_DEMANDS + 1])
@pytest.mark.parametrize("roots_to_scan", [None, 15])
def test_anchors_are_the_same_however_many_are_in_a_row(
    database: Database,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    sharing: bool,
    groups: int,
    roots_to_scan: int | None,
) -> None:
    build(engine, 20, sharing)
    with engine.begin() as connection:
        connection.execute(text("UPDATE inventories SET reserved = 10 WHERE total = 10 AND root_id % 3 = 0"))
        # A second supplier in each tree, with a lower id than the first.
        connection.execute(
            text("""
            INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit,
                                     max_unit, step_size, allocation_ratio)
            SELECT root_id, root_id, resource_class_id, total, reserved, 1, max_unit, 1, 1
              FROM inventories WHERE total = 10 AND root_id % 3 = 1
        """)
        )
    demands = [RequestGroup(f"_{n}", {CLASSES[n % 8]: 1 + n // 8}) for n in range(groups)]
    request = CandidatesRequest(tuple(demands))
    deadline, memory = Deadline.of(60), MemoryBudget(1_000_000)

    def search(connection: Connection) -> tuple[list[Anchor], ScanCursor]:
        criteria = resolve_criteria(connection, request, one_provider_per_tree=False)
        supplies = find_shared_supplies(connection, criteria, deadline, memory)
        return find_anchors(
            connection,
            criteria,
            supplies,
            ScanCursor(),
            max_anchors=12,
            roots_to_scan=roots_to_scan,
            deadline=deadline,
            memory=memory,
        )

    results = []
    for roots_per_row in (1, 3, 200):
        monkeypatch.setattr(anchor_statement, "ROOTS_PER_ROW", roots_per_row)
        anchor_statement._cached_statement.cache_clear()
        anchor_statement._cached_shape.cache_clear()
        results.append(database.read(search))
    assert results == [results[0]] * 3
    anchors, _ = results[0]
    assert [anchor.id for anchor in anchors] == sorted({anchor.id for anchor in anchors})
    suppliers = {ids for anchor in anchors for ids in anchor.supplier_ids}
    assert all(ids == tuple(sorted(ids)) for ids in suppliers)
    assert len(set(map(len, suppliers))) > 1


@pytest.mark.parametrize("limit", [None, 1, 10, 1000, 100_000, 10**12])
def test_more_providers_are_counted_for_higher_limits(
    database: Database, engine: Engine, limit: int | None
) -> None:
    build(engine, MANY)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM (ANALYZE) resource_providers"))
    request = CandidatesRequest(REQUEST.groups, limit=limit)
    expected = max(LOWEST_MAX_COUNT, min(isqrt(5 * (limit or 0) * MANY), HIGHEST_MAX_COUNT))
    assert NamesLookup.of(database.read(fetch_name_rows, request)).max_count == expected
