"""The capacity of a cloud for a request agrees with the oracle, which claims in every order."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, note, settings

from placement_svc.db import independent_fits
from tests.conftest import Api, LoadCloud, examples
from tests.support.cloud import Cloud, read, uuid_of, without_consumers
from tests.support.fits_oracle import FitsOracle, TooManyStates, without_trees
from tests.support.oracle import Group, Request
from tests.support.strategies import scenarios

PATH = "/allocation_candidates/capacity"
MAX_STATES = 300

ON_PAPER = (read("n0{VCPU8 used2}; n1{VCPU8}"), [Request((Group("1", {"VCPU": 3}),))])
TWO_OF_THREE = (
    read("a{MEMORY_MB1}; a1<a{VCPU4}; a2<a{VCPU4}; a3<a{VCPU4}"),
    [Request((Group("1", {"VCPU": 1}), Group("2", {"VCPU": 1})), group_policy="isolate")],
)
UNEQUAL = (
    read("a{VCPU3}; a1<a{VCPU3}; a2<a{VCPU2}"),
    [Request((Group("1", {"VCPU": 1}), Group("2", {"VCPU": 2})), group_policy="none")],
)
SHARED = (
    read("a{VCPU2 DISK_GB1}@X; b{VCPU3}@X; s{DISK_GB3}$@X"),
    [Request((Group("", {"VCPU": 1, "DISK_GB": 1}),))],
)

TWO_CLASSES = (
    read("a{DISK_GB9}; a1<a{VCPU8 used2 MEMORY_MB9}; a2<a{VCPU7 MEMORY_MB5}; b{VCPU4 MEMORY_MB8 DISK_GB1}"),
    [Request((Group("", {"DISK_GB": 1}), Group("1", {"VCPU": 2, "MEMORY_MB": 2})))],
)
TRAIT_OF_ONE_NODE = (
    read("a{DISK_GB9}; a1<a{VCPU8}#HW_NUMA_ROOT; a2<a{VCPU7}; b{VCPU4 DISK_GB8}#HW_NUMA_ROOT"),
    [Request((Group("", {"DISK_GB": 1, "VCPU": 2}, required=(frozenset(["HW_NUMA_ROOT"]),)),))],
)
MOVED = (
    read("a{VCPU8 used8 other5}; b{VCPU8 used4}; b1<b{VCPU4 used4 other4}"),
    [Request((Group("1", {"VCPU": 2}),), ignore_consumer=frozenset(["other_consumer"]))],
)

SPLIT_WITHOUT_A_SECOND_ROOT = (
    read("a{VCPU4}@X; a1<a{}#COMPUTE_NODE; b{}#COMPUTE_NODE@X; b1<b{VCPU4}; s{DISK_GB9}$@X"),
    [
        Request(
            (
                Group("", {"DISK_GB": 2}),
                Group("1", {"VCPU": 4}),
                Group("_NET", {}, required=(frozenset(["COMPUTE_NODE"]),)),
            ),
            same_subtree=(frozenset(["!1", "_NET"]),),
            can_split=frozenset(["DISK_GB"]),
        )
    ],
)
"""Both hosts have a supplier for each group, but b has no candidate."""

SPLIT_OF_A_POOL = (
    read("b{VCPU1 DISK_GB2}@X; n1{VCPU1}@X; pool{DISK_GB2}$@X"),
    [Request((Group("", {"VCPU": 1, "DISK_GB": 2}),), can_split=frozenset(["DISK_GB"]))],
)
"""The first claim of b must not use the pool, which n1 needs."""


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(15),
)
@example(scenario=ON_PAPER)
@example(scenario=TWO_OF_THREE)
@example(scenario=UNEQUAL)
@example(scenario=SHARED)
@example(scenario=TWO_CLASSES)
@example(scenario=TRAIT_OF_ONE_NODE)
@example(scenario=MOVED)
@example(scenario=SPLIT_WITHOUT_A_SECOND_ROOT)
@example(scenario=SPLIT_OF_A_POOL)
@given(scenario=scenarios())
def test_capacity_agrees_with_oracle(
    api: Api,
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    monkeypatch: pytest.MonkeyPatch,
    scenario: tuple[Cloud, list[Request]],
) -> None:
    clean_database()
    loaded, requests = scenario
    load_cloud(loaded)
    for request in requests[:2]:
        cloud = without_consumers(loaded, request.ignore_consumer)
        note(f"cloud: {cloud}\nrequest: {request}")
        response = api("GET", f"{PATH}?{request.query()}&limit=10000", version="1.0")
        assert response.status_code == 200, response.json
        note(f"response: {response.json}")
        check(FitsOracle(cloud, request, MAX_STATES), response.json)
        check_maximum(api, request, response.json)
        name = cloud.providers[-1].name
        left = api("GET", f"{PATH}?{request.query()}&limit=10000&without={uuid_of(name)}").json
        check(FitsOracle(without_trees(cloud, [name]), request, MAX_STATES), left)
        with monkeypatch.context() as patch:
            patch.setattr(independent_fits, "has_few_roots", lambda _: False)
            check_aggregated(api, request, [response.json, left], f"without={uuid_of(name)}")


def check_maximum(api: Api, request: Request, body: dict[str, Any]) -> None:
    """Compare a response with those that stop at half of its claims, one before the last, or the last."""
    for most in {max(1, body["fits"] // 2), max(1, body["fits"] - 1), max(1, body["fits"])}:
        stopped = api("GET", f"{PATH}?{request.query()}&limit=10000&max={most}").json
        assert stopped["fits"] == min(most, body["fits"])
        if body["fits"] > most:
            assert stopped["bound"] == "lower"
        elif body["bound"] == "exact":
            assert stopped["bound"] == "exact"
        assert sum(stopped["binding"].values()) == stopped["fits"]
        assert "other" not in stopped["binding"] or body["fits"] > most


def check_aggregated(api: Api, request: Request, bodies: list[Any], without: str) -> None:
    """Compare responses with those of a cloud in which the request has many roots."""
    path = f"{PATH}?{request.query()}&limit=10000"
    assert [api("GET", target).json for target in (path, f"{path}&{without}")] == bodies
    check_maximum(api, request, bodies[0])


def check(oracle: FitsOracle, body: dict[str, Any]) -> None:
    """Compare a response with the oracle, as far as that can try all orders of claims."""
    fits, roots = body["fits"], body["roots"]
    assert body["links"] == []
    assert body["stranded"] == oracle.stranded(fits)
    assert roots == sorted(roots, key=lambda root: (-root["fits"], root["uuid"]))
    assert all(root["fits"] > 0 for root in roots)
    assert sum(root["fits"] for root in roots) == fits
    totals = dict.fromkeys((root["binding"] for root in roots), 0)
    for root in roots:
        totals[root["binding"]] += root["fits"]
    assert body["binding"] == totals
    assert totals.keys() <= set(oracle.classes)
    if oracle.promises_exact():
        assert body["bound"] == "exact"
    try:
        lengths = oracle.run_lengths()
    except TooManyStates:
        return
    assert fits in lengths
    assert body["bound"] == "lower" or fits == max(lengths)
    if body["bound"] == "exact" and not oracle.shares_suppliers():
        by_name = {root["name"]: root for root in roots}
        for root in oracle.roots:
            found = by_name.get(root.name, {"fits": 0})
            assert found["fits"] == max(oracle.run_lengths([root]))
            if found["fits"]:
                assert oracle.binding(root, found["fits"]) in (None, found["binding"])


@pytest.mark.parametrize(
    ("scenario", "fits", "bound"),
    [
        (ON_PAPER, 4, "exact"),
        (TWO_OF_THREE, 6, "exact"),
        (UNEQUAL, 2, "exact"),
        (SHARED, 4, "exact"),
        (SPLIT_WITHOUT_A_SECOND_ROOT, 1, "exact"),
        (SPLIT_OF_A_POOL, 2, "exact"),
    ],
)
def test_known_capacities(
    api: Api, load_cloud: LoadCloud, scenario: tuple[Cloud, list[Request]], fits: int, bound: str
) -> None:
    cloud, [request] = scenario
    load_cloud(cloud)

    body = api("GET", f"{PATH}?{request.query()}").json

    assert (body["fits"], body["bound"]) == (fits, bound)
