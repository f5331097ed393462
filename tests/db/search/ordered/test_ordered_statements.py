"""An ordered search reads and combines as few trees as possible, with few statements."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import pytest
from flask import Flask
from sqlalchemy import Engine, text

from bench import large_cloud
from placement_svc.db.search import criteria_builder
from placement_svc.db.search.name_lookup import NamesLookup
from placement_svc.db.search.ordered import batches, roots
from placement_svc.db.search.ordered.served_roots import ServedRoots
from placement_svc.db.search.ordered.subtrees import MAX_LEVELS, SAMPLE
from placement_svc.domain.execution import request_stats
from tests.conftest import ADMIN, Api, LoadCloud, NewApp
from tests.support.cloud import Cloud, read, uuid_of
from tests.support.statements import Statement, analyze, row_counts, sent_statements
from tests.support.versions import EXTENDED

TRAIT = "HW_CPU_X86_SGX"

NODE_WITH_CARD = (
    "/allocation_candidates?resources_C=VCPU:1&resources_N=SRIOV_NET_VF:1&same_subtree=_C,_N"
    "&group_policy=none"
)
"""A request for VCPU in a node with a card."""

FEW_STATEMENTS = 24
"""Those of three batches of roots."""


def _hosts(uncarded: Sequence[int], levels: int = 0) -> Cloud:
    """Return hosts with a node with a card, of 20 + n VCPU, and one without a card, of `uncarded[n]` VCPU.

    So many levels are between the host and the node with the card.
    """
    hosts = []
    for n, amount in enumerate(uncarded):
        names = [f"h{n}", *(f"l{n}x{level}" for level in range(levels))]
        between = [f"{name}<{parent}{{}}" for parent, name in pairwise(names)]
        node = f"a{n}<{names[-1]}{{VCPU{20 + n}}}"
        hosts += [f"h{n}{{}}", *between, node, f"c{n}<a{n}{{SRIOV_NET_VF8}}", f"b{n}<h{n}{{VCPU{amount}}}"]
    return read("; ".join(hosts))


def _root_counts(statements: Iterable[Statement]) -> Iterator[int]:
    """Yield how many roots each statement is about that has a list of them."""
    lists = ((each.parameters or {}).get("root_ids") for each in statements)
    return (len(each.split(",")) for each in lists if each)


@pytest.mark.parametrize("levels", range(4))
@pytest.mark.parametrize(("order", "first"), [("spread", 19), ("pack", 0)])
def test_child_that_same_subtree_excludes_does_not_decide_which_trees_are_combined(
    api: Api, load_cloud: LoadCloud, order: str, first: int, levels: int
) -> None:
    """Each host has a node with a card, and one without a card that has the best amount for every order.

    So many levels are between the host and the node with the card.
    """
    load_cloud(_hosts([90 if order == "spread" else 9] * 20, levels))
    response = api("GET", f"{NODE_WITH_CARD}&order_by={order}:VCPU&limit=1", version=EXTENDED)
    [candidate] = response.json["allocation_requests"]
    assert candidate["mappings"]["_C"] == [uuid_of(f"a{first}")]
    assert request_stats.current().anchors == 1


def test_repeated_search_begins_with_as_many_roots_as_the_last_one_needed(
    app: Flask, api: Api, load_cloud: LoadCloud
) -> None:
    """Half of the first hosts have a node without a card that is better."""
    load_cloud(_hosts([20 + (n + 100) % 200 for n in range(200)]))
    responses, statements = [], []
    for _ in range(2):
        with sent_statements(app.extensions["database"].engine) as sent:
            responses.append(api("GET", f"{NODE_WITH_CARD}&order_by=spread:VCPU&limit=20", version=EXTENDED))
        statements.append([each for each in sent if "provider_ids" in (each.parameters or {})])
    first, second = responses
    assert first.json == second.json
    assert len(first.json["allocation_requests"]) == 20
    # One for the first anchors, which show whether their paths are worthwhile, and one for the others.
    assert len(statements[1]) == 2 < len(statements[0])


def test_paths_are_read_of_few_trees_if_same_subtree_excludes_nothing(
    new_app: NewApp, load_cloud: LoadCloud
) -> None:
    nodes = "a{0}<h{0}{{VCPU8}}; c{0}<a{0}{{SRIOV_NET_VF8}}; b{0}<h{0}{{VCPU9}}; d{0}<b{0}{{SRIOV_NET_VF8}}"
    load_cloud(read("; ".join(f"h{number}{{}}; {nodes.format(number)}" for number in range(60))))
    # The text, and not that of EXECUTE.
    app = new_app(prepared_statements=False)
    path = f"{NODE_WITH_CARD}&order_by=spread:VCPU&limit=50"
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
    path = f"{NODE_WITH_CARD}&order_by=spread:VCPU"
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
        path = "/allocation_candidates?resources=DISK_GB:20&resources_N=VCPU:2&order_by=random&limit=3"
        response = api("GET", path, version=EXTENDED)
    assert len(response.json["allocation_requests"]) == 3
    assert max(len(str(each.parameters)) for each in statements) < 50_000


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
        assert request_stats.current().anchors == 1


def test_few_sharing_providers_make_no_other_class_rare(
    api: Api, load_cloud: LoadCloud, forbid_lookup: Callable[..., None]
) -> None:
    """Three pools serve 250 hosts; those with the most VCPU are found without a lookup in the whole cloud."""
    pools = [f"s{n}{{DISK_GB90}}$@A{n}" for n in range(3)]
    load_cloud(read("; ".join([*pools, *(f"h{n}{{VCPU{n + 1}}}@A{n % 3}" for n in range(250))])))
    forbid_lookup()
    path = "/allocation_candidates?resources=VCPU:1,DISK_GB:1&order_by=spread:VCPU&limit=1"
    [candidate] = api("GET", path, version=EXTENDED).json["allocation_requests"]
    assert candidate["allocations"].keys() == {uuid_of("h249"), uuid_of("s0")}


@pytest.mark.parametrize(
    ("pool", "host"),
    [("{0}", ""), ("50", ""), ("{0}", ",DISK_GB1{0}"), ("50", ",DISK_GB50")],
    ids=["different", "alike", "different-and-own-disks", "alike-and-own-disks"],
)
def test_hosts_come_in_the_order_of_their_sharing_providers(
    app: Flask,
    api: Api,
    load_cloud: LoadCloud,
    forbid_lookup: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    pool: str,
    host: str,
) -> None:
    """Ten hosts use each of 30 pools. Only the first are examined, without a lookup in the whole cloud.

    Their roots are listed, or the roots of the cloud are tested for being served. Hosts without any disk, and
    most pools, are not examined.
    """
    pools = [f"s{n}{{DISK_GB{pool.format(20 + n)}}}$@A{n}" for n in range(30)]
    hosts = [f"h{n}{{VCPU8{host.format(n % 60)}}}@A{n % 30}" for n in range(300)]
    load_cloud(read("; ".join([*pools, *hosts, *(f"n{n}{{VCPU8}}" for n in range(100))])))
    paths = [
        f"/allocation_candidates?resources=VCPU:1,DISK_GB:1&order_by={order}:DISK_GB"
        for order in ("spread", "pack")
    ]
    every = [api("GET", path, version=EXTENDED).json["allocation_requests"] for path in paths]
    forbid_lookup()
    for most_listed in (-1, 10_000):
        monkeypatch.setattr(ServedRoots, "_most_listed", lambda *_, most=most_listed: most)
        for path, expected in zip(paths, every, strict=True):
            with sent_statements(app.extensions["database"].engine) as statements:
                limited = api("GET", f"{path}&limit=25", version=EXTENDED).json["allocation_requests"]
            assert limited == expected[:25]
            assert len(statements) <= FEW_STATEMENTS
            assert request_stats.current().anchors == 25
            # The second statement with roots reads the trees.
            examined, *_ = _root_counts(statements)
            assert examined <= 55


@pytest.mark.parametrize(
    "full_host",
    [
        "h{0}{{VCPU2}}",
        "h{0}{{}}; a{0}<h{0}{{VCPU2}}; b{0}<h{0}{{VCPU9,MEMORY_MB8}}",
    ],
    ids=["no-anchors", "anchors-with-worse-key"],
)
def test_fullest_hosts_lack_another_class(
    app: Flask, api: Api, load_cloud: LoadCloud, full_host: str, forbid_lookup: Callable[..., None]
) -> None:
    """Further roots are examined in a few batches, without a lookup in the whole cloud."""
    forbid_lookup()
    hosts = [full_host.format(number) for number in range(300)]
    load_cloud(read("; ".join([*hosts, *(f"g{number}{{VCPU4,MEMORY_MB8}}" for number in range(250))])))
    path = "/allocation_candidates?resources_N=VCPU:1,MEMORY_MB:1&order_by=pack:VCPU&limit=10"
    with sent_statements(app.extensions["database"].engine) as statements:
        response = api("GET", path, version=EXTENDED)
    summaries = response.json["provider_summaries"].values()
    assert [each["resources"]["VCPU"]["capacity"] for each in summaries] == [4] * 10
    assert len(statements) <= FEW_STATEMENTS


@pytest.mark.parametrize("pools", ["", "; s{DISK_GB9}$@A"], ids=["own-disks", "shared-disks"])
def test_if_most_hosts_lack_an_amount_those_that_have_it_are_read(
    app: Flask, api: Api, load_cloud: LoadCloud, forbid_lookup: Callable[..., None], pools: str
) -> None:
    """The 300 fullest hosts have no memory; few of them are examined."""
    forbid_lookup()
    disk = "}@A" if pools else ",DISK_GB9}"
    hosts = [f"h{n}{{VCPU2{disk}" for n in range(300)] + [f"g{n}{{VCPU4,MEMORY_MB8{disk}" for n in range(210)]
    load_cloud(read("; ".join(hosts) + pools))
    for order in ("pack:VCPU", "pack:DISK_GB"):
        path = f"/allocation_candidates?resources=VCPU:1,MEMORY_MB:1,DISK_GB:1&order_by={order}&limit=10"
        with sent_statements(app.extensions["database"].engine) as statements:
            response = api("GET", path, version=EXTENDED)
        assert len(response.json["allocation_requests"]) == 10
        *examined, _ = _root_counts(statements)
        assert sum(examined) <= 150


def test_lower_limit_that_needed_many_roots_for_each_tree_sets_no_example(
    app: Flask, api: Api, engine: Engine, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One host in 32 has memory, so the search with the higher limit orders only those that have."""
    monkeypatch.setattr(batches, "MIN_USELESS_LIMIT", 200)
    monkeypatch.setattr(criteria_builder, "RARITY_THRESHOLD", 0)
    load_cloud(read("; ".join(f"h{n}{{VCPU4{'' if n % 32 else ',MEMORY_MB8'}}}" for n in range(800))))
    analyze(engine, "resource_providers", "inventories")
    path = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:1&order_by=pack:VCPU"
    examined = []
    for limit in (2, 20):
        with sent_statements(app.extensions["database"].engine) as statements:
            response = api("GET", f"{path}&limit={limit}", version=EXTENDED)
        assert len(response.json["allocation_requests"]) == limit
        *counts, _ = _root_counts(statements)
        examined.append(sum(counts))
    assert examined[0] > 2 * batches.max_roots_per_tree(800, 20)
    assert examined[1] <= 200


