"""The number of statements of a candidate search depends on neither request nor cloud."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import os_traits
import pytest
from flask import Flask
from sqlalchemy import Engine, text

from placement_svc.db.search.trees import MIN_TREES_FOR_THREAD
from placement_svc.domain.execution import request_stats
from tests.conftest import Api
from tests.support.statements import sent_statements

ONE_BATCH = 4
"""Names, sharing providers, anchors, and their trees."""

LARGE_BATCH = 5
"""If there are many trees, another statement fetches their inventories."""

MAXIMUM = LARGE_BATCH + 2 * 3
"""The last three statements run again for two further batches; the requests here need no third one."""

MAXIMUM_WITH_SUMS = MAXIMUM + 3
"""If amounts are summed, each batch needs the amounts that can be allocated in its trees."""

FEW, MANY = 1, 200
TOTAL = 10

CLASSES = ["VCPU", "MEMORY_MB", "DISK_GB", "VGPU", "PCPU", "SRIOV_NET_VF", "IPV4_ADDRESS", "NUMA_CORE"]


FITS_ONLY_ONCE = (
    "&".join(f"resources_{suffix}=DISK_GB:{TOTAL // 2 + 1}" for suffix in "ab") + "&group_policy=none"
)
"""Two groups: each fits into a tree, both together do not."""


def build(engine: Engine, trees: int, sharing: bool = False) -> None:
    """Store trees: a root, and a child with 10 of each class and one of 50 traits.

    With `sharing`, one more provider has 1000 of the first class and shares it with all trees.
    """
    with engine.begin() as connection:

        def run(sql: str, **values: Any) -> None:
            connection.execute(text(sql), values)

        run(
            """
            WITH new AS (
                SELECT nextval('resource_providers_id_seq')::int AS id FROM generate_series(1, :trees)
            )
            INSERT INTO resource_providers (id, uuid, name, root_id, path)
            SELECT id, gen_random_uuid(), 'root ' || id, id, ARRAY[id] FROM new
            """,
            trees=trees,
        )
        run(
            """
            WITH new AS (
                SELECT nextval('resource_providers_id_seq')::int AS id, id AS root_id FROM resource_providers
            )
            INSERT INTO resource_providers (id, uuid, name, parent_id, root_id, path)
            SELECT id, gen_random_uuid(), 'child ' || id, root_id, root_id, ARRAY[root_id, id] FROM new
            """
        )
        if sharing:
            run("INSERT INTO aggregates (uuid) VALUES (:uuid)", uuid=str(uuid4()))
            run(
                """
                WITH new AS (SELECT nextval('resource_providers_id_seq')::int AS id)
                INSERT INTO resource_providers (id, uuid, name, root_id, path)
                SELECT id, gen_random_uuid(), 'sharing', id, ARRAY[id] FROM new
                """
            )
            run(
                """
                INSERT INTO provider_aggregates (provider_id, root_id, aggregate_id)
                SELECT provider.id, provider.root_id, aggregates.id
                  FROM resource_providers AS provider CROSS JOIN aggregates
                 WHERE provider.parent_id IS NULL
                """
            )
            run(
                """
                INSERT INTO provider_traits (provider_id, trait_id)
                SELECT provider.id, traits.id FROM resource_providers AS provider CROSS JOIN traits
                 WHERE provider.name = 'sharing' AND traits.name = :trait
                """,
                trait=os_traits.MISC_SHARES_VIA_AGGREGATE,
            )
        run(
            """
            INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit,
                                     max_unit, step_size, allocation_ratio)
            SELECT provider.id, root_id, class.id,
                   CASE provider.name WHEN 'sharing' THEN 1000 ELSE :total END, 0, 1, 1000, 1, 1
              FROM resource_providers AS provider
              JOIN resource_classes AS class ON class.name = ANY (:classes)
             WHERE parent_id IS NOT NULL OR (provider.name = 'sharing' AND class.name = :first)
            """,
            total=TOTAL,
            classes=CLASSES,
            first=CLASSES[0],
        )
        run(
            """
            INSERT INTO provider_traits (provider_id, trait_id)
            SELECT id, id % 50 FROM resource_providers WHERE parent_id IS NOT NULL
            """
        )


def groups(count: int, amount: int = 1) -> str:
    return "&".join(f"resources_{n}={CLASSES[n]}:{amount}" for n in range(count)) + "&group_policy=none"


@pytest.fixture
def ask(app: Flask, api: Api) -> Callable[[str], tuple[int, int]]:
    """A function that requests candidates and returns the numbers of candidates and statements."""

    def ask(query: str) -> tuple[int, int]:
        with sent_statements(app.extensions["database"].engine) as statements:
            response = api("GET", f"/allocation_candidates?{query}")
        assert response.status_code == 200
        return len(response.json["allocation_requests"]), len(statements)  # type: ignore[index]

    return ask


@pytest.mark.usefixtures("no_kept_counts")
@pytest.mark.parametrize("sharing", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("limit", ["", "&limit=1", "&limit=10", "&limit=1000"])
@pytest.mark.parametrize(
    ("rules", "fewest_groups"), [("", 1), ("&same_subtree=_0,_1", 2)], ids=["no rules", "subtree"]
)
def test_number_does_not_depend_on_groups_and_trees(
    ask: Callable[[str], tuple[int, int]],
    engine: Engine,
    clean_database: Callable[[], None],
    rules: str,
    fewest_groups: int,
    limit: str,
    sharing: bool,
) -> None:
    statements = {}
    for trees in (FEW, MANY):
        clean_database()
        build(engine, trees, sharing)
        for count in (fewest_groups, 8):
            found, sent = ask(groups(count) + rules + limit)
            fetched = min(trees, int(limit.partition("=")[2] or trees))
            assert found >= fetched
            statements.setdefault(fetched >= MIN_TREES_FOR_THREAD, set()).add(sent)
    expected = {False: {ONE_BATCH - (not sharing)}, True: {LARGE_BATCH - (not sharing)}}
    assert statements == {is_large: expected[is_large] for is_large in statements}


@pytest.mark.parametrize(
    "query",
    [
        "resources=VCPU:1,MEMORY_MB:1,DISK_GB:1&required=!CUSTOM_A,HW_CPU_X86_AVX&limit=5",
        "resources=VCPU:1&required=in:HW_CPU_X86_AVX,HW_CPU_X86_AVX2&root_required=!CUSTOM_A",
        "resources_a=VCPU:1&resources_b=DISK_GB:1&same_subtree=_a,_b&group_policy=isolate&limit=5",
        "resources_a=VCPU:1&resources_b=DISK_GB:1&same_subtree=_a,_b&group_policy=none",
        "resources=VCPU:1&member_of=!in:11111111-1111-4111-8111-111111111111&limit=5",
        "resources=VCPU:1&in_tree=11111111-1111-4111-8111-111111111111",
        "resources=VCPU:11&limit=5",
    ],
)
def test_no_query_exceeds_the_maximum(
    ask: Callable[[str], tuple[int, int]], api: Api, engine: Engine, query: str
) -> None:
    build(engine, MANY, sharing=True)
    api("PUT", "/traits/CUSTOM_A")
    _, statements = ask(query)
    assert statements <= MAXIMUM


@pytest.mark.parametrize("limit", ["", "&limit=1", "&limit=3", "&limit=50"])
def test_trees_in_which_sums_do_not_fit_take_three_batches_at_most(
    ask: Callable[[str], tuple[int, int]], engine: Engine, limit: str
) -> None:
    build(engine, MANY)
    found, statements = ask(FITS_ONLY_ONCE + limit)
    assert found == 0
    assert statements <= MAXIMUM_WITH_SUMS


def test_last_of_many_trees_is_found_when_the_others_do_not_fit(
    ask: Callable[[str], tuple[int, int]], engine: Engine
) -> None:
    # With fewer roots, the second batch would be the last one.
    build(engine, 3 * MANY)
    with engine.begin() as connection:
        connection.execute(
            text("""
                UPDATE inventories SET total = 1000
                 WHERE provider_id IN (SELECT id FROM resource_providers ORDER BY id DESC LIMIT 2)
            """)
        )
        connection.execute(text("ANALYZE"))
    # No provider shares here, which saves a statement; so do the three batches of few trees.
    assert ask(f"{FITS_ONLY_ONCE}&limit=2") == (2, MAXIMUM_WITH_SUMS - 4)


@pytest.mark.usefixtures("no_kept_counts")
def test_limit_fetches_few_trees_if_the_first_ones_are_full(
    ask: Callable[[str], tuple[int, int]], engine: Engine
) -> None:
    build(engine, 3 * MANY)
    with engine.begin() as connection:
        connection.execute(
            text("""
                UPDATE inventories SET total = 1
                 WHERE root_id IN (SELECT id FROM resource_providers ORDER BY id LIMIT :full)
            """),
            {"full": 3 * MANY // 2},
        )
        connection.execute(text("ANALYZE"))
    found, statements = ask("resources=VCPU:2&limit=10")
    assert found == 10
    assert statements <= MAXIMUM
    assert request_stats.current().anchors < 50


@pytest.mark.parametrize(
    "request_keys", ["resources_a=VCPU:1&resources_b=VCPU:1&group_policy=isolate", FITS_ONLY_ONCE]
)
def test_limit_fetches_few_trees_if_combination_rules_exclude_the_first_ones(
    ask: Callable[[str], tuple[int, int]], engine: Engine, request_keys: str
) -> None:
    build(engine, 3 * MANY)
    with engine.begin() as connection:
        connection.execute(text("ANALYZE"))
    found, _ = ask(f"{request_keys}&limit=100")
    assert found == 0
    # Each tree has only one provider with inventories.
    assert request_stats.current().anchors == 100


def test_new_connection_takes_no_more_statements(app: Flask, api: Api, engine: Engine) -> None:
    build(engine, MANY)
    app.extensions["database"].engine.dispose()
    with sent_statements(app.extensions["database"].engine) as statements:
        assert api("GET", f"/allocation_candidates?{groups(8)}&limit=100").status_code == 200
    assert len(statements) <= LARGE_BATCH
