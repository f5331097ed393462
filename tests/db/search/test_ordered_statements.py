"""An ordered search with a limit finds the top of a large cloud with few statements."""

import pytest
from flask import Flask
from sqlalchemy import Engine, text

from bench import large_cloud
from placement_svc.db.search import ordered_anchors
from placement_svc.db.search.name_lookup import NamesLookup
from placement_svc.db.search.ordered_subtrees import MAX_LEVELS, SAMPLE
from placement_svc.observability import request_stats
from tests.conftest import ADMIN, Api, LoadCloud, NewApp
from tests.support.cloud import read, uuid_of
from tests.support.statements import sent_statements

HOSTS = 1_000
EXTENDED = "1.39, placement-svc 1.0"
REQUEST = "resources=DISK_GB:20&resources_N=VCPU:2,MEMORY_MB:2048"

FEW_STATEMENTS = 8
"""Names, roots (twice for equal keys), anchors, facts, providers of the trees, inventories and traits."""

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


def unexpected_lookup(*_: object, **__: object) -> None:
    raise AssertionError("All anchors are looked up.")


def test_limited_search_finds_the_top_of_the_cloud(app: Flask, api: Api, engine: Engine) -> None:
    large_cloud.fill(engine, HOSTS)
    for order in ("spread:VCPU", "pack:VCPU", "spread:DISK_GB"):
        path = f"/allocation_candidates?{REQUEST}&order_by={order}"
        with sent_statements(app.extensions["database"].engine) as statements:
            limited = api("GET", f"{path}&limit=10", version=EXTENDED).json
        assert len(statements) <= FEW_STATEMENTS
        every = api("GET", path, version=EXTENDED).json
        assert limited["allocation_requests"] == every["allocation_requests"][:10]


@pytest.mark.usefixtures("clean_database")
def test_roots_by_uuid_are_found_without_parallel_workers(new_app: NewApp, engine: Engine) -> None:
    large_cloud.fill(engine, HOSTS)
    # The text, and not that of EXECUTE in a session which has run the same search in an earlier test.
    app = new_app(prepared_statements=False)
    path = f"/allocation_candidates?{REQUEST}&order_by=spread:VCPU&limit=10"
    with sent_statements(app.extensions["database"].engine) as statements:
        app.test_client().get(path, headers=ADMIN | {"OpenStack-API-Version": f"placement {EXTENDED}"})
    [by_uuid] = [each.text for each in statements if "ORDER BY root.uuid" in each.text]
    assert by_uuid.startswith("SET LOCAL max_parallel_workers_per_gather = 0;")


@pytest.mark.parametrize("limit", [1, 50])
def test_random_search_takes_few_statements(app: Flask, api: Api, engine: Engine, limit: int) -> None:
    large_cloud.fill(engine, HOSTS)
    with sent_statements(app.extensions["database"].engine) as statements:
        path = f"/allocation_candidates?{REQUEST}&order_by=random&limit={limit}"
        response = api("GET", path, version=EXTENDED)
    assert len(response.json["allocation_requests"]) == limit
    assert len(statements) <= FEW_RANDOM_STATEMENTS