def test_hosts_with_neither_an_amount_nor_a_pool_that_has_it_are_not_examined(
    app: Flask, api: Api, load_cloud: LoadCloud, forbid_lookup: Callable[..., None]
) -> None:
    """The 300 fullest hosts have too small disks of their own, and use no pool."""
    forbid_lookup()
    full = [f"h{n}{{VCPU2,DISK_GB1}}" for n in range(300)]
    others = [f"g{n}{{VCPU4,DISK_GB9}}; p{n}{{VCPU4}}@A" for n in range(105)]
    load_cloud(read("; ".join([*full, *others, "s{DISK_GB900}$@A"])))
    path = "/allocation_candidates?resources=VCPU:1,DISK_GB:5&order_by=pack:VCPU&limit=10"
    with sent_statements(app.extensions["database"].engine) as statements:
        response = api("GET", path, version=EXTENDED)
    assert len(response.json["allocation_requests"]) == 10
    *examined, _ = _root_counts(statements)
    assert sum(examined) <= 150


def test_uuids_are_read_only_of_the_roots_that_they_order(
    new_app: NewApp, engine: Engine, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 300 fullest hosts of the set have 30 different amounts, and no memory."""
    monkeypatch.setattr(NamesLookup, "is_small_trait_set", lambda *_: True)
    monkeypatch.setattr(roots, "MIN_LISTED", 10)
    full = [f"h{n}{{VCPU{1 + n // 10}}}#{TRAIT}" for n in range(300)]
    others = [f"g{n}{{VCPU40,MEMORY_MB8}}#{TRAIT}" for n in range(210)]
    load_cloud(read("; ".join([*full, *others])))
    app = new_app(prepared_statements=False)
    path = "/allocation_candidates?resources_N=VCPU:1,MEMORY_MB:1&order_by=pack:VCPU&limit=10"
    headers = ADMIN | {"OpenStack-API-Version": f"placement {EXTENDED}"}
    with sent_statements(app.extensions["database"].engine) as statements:
        response = app.test_client().get(f"{path}&root_required={TRAIT}", headers=headers)
    assert response.status_code == 200
    listing, *_ = [each for each in statements if "roots_in_sets" in each.text]
    with engine.connect() as connection:
        # The set itself reads the rows of the roots once.
        assert sum(row_counts(connection, listing, "resource_providers")) <= len(full + others) + 100


def test_roots_in_a_small_set_are_listed_once(
    app: Flask, api: Api, load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several batches of roots are examined, as the 300 fullest hosts of the set have no memory."""
    monkeypatch.setattr(NamesLookup, "is_small_trait_set", lambda *_: True)
    hosts = [f"h{n}{{VCPU2}}" for n in range(300)] + [f"g{n}{{VCPU4,MEMORY_MB8}}" for n in range(210)]
    load_cloud(read("; ".join(f"{host}#{TRAIT}" for host in hosts)))
    path = "/allocation_candidates?resources_N=VCPU:1,MEMORY_MB:1&order_by=pack:VCPU&limit=10"
    with sent_statements(app.extensions["database"].engine) as statements:
        response = api("GET", f"{path}&root_required={TRAIT}", version=EXTENDED)
    assert len(response.json["allocation_requests"]) == 10
    assert sum("after_key" in (each.parameters or {}) for each in statements) == 1


def test_anchors_of_a_batch_are_not_counted_as_useless(
    api: Api, load_cloud: LoadCloud, forbid_lookup: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch has 20 roots that are no anchors and 35 that are; 15 are missing."""
    monkeypatch.setattr(batches, "MIN_USELESS_LIMIT", 30)
    forbid_lookup()
    full = [f"h{number}{{VCPU2}}" for number in range(20)]
    load_cloud(read("; ".join([*full, *(f"g{number}{{VCPU4,MEMORY_MB8}}" for number in range(220))])))
    path = "/allocation_candidates?resources_N=VCPU:1,MEMORY_MB:1&order_by=pack:VCPU&limit=50"
    assert len(api("GET", path, version=EXTENDED).json["allocation_requests"]) == 50
