"""An ordered search with a limit finds the top of a large cloud with few statements."""

from collections.abc import Callable, Iterator

import pytest
from flask import Flask
from sqlalchemy import Engine, text

from bench import large_cloud
from placement_svc.config import Settings
from placement_svc.db import schema
from placement_svc.db.connections.engine import connect
from placement_svc.db.search.name_lookup import NamesLookup
from placement_svc.db.search.ordered import anchors, batches
from placement_svc.domain.execution import request_stats
from tests.conftest import ADMIN, Api, NewApp, application
from tests.support.statements import sent_statements
from tests.support.versions import EXTENDED

HOSTS = 1_000
REQUEST = "resources=DISK_GB:20&resources_N=VCPU:2,MEMORY_MB:2048"

FEW_STATEMENTS = 7
"""Names, roots (twice for equal keys), anchors, facts, and the trees."""

FEW_RANDOM_STATEMENTS = 6
"""Names, the range of ids, roots (of ids drawn once or twice), anchors, trees; no facts decide the order."""

MAX_EXAMINED = 135
"""Roots that are examined for 100 trees; those of a key are read at once if they are less than a quarter."""

REMOVE_NUMA_ROOT = """
    DELETE FROM provider_traits USING traits, resource_providers AS node
     WHERE traits.id = trait_id AND traits.name = 'HW_NUMA_ROOT'
       AND node.id = provider_id AND substr(node.name, 4, 5)::int % 50 IN (0, 11)
"""
"""Remove the trait of the NUMA nodes of four in 100 hosts: one empty, one nearly full in 50."""

ForbidLookup = Callable[..., None]


@pytest.fixture(scope="module")
def large_cloud_url(new_database: Callable[[], str]) -> str:
    """The URL of a database with the cloud, which no test changes."""
    url = new_database()
    engine = connect(url)
    schema.upgrade(engine)
    large_cloud.fill(engine, HOSTS)
    with engine.begin() as connection:
        connection.execute(text(REMOVE_NUMA_ROOT))
    engine.dispose()
    return url


@pytest.fixture(scope="module")
def app(large_cloud_url: str) -> Iterator[Flask]:
    """The application on the database with the cloud."""
    with application(Settings(database_url=large_cloud_url)) as app:
        yield app


@pytest.fixture
def engine(app: Flask) -> Engine:
    """The engine of the application."""
    return app.extensions["database"].engine


def test_limited_search_finds_the_top_of_the_cloud(app: Flask, api: Api) -> None:
    for order in ("spread:VCPU", "pack:VCPU", "spread:DISK_GB"):
        path = f"/allocation_candidates?{REQUEST}&order_by={order}"
        with sent_statements(app.extensions["database"].engine) as statements:
            limited = api("GET", f"{path}&limit=10", version=EXTENDED).json
        assert len(statements) <= FEW_STATEMENTS
        every = api("GET", path, version=EXTENDED).json
        assert limited["allocation_requests"] == every["allocation_requests"][:10]


def test_roots_by_uuid_are_found_without_parallel_workers(new_app: NewApp, large_cloud_url: str) -> None:
    # The text, and not that of EXECUTE in a session which has run the same search in an earlier test.
    app = new_app(database_url=large_cloud_url, prepared_statements=False)
    path = f"/allocation_candidates?{REQUEST}&order_by=spread:VCPU&limit=10"
    with sent_statements(app.extensions["database"].engine) as statements:
        app.test_client().get(path, headers=ADMIN | {"OpenStack-API-Version": f"placement {EXTENDED}"})
    [by_uuid] = [each.text for each in statements if "ORDER BY root.uuid" in each.text]
    assert by_uuid.startswith("SET LOCAL max_parallel_workers_per_gather = 0;")


@pytest.mark.parametrize(
    ("limit", "most"),
    # Many trees are read by one statement more.
    [(1, FEW_RANDOM_STATEMENTS), (50, FEW_RANDOM_STATEMENTS), (HOSTS, FEW_RANDOM_STATEMENTS + 1)],
)
def test_random_search_takes_few_statements(app: Flask, api: Api, limit: int, most: int) -> None:
    with sent_statements(app.extensions["database"].engine) as statements:
        path = f"/allocation_candidates?{REQUEST}&order_by=random&limit={limit}"
        response = api("GET", path, version=EXTENDED)
    assert len(response.json["allocation_requests"]) == limit
    assert len(statements) <= most


