"""Searches that ask for very much, on PostgreSQL, respect the limits on time and memory."""

import time
from collections.abc import Callable

import os_traits
import pytest
from sqlalchemy import Engine, text
from werkzeug.test import TestResponse

from placement_svc.db.search.trees import Trees
from placement_svc.domain.errors import Invalid
from placement_svc.domain.execution.memory import MEGABYTE, MemoryBudget
from tests.conftest import ADMIN, NewApp

SECONDS = 5.0
"""The deadline of each search."""

OVERSHOOT = 1.0
"""The most seconds of CPU time that a search may need beyond its deadline."""

Get = Callable[[str], TestResponse]

STORE_TREE = """
    INSERT INTO resource_providers (id, uuid, name, parent_id, root_id, path)
    SELECT id, gen_random_uuid(), 'child ' || id, nullif(1, id), 1,
           CASE id WHEN 1 THEN ARRAY[1] ELSE ARRAY[1, id] END
      FROM generate_series(1, :providers) AS id
"""

STORE_SHARING = """
    INSERT INTO aggregates (id, uuid) VALUES (1, gen_random_uuid());
    INSERT INTO resource_providers (id, uuid, name, root_id, path)
    SELECT id, gen_random_uuid(), 'sharing ' || id, id, ARRAY[id] FROM generate_series(1, :providers) AS id;
    INSERT INTO provider_aggregates (provider_id, root_id, aggregate_id)
    SELECT id, id, 1 FROM resource_providers;
    INSERT INTO provider_traits (provider_id, trait_id)
    SELECT resource_providers.id, traits.id FROM resource_providers, traits WHERE traits.name = :sharing
"""

STORE_INVENTORIES = """
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT resource_providers.id, root_id, resource_classes.id, 1000, 0, 1, 1000, 1, 1
      FROM resource_providers, resource_classes
     WHERE resource_classes.name = 'VCPU' AND (root_id <> 1 OR parent_id IS NOT NULL OR :sharing <> '')
"""


@pytest.fixture
def get(new_app: NewApp, clean_database: Callable[[], None]) -> Get:
    """A function that requests 100 candidates; it checks the CPU time that this takes."""
    client = new_app(request_deadline=SECONDS, max_search_memory=128).test_client()

    def get(query: str) -> TestResponse:
        started = time.process_time()
        response = client.get(f"/allocation_candidates?{query}&limit=100", headers=ADMIN)
        assert time.process_time() - started < SECONDS + OVERSHOOT
        return response

    return get


def store(engine: Engine, statement: str, providers: int, sharing: str = "") -> None:
    """Store providers by a statement, and 1000 VCPU for each but a root with children."""
    with engine.begin() as connection:
        connection.execute(text(statement), {"providers": providers, "sharing": sharing})
        connection.execute(text(STORE_INVENTORIES), {"sharing": sharing})


def groups(count: int) -> str:
    return "&".join(f"resources_{n}=VCPU:1" for n in range(count))


def suffixes(numbers: range) -> str:
    return ",".join(f"_{n}" for n in numbers)


SIZES = [
    pytest.param(2000, 28, id="moderate"),
    pytest.param(10_000, 500, id="large", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("children", "count"), SIZES)
def test_groups_in_one_subtree_of_a_wide_tree(engine: Engine, get: Get, children: int, count: int) -> None:
    store(engine, STORE_TREE, children + 1)
    response = get(f"{groups(count)}&group_policy=none&same_subtree={suffixes(range(count))}")
    assert response.status_code in (200, 503)
    if count == 28:
        assert response.json is not None
        assert len(response.json["allocation_requests"]) == 100


@pytest.mark.parametrize(("children", "count"), [(300, 300), *SIZES[1:]])
def test_isolated_groups_of_which_two_cannot_be_in_one_subtree(
    engine: Engine, get: Get, children: int, count: int
) -> None:
    store(engine, STORE_TREE, children + 1)
    subtree = suffixes(range(count - 2, count))
    response = get(f"{groups(count)}&group_policy=isolate&same_subtree={subtree}")
    assert response.status_code == 200
    assert response.json is not None
    assert response.json["allocation_requests"] == []


@pytest.mark.parametrize(("providers", "count"), [(300, 50), pytest.param(1000, 500, marks=pytest.mark.long)])
def test_many_groups_of_many_sharing_providers(engine: Engine, get: Get, providers: int, count: int) -> None:
    store(engine, STORE_SHARING, providers, os_traits.MISC_SHARES_VIA_AGGREGATE)
    response = get(f"{groups(count)}&group_policy=none")
    assert response.status_code in (200, 503)
    different = "&".join(f"resources_{n}=VCPU:{n + 1}" for n in range(count))
    assert get(f"{different}&group_policy=none").status_code in (200, 400, 503)


def test_search_that_needs_too_much_memory_is_refused(
    engine: Engine, new_app: NewApp, clean_database: Callable[[], None]
) -> None:
    store(engine, STORE_TREE, 2000)
    client = new_app(max_search_memory=1).test_client()
    response = client.get("/allocation_candidates?resources=VCPU:1", headers=ADMIN)
    assert response.status_code == 400
    assert response.json is not None
    assert "needs more than 1 MB of memory" in response.json["errors"][0]["detail"]
    in_one = "/allocation_candidates?resources=VCPU:1&limit=1"
    assert client.get(in_one, headers=ADMIN).status_code == 400


def test_path_in_a_tree_of_very_many_levels() -> None:
    levels = 3000
    provider_trees = Trees(None, (), MemoryBudget(100 * MEGABYTE))
    provider_trees.providers = {id_: (id_, "", id_ - 1 or None, 1) for id_ in range(1, levels + 1)}
    assert provider_trees.path(levels) == tuple(range(1, levels + 1))
    provider_trees = Trees(None, (), MemoryBudget(MEGABYTE))
    provider_trees.providers = {id_: (id_, "", id_ - 1 or None, 1) for id_ in range(1, levels + 1)}
    with pytest.raises(Invalid):
        provider_trees.path(levels)
