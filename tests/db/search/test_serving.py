"""How the sharing providers that serve each root are found: rows in PostgreSQL, lists in Python."""

from collections.abc import Callable

import os_traits
import pytest
from sqlalchemy import Connection, Engine, text

from placement_svc.db.connections.engine import Database
from placement_svc.db.search.anchors import Anchor, ScanCursor, find_anchors
from placement_svc.db.search.criteria_builder import resolve_criteria
from placement_svc.db.search.demand_rows import MAX_SUBQUERY_DEMANDS
from placement_svc.db.search.sharing import find_shared_supplies
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from tests.conftest import ADMIN, NewApp
from tests.support.statements import analyze, row_counts, sent_statements

HOSTS = 40
SHARING = 100
AGGREGATES = 5
SHARING_IDS = tuple(range(HOSTS + 1, HOSTS + SHARING + 1))

STORE = """
    INSERT INTO aggregates (id, uuid) SELECT id, gen_random_uuid() FROM generate_series(1, :aggregates) AS id;
    INSERT INTO resource_providers (id, uuid, name, root_id, path)
    SELECT id, gen_random_uuid(), 'provider ' || id, id, ARRAY[id]
      FROM generate_series(1, :hosts + :sharing) AS id;
    INSERT INTO provider_aggregates (provider_id, root_id, aggregate_id)
    SELECT resource_providers.id, root_id, aggregates.id FROM resource_providers, aggregates;
    INSERT INTO provider_traits (provider_id, trait_id)
    SELECT resource_providers.id, traits.id FROM resource_providers, traits
     WHERE traits.name = :trait AND resource_providers.id > :hosts;
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT resource_providers.id, root_id, resource_classes.id, 100, 0, 1, 100, 1, 1
      FROM resource_providers, resource_classes
     WHERE resource_classes.name = CASE WHEN resource_providers.id > :hosts THEN 'DISK_GB' ELSE 'VCPU' END
"""


@pytest.fixture
def cloud(engine: Engine, clean_database: Callable[[], None]) -> None:
    """Store hosts and sharing providers that have all aggregates in common."""
    with engine.begin() as connection:
        connection.execute(
            text(STORE),
            {
                "hosts": HOSTS,
                "sharing": SHARING,
                "aggregates": AGGREGATES,
                "trait": os_traits.MISC_SHARES_VIA_AGGREGATE,
            },
        )
    analyze(
        engine, "resource_providers", "provider_aggregates", "provider_traits", "inventories", "aggregates"
    )


@pytest.mark.usefixtures("cloud")
def test_sharing_providers_do_not_multiply_the_rows(engine: Engine, new_app: NewApp) -> None:
    app = new_app(prepared_statements=False)
    with sent_statements(app.extensions["database"].engine) as sent:
        response = app.test_client().get(
            "/allocation_candidates?resources=VCPU:1,DISK_GB:1&limit=5000", headers=ADMIN
        )
    assert response.json is not None
    assert len(response.json["allocation_requests"]) == HOSTS * SHARING
    [statement] = [each for each in sent if "serving_aggregates" in each.text]
    pairs = (HOSTS + SHARING) * AGGREGATES
    with engine.connect() as connection:
        assert max(row_counts(connection, statement)) <= 2 * pairs < HOSTS * SHARING


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize("demands", [2, MAX_SUBQUERY_DEMANDS + 1])
def test_anchors_share_the_lists_of_the_same_sharing_providers(database: Database, demands: int) -> None:
    groups = [RequestGroup(f"_{amount}", {"DISK_GB": amount}) for amount in range(1, demands + 1)]
    memory = MemoryBudget(10_000_000)
    deadline = Deadline.of(60)

    def search(connection: Connection) -> list[Anchor]:
        criteria = resolve_criteria(connection, CandidatesRequest(tuple(groups)), one_provider_per_tree=False)
        supplies = find_shared_supplies(connection, criteria, deadline, memory)
        anchors, _ = find_anchors(
            connection, criteria, supplies, ScanCursor(), max_anchors=None, deadline=deadline, memory=memory
        )
        return anchors

    anchors = database.read(search)
    assert len(anchors) == HOSTS + SHARING
    assert all(ids == SHARING_IDS for anchor in anchors for ids in anchor.supplier_ids)
    assert len({id(ids) for anchor in anchors for ids in anchor.supplier_ids}) == demands