@pytest.mark.parametrize("preferred", ["HW_CPU_X86_SGX", "HW_CPU_X86_AVX2,HW_CPU_X86_SGX"])
@pytest.mark.parametrize("order", ["", "&order_by=spread:VCPU", "&order_by=pack:DISK_GB", "&order_by=random"])
def test_preferred_traits_that_few_of_the_first_roots_have(
    api: Api, engine: Engine, order: str, preferred: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trees with the best score are found without a lookup in the whole cloud."""
    large_cloud.fill(engine, HOSTS)
    monkeypatch.setattr(ordered_anchors, "find_anchors", unexpected_lookup)
    path = f"/allocation_candidates?{REQUEST}&preferred={preferred}{order}&limit=20"
    response = api("GET", path, version=EXTENDED)
    summaries = response.json["provider_summaries"].values()
    assert len(response.json["allocation_requests"]) == 20
    assert sum("HW_CPU_X86_SGX" in each["traits"] for each in summaries) == 20


@pytest.mark.parametrize("preferred", ["HW_CPU_X86_VMX", "HW_CPU_X86_SGX,HW_CPU_X86_VMX"])
def test_preferred_traits_that_no_host_has(app: Flask, api: Api, engine: Engine, preferred: str) -> None:
    """The search finds by an index that no tree has the best score, and continues with the next one."""
    large_cloud.fill(engine, HOSTS)
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
    api: Api, engine: Engine, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further roots are examined, without a lookup in the whole cloud."""
    large_cloud.fill(engine, HOSTS)
    monkeypatch.setattr(ordered_anchors, "find_anchors", unexpected_lookup)
    for name in ("has_few_providers", "has_hardly_any_providers"):
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the roots in the set are examined, at once or after a few others, without a lookup."""
    large_cloud.fill(engine, HOSTS)
    with engine.connect() as connection:
        rack = connection.scalar(text("SELECT uuid FROM aggregates ORDER BY id LIMIT 1 OFFSET 20"))
    path = f"/allocation_candidates?{REQUEST}&member_of={rack}&{order}"
    every = api("GET", path, version=EXTENDED).json
    monkeypatch.setattr(ordered_anchors, "find_anchors", unexpected_lookup)
    for name in ("has_few_members", "has_hardly_any_members"):
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
def test_trees_that_combination_rules_exclude_are_not_combined(
    app: Flask, api: Api, engine: Engine, order: str
) -> None:
    """Hosts have two NUMA nodes, and the request needs three."""
    large_cloud.fill(engine, HOSTS)
    nodes = "".join(f"&resources_N{number}=VCPU:2" for number in range(3))
    path = (
        f"/allocation_candidates?resources=DISK_GB:20{nodes}&group_policy=isolate&order_by={order}&limit=10"
    )
    with sent_statements(app.extensions["database"].engine) as statements:
        response = api("GET", path, version=EXTENDED)
    assert response.json["allocation_requests"] == []
    assert request_stats.current().trees < 100
    assert len(statements) <= 3 * FEW_STATEMENTS


@pytest.mark.parametrize("order", ["order_by=spread:VCPU", "order_by=pack:DISK_GB", "order_by=random"])
@pytest.mark.parametrize("filters", ["root_required=HW_CPU_X86_SGX", "required_N=!HW_NUMA_ROOT"])
@pytest.mark.usefixtures("clean_database")
def test_sets_are_not_listed_if_fewer_roots_have_to_be_examined(
    new_app: NewApp, api: Api, engine: Engine, order: str, filters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the hosts has the trait; few have nodes without the other; reading a class takes long."""
    large_cloud.fill(engine, HOSTS)
    with engine.begin() as connection:
        connection.execute(text(REMOVE_NUMA_ROOT))
    monkeypatch.setattr(ordered_anchors, "CLASS_COST", 1)
    path = f"/allocation_candidates?{REQUEST}&{filters}&{order}"
    every = api("GET", path, version=EXTENDED).json
    # The texts, and not those of EXECUTE.
    app = new_app(prepared_statements=False)
    headers = ADMIN | {"OpenStack-API-Version": f"placement {EXTENDED}"}
    with sent_statements(app.extensions["database"].engine) as statements:
        limited = app.test_client().get(f"{path}&limit=3", headers=headers).json
    assert limited is not None
    assert len(limited["allocation_requests"]) == 3
    if "random" not in order:
        assert limited["allocation_requests"] == every["allocation_requests"][:3]
    assert not any("roots_in_sets" in each.text for each in statements)


@pytest.mark.parametrize(("order", "first"), [("spread", 19), ("pack", 0)])
def test_child_that_same_subtree_excludes_does_not_decide_which_trees_are_combined(
    api: Api, load_cloud: LoadCloud, order: str, first: int
) -> None:
    """Each host has a node with a card, and one without a card that has the best amount for every order."""
    hosts = [
        f"h{n}{{}}; a{n}<h{n}{{VCPU{20 + n}}}; c{n}<a{n}{{SRIOV_NET_VF8}}"
        f"; b{n}<h{n}{{VCPU{90 if order == 'spread' else 9}}}"
        for n in range(20)
    ]
    load_cloud(read("; ".join(hosts)))
    response = api(
        "GET",
        "/allocation_candidates?resources_C=VCPU:1&resources_N=SRIOV_NET_VF:1&same_subtree=_C,_N"
        f"&group_policy=none&order_by={order}:VCPU&limit=1",
        version=EXTENDED,
    )
    [candidate] = response.json["allocation_requests"]
    assert candidate["mappings"]["_C"] == [uuid_of(f"a{first}")]
    assert request_stats.current().trees == 1


def test_paths_are_read_of_few_trees_if_same_subtree_excludes_nothing(
    new_app: NewApp, load_cloud: LoadCloud
) -> None:
    nodes = "a{0}<h{0}{{VCPU8}}; c{0}<a{0}{{SRIOV_NET_VF8}}; b{0}<h{0}{{VCPU9}}; d{0}<b{0}{{SRIOV_NET_VF8}}"
    load_cloud(read("; ".join(f"h{number}{{}}; {nodes.format(number)}" for number in range(60))))
    # The text, and not that of EXECUTE.
    app = new_app(prepared_statements=False)
    path = (
        "/allocation_candidates?resources_C=VCPU:1&resources_N=SRIOV_NET_VF:1&same_subtree=_C,_N"
        "&group_policy=none&order_by=spread:VCPU&limit=50"
    )
    with sent_statements(app.extensions["database"].engine) as statements:
        response = app.test_client().get(
            path, headers=ADMIN | {"OpenStack-API-Version": f"placement {EXTENDED}"}
        )
    assert response.status_code == 200
    of_facts = [each for each in statements if "provider_ids" in (each.parameters or {})]
    [with_paths] = [each.parameters for each in of_facts if "resource_providers.path" in each.text]
    assert len(with_paths["provider_ids"].split(",")) == 5 * SAMPLE
    assert len(of_facts) == 2


def test_node_below_many_levels_has_its_place(api: Api, load_cloud: LoadCloud) -> None:
    """The paths of its providers are not read, so the amount of the other node is the bound of the host."""
    levels = [f"l{n}<{f'l{n - 1}' if n else 'h'}{{}}" for n in range(MAX_LEVELS)]
    node = f"a<l{MAX_LEVELS - 1}{{VCPU50}}; c<a{{SRIOV_NET_VF8}}; b<h{{VCPU90}}"
    load_cloud(read("; ".join(["h{}", *levels, node, "k{VCPU60}; d<k{SRIOV_NET_VF8}"])))
    path = (
        "/allocation_candidates?resources_C=VCPU:1&resources_N=SRIOV_NET_VF:1&same_subtree=_C,_N"
        "&group_policy=none&order_by=spread:VCPU"
    )
    for limit, expected in (("", ["k", "a"]), ("&limit=1", ["k"])):
        response = api("GET", path + limit, version=EXTENDED).json
        nodes = [each["mappings"]["_C"] for each in response["allocation_requests"]]
        assert nodes == [[uuid_of(name)] for name in expected]


def test_random_search_draws_few_ids_where_roots_are_rare(app: Flask, api: Api, engine: Engine) -> None:
    """As after the deletion of most providers: all roots are found, but not by drawing millions of ids."""
    large_cloud.fill(engine, 3)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE resource_providers ALTER COLUMN id RESTART WITH 10000000"))
    assert api("POST", "/resource_providers", {"name": "last"}).status_code == 200
    with sent_statements(app.extensions["database"].engine) as statements:
        path = f"/allocation_candidates?{REQUEST}&order_by=random&limit=3"
        response = api("GET", path, version=EXTENDED)
    assert len(response.json["allocation_requests"]) == 3
    assert max(len(str(each.parameters)) for each in statements) < 50_000


@pytest.mark.parametrize("order", ["spread:VCPU", "pack:VCPU", "spread:DISK_GB", "pack:DISK_GB"])
def test_search_examines_as_many_trees_as_it_needs(app: Flask, api: Api, engine: Engine, order: str) -> None:
    """Although the best key is that of a few trees, and each host has two inventories of the class."""
    large_cloud.fill(engine, HOSTS)
    path = f"/allocation_candidates?{REQUEST}&order_by={order}&limit=100"
    with sent_statements(app.extensions["database"].engine) as statements:
        response = api("GET", path, version=EXTENDED)
    assert len(response.json["allocation_requests"]) == 100
    root_ids = next(
        each.parameters["root_ids"] for each in statements if "root_ids" in (each.parameters or {})
    )
    assert 100 <= len(root_ids.split(",")) <= MAX_EXAMINED
    assert request_stats.current().trees == 100
    assert len(statements) <= FEW_STATEMENTS


@pytest.mark.parametrize("order", ["order_by=spread:DISK_GB", "order_by=random", "preferred=CUSTOM_FAST"])
def test_hosts_with_the_same_sharing_providers_are_combined_once(
    api: Api, load_cloud: LoadCloud, order: str
) -> None:
    load_cloud(read("; ".join([*(f"h{n}{{}}@A" for n in range(50)), "s{DISK_GB9}$@A", "t{DISK_GB9}$@A"])))
    api("PUT", "/traits/CUSTOM_FAST")
    path = f"/allocation_candidates?resources=DISK_GB:1&{order}"
    for limit, count in (("", 2), ("&limit=2", 2), ("&limit=1", 1)):
        response = api("GET", path + limit, version=EXTENDED)
        assert len(response.json["allocation_requests"]) == count
        assert request_stats.current().trees == 1


@pytest.mark.parametrize(
    "full_host",
    [
        "h{0}{{VCPU2}}",
        "h{0}{{}}; a{0}<h{0}{{VCPU2}}; b{0}<h{0}{{VCPU9,MEMORY_MB8}}",
    ],
    ids=["no-anchors", "anchors-with-worse-key"],
)
def test_fullest_hosts_lack_another_class(
    app: Flask, api: Api, load_cloud: LoadCloud, full_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further roots are examined in a few batches, without a lookup in the whole cloud."""
    monkeypatch.setattr(ordered_anchors, "find_anchors", unexpected_lookup)
    hosts = [full_host.format(number) for number in range(300)]
    load_cloud(read("; ".join([*hosts, *(f"g{number}{{VCPU4,MEMORY_MB8}}" for number in range(250))])))
    path = "/allocation_candidates?resources_N=VCPU:1,MEMORY_MB:1&order_by=pack:VCPU&limit=10"
    with sent_statements(app.extensions["database"].engine) as statements:
        response = api("GET", path, version=EXTENDED)
    summaries = response.json["provider_summaries"].values()
    assert [each["resources"]["VCPU"]["capacity"] for each in summaries] == [4] * 10
    assert len(statements) <= 3 * FEW_STATEMENTS


def test_anchors_of_a_batch_are_not_counted_as_useless(
    api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch has 20 roots that are no anchors and 35 that are; 15 are missing."""
    monkeypatch.setattr(ordered_anchors, "MAX_USELESS", 30)
    monkeypatch.setattr(ordered_anchors, "find_anchors", unexpected_lookup)
    full = [f"h{number}{{VCPU2}}" for number in range(20)]
    load_cloud(read("; ".join([*full, *(f"g{number}{{VCPU4,MEMORY_MB8}}" for number in range(220))])))
    path = "/allocation_candidates?resources_N=VCPU:1,MEMORY_MB:1&order_by=pack:VCPU&limit=50"
    assert len(api("GET", path, version=EXTENDED).json["allocation_requests"]) == 50


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


@pytest.mark.parametrize(
    "order",
    ["order_by=spread:VCPU", "order_by=pack:VCPU", "order_by=pack:DISK_GB", "preferred=HW_CPU_X86_SGX"],
)
@pytest.mark.parametrize("ignored", [1, 30])
def test_ignored_consumers(
    app: Flask, api: Api, engine: Engine, order: str, ignored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The top of the cloud is found without a lookup in the whole cloud."""
    large_cloud.fill(engine, HOSTS)
    path = f"/allocation_candidates?{REQUEST}&{order}{largest_consumers(engine, ignored)}"
    every = api("GET", path, version=EXTENDED).json
    monkeypatch.setattr(ordered_anchors, "find_anchors", unexpected_lookup)
    with sent_statements(app.extensions["database"].engine) as statements:
        limited = api("GET", f"{path}&limit=20", version=EXTENDED).json
    assert limited["allocation_requests"] == every["allocation_requests"][:20]
    root_ids = [each.parameters["root_ids"] for each in statements if "root_ids" in (each.parameters or {})]
    assert 20 <= sum(len(each.split(",")) for each in root_ids) <= HOSTS / 4


def test_consumers_that_are_ignored_on_many_hosts(
    app: Flask, api: Api, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lookup finds all anchors, as the stored amounts say nothing about the order of many trees."""
    large_cloud.fill(engine, HOSTS)
    monkeypatch.setattr(ordered_anchors, "MAX_USELESS", 10)
    monkeypatch.setattr(ordered_anchors, "MAX_USELESS_RATIO", 1 / 100)
    monkeypatch.setattr(ordered_anchors, "find_anchors_among", unexpected_lookup)
    path = f"/allocation_candidates?{REQUEST}&order_by=spread:VCPU{largest_consumers(engine, 100)}"
    limited = api("GET", f"{path}&limit=20", version=EXTENDED).json
    every = api("GET", path, version=EXTENDED).json
    assert limited["allocation_requests"] == every["allocation_requests"][:20]