@pytest.mark.parametrize("preferred", ["HW_CPU_X86_SGX", "HW_CPU_X86_AVX2,HW_CPU_X86_SGX"])
@pytest.mark.parametrize("order", ["", "&order_by=spread:VCPU", "&order_by=pack:DISK_GB", "&order_by=random"])
def test_preferred_traits_that_few_of_the_first_roots_have(
    api: Api, order: str, preferred: str, forbid_lookup: ForbidLookup
) -> None:
    """The trees with the best score are found without a lookup in the whole cloud."""
    forbid_lookup()
    path = f"/allocation_candidates?{REQUEST}&preferred={preferred}{order}&limit=20"
    response = api("GET", path, version=EXTENDED)
    summaries = response.json["provider_summaries"].values()
    assert len(response.json["allocation_requests"]) == 20
    assert sum("HW_CPU_X86_SGX" in each["traits"] for each in summaries) == 20


@pytest.mark.parametrize("preferred", ["HW_CPU_X86_VMX", "HW_CPU_X86_SGX,HW_CPU_X86_VMX"])
def test_preferred_traits_that_no_host_has(app: Flask, api: Api, preferred: str) -> None:
    """The search finds by an index that no tree has the best score, and continues with the next one."""
    path = f"/allocation_candidates?{REQUEST}&preferred={preferred}&order_by=spread:VCPU"
    with sent_statements(app.extensions["database"].engine) as statements:
        limited = api("GET", f"{path}&limit=20", version=EXTENDED).json
    facts = [
        each.parameters["provider_ids"] for each in statements if "provider_ids" in (each.parameters or {})
    ]
    assert sum(len(each.split(",")) for each in facts) < HOSTS
    every = api("GET", path, version=EXTENDED).json
    assert limited["allocation_requests"] == every["allocation_requests"][:20]


@pytest.mark.parametrize("order", ["spread:DISK_GB", "pack:DISK_GB", "random"])
def test_filter_that_excludes_most_of_the_first_roots(
    api: Api, order: str, forbid_lookup: ForbidLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further roots are examined, without a lookup in the whole cloud."""
    forbid_lookup()
    for name in ("is_small_trait_set", "is_sufficient_trait_set"):
        monkeypatch.setattr(NamesLookup, name, lambda *_: False)
    path = f"/allocation_candidates?{REQUEST}&root_required=HW_CPU_X86_SGX&order_by={order}&limit=20"
    response = api("GET", path, version=EXTENDED)
    assert len(response.json["allocation_requests"]) == 20


@pytest.mark.parametrize("order", ["order_by=spread:VCPU", "order_by=pack:DISK_GB", "order_by=random"])
@pytest.mark.parametrize(
    ("is_small", "most_statements", "most_roots"), [(True, FEW_STATEMENTS, 25), (False, 14, HOSTS / 4)]
)
def test_filter_that_allows_only_the_roots_in_a_set(
    app: Flask,
    api: Api,
    engine: Engine,
    order: str,
    is_small: bool,
    most_statements: int,
    most_roots: float,
    forbid_lookup: ForbidLookup,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the roots in the set are examined, at once or after a few others, without a lookup."""
    with engine.connect() as connection:
        rack = connection.scalar(text("SELECT uuid FROM aggregates ORDER BY id LIMIT 1 OFFSET 20"))
    path = f"/allocation_candidates?{REQUEST}&member_of={rack}&{order}"
    every = api("GET", path, version=EXTENDED).json
    forbid_lookup()
    for name in ("is_small_aggregate_set", "is_sufficient_aggregate_set"):
        monkeypatch.setattr(NamesLookup, name, lambda *_: is_small)
    with sent_statements(app.extensions["database"].engine) as statements:
        limited = api("GET", f"{path}&limit=4", version=EXTENDED).json
    assert len(limited["allocation_requests"]) == 4
    if "random" not in order:
        assert limited["allocation_requests"] == every["allocation_requests"][:4]
    assert len(statements) <= most_statements
    examined = [each.parameters["root_ids"] for each in statements if "root_ids" in (each.parameters or {})]
    assert len({id_ for each in examined for id_ in each.strip("{}").split(",")}) <= most_roots


@pytest.mark.parametrize("order", ["spread:VCPU", "pack:DISK_GB", "random"])
def test_trees_that_combination_rules_exclude_are_not_combined(app: Flask, api: Api, order: str) -> None:
    """Hosts have two NUMA nodes, and the request needs three."""
    nodes = "".join(f"&resources_N{number}=VCPU:2" for number in range(3))
    path = (
        f"/allocation_candidates?resources=DISK_GB:20{nodes}&group_policy=isolate&order_by={order}&limit=10"
    )
    with sent_statements(app.extensions["database"].engine) as statements:
        response = api("GET", path, version=EXTENDED)
    assert response.json["allocation_requests"] == []
    assert request_stats.current().anchors < 100
    assert len(statements) <= 3 * FEW_STATEMENTS


@pytest.mark.parametrize("order", ["order_by=spread:VCPU", "order_by=pack:DISK_GB", "order_by=random"])
@pytest.mark.parametrize("filters", ["root_required=HW_CPU_X86_SGX", "required_N=!HW_NUMA_ROOT"])
def test_sets_are_not_listed_if_fewer_roots_have_to_be_examined(
    new_app: NewApp, large_cloud_url: str, api: Api, order: str, filters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the hosts has the trait; few have nodes without the other; reading a class takes long."""
    monkeypatch.setattr(anchors, "CLASS_COST", 1)
    path = f"/allocation_candidates?{REQUEST}&{filters}&{order}"
    every = api("GET", path, version=EXTENDED).json
    # The texts, and not those of EXECUTE.
    app = new_app(database_url=large_cloud_url, prepared_statements=False)
    headers = ADMIN | {"OpenStack-API-Version": f"placement {EXTENDED}"}
    with sent_statements(app.extensions["database"].engine) as statements:
        limited = app.test_client().get(f"{path}&limit=3", headers=headers).json
    assert limited is not None
    assert len(limited["allocation_requests"]) == 3
    if "random" not in order:
        assert limited["allocation_requests"] == every["allocation_requests"][:3]
    assert not any("roots_in_sets" in each.text for each in statements)


@pytest.mark.parametrize("order", ["spread:VCPU", "pack:VCPU", "spread:DISK_GB", "pack:DISK_GB"])
def test_search_examines_as_many_trees_as_it_needs(app: Flask, api: Api, order: str) -> None:
    """Although the best key is that of a few trees, and each host has two inventories of the class."""
    path = f"/allocation_candidates?{REQUEST}&order_by={order}&limit=100"
    with sent_statements(app.extensions["database"].engine) as statements:
        response = api("GET", path, version=EXTENDED)
    assert len(response.json["allocation_requests"]) == 100
    root_ids = next(
        each.parameters["root_ids"] for each in statements if "root_ids" in (each.parameters or {})
    )
    assert 100 <= len(root_ids.split(",")) <= MAX_EXAMINED
    assert request_stats.current().anchors == 100
    # A third statement for roots; and the inventories of 100 trees have a statement of their own.
    assert len(statements) <= FEW_STATEMENTS + 1


@pytest.mark.parametrize(
    "order",
    ["order_by=spread:VCPU", "order_by=pack:VCPU", "order_by=pack:DISK_GB", "preferred=HW_CPU_X86_SGX"],
)
@pytest.mark.parametrize("ignored", [1, 30])
def test_ignored_consumers(
    app: Flask, api: Api, engine: Engine, order: str, ignored: int, forbid_lookup: ForbidLookup
) -> None:
    """The top of the cloud is found without a lookup in the whole cloud."""
    path = f"/allocation_candidates?{REQUEST}&{order}{largest_consumers(engine, ignored)}"
    every = api("GET", path, version=EXTENDED).json
    forbid_lookup()
    with sent_statements(app.extensions["database"].engine) as statements:
        limited = api("GET", f"{path}&limit=20", version=EXTENDED).json
    assert limited["allocation_requests"] == every["allocation_requests"][:20]
    root_ids = [each.parameters["root_ids"] for each in statements if "root_ids" in (each.parameters or {})]
    assert 20 <= sum(len(each.split(",")) for each in root_ids) <= HOSTS / 4


def test_consumers_that_are_ignored_on_many_hosts(
    api: Api, engine: Engine, forbid_lookup: ForbidLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lookup finds all anchors, as the stored amounts say nothing about the order of many trees."""
    monkeypatch.setattr(batches, "MIN_USELESS_LIMIT", 10)
    monkeypatch.setattr(batches, "MAX_USELESS_RATIO", 1 / 100)
    forbid_lookup("find_anchors_among")
    path = f"/allocation_candidates?{REQUEST}&order_by=spread:VCPU{largest_consumers(engine, 100)}"
    limited = api("GET", f"{path}&limit=20", version=EXTENDED).json
    every = api("GET", path, version=EXTENDED).json
    assert limited["allocation_requests"] == every["allocation_requests"][:20]


def largest_consumers(engine: Engine, count: int) -> str:
    """Return the part of a query that ignores consumers with the largest allocations of VCPU."""
    statement = """
        SELECT consumers.uuid FROM consumers
          JOIN allocations ON allocations.consumer_id = consumers.id
          JOIN resource_classes ON resource_classes.id = allocations.resource_class_id
         WHERE resource_classes.name = 'VCPU' ORDER BY allocations.used DESC, consumers.id LIMIT :count
        """
    with engine.connect() as connection:
        uuids = connection.scalars(text(statement), {"count": count}).all()
    assert len(uuids) == count
    return "".join(f"&ignore_consumer={uuid}" for uuid in uuids)
