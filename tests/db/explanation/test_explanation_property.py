"""The explanation and its oracle agree on random clouds."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, example, given, note, settings

from tests.conftest import Api, LoadCloud, examples
from tests.support.cloud import Cloud, read, without_consumers
from tests.support.explanation_oracle import Explainer, returned_roots, roots_of
from tests.support.nearest_oracle import NearestOracle, without_has
from tests.support.oracle import Group, Request
from tests.support.relaxation_oracle import RelaxationOracle
from tests.support.strategies import scenarios, scenarios_of_pools
from tests.support.summary_oracle import SummaryOracle

FAST = frozenset(["HW_NUMA_ROOT"])

ON_PAPER = (
    read("h1{VCPU8 used4 PCI_DEVICE1}#HW_NUMA_ROOT; h2{VCPU8}; h3{VCPU4}"),
    [
        Request(
            (Group("_A", {"VCPU": 8}, required=(FAST,)), Group("_B", {"PCI_DEVICE": 1})), group_policy="none"
        )
    ],
)
MOVED = (
    read("a{VCPU8 used8 other5}; b{VCPU8 used4 DISK_GB4}; b1<b{VCPU4 used4 other4}"),
    [
        Request((Group("", {"VCPU": 5}),), ignore_consumer=frozenset(["other_consumer"])),
        Request((Group("", {"VCPU": 7}),), ignore_consumer=frozenset(["other_consumer"])),
        Request((Group("1", {"VCPU": 3}), Group("2", {"VCPU": 4})), ignore_consumer=frozenset(["consumer"])),
    ],
)

ISOLATED = (
    read("a{VCPU8}"),
    [
        Request(
            (Group("1", {"VCPU": 1}), Group("2", {"VCPU": 1}, required=(FAST,))),
            group_policy="isolate",
        )
    ],
)
"""`required2` alone excludes the host, but without it the host has no candidates either."""
ON_CHILD = (
    read("a{VCPU4}; b<a{VCPU4 used4 DISK_GB4 used4}"),
    [Request((Group("1", {"VCPU": 1, "DISK_GB": 1}),))],
)
"""The provider that fails fewest filters has no disk, but another one of the host has."""
POOLS_IN_ONE_TREE = (
    read("h@A; t{DISK_GB8}$@A; t1<t{DISK_GB8}$@A; u{DISK_GB8}$@A"),
    [
        Request(
            (Group("1", {"DISK_GB": 1}), Group("2", {"DISK_GB": 1})),
            group_policy="isolate",
            same_subtree=(frozenset("12"),),
        )
    ],
)
"""Only `t` and `t1` together supply the groups: `u` equals `t`, but has no other pool in its tree."""

SPLIT = (
    read(
        "a{MEMORY_MB4}; a1<a{VCPU4 used1}; a2<a{VCPU4}#HW_NUMA_ROOT; a3<a{VCPU8}#COMPUTE_NODE;"
        " b{VCPU4 min2}#COMPUTE_NODE; b1<b{VCPU4 used2 MEMORY_MB2}#HW_NUMA_ROOT"
    ),
    [
        # a3 supplies the whole amount. As its trait is forbidden, a1 and a2 do, and one of them has FAST.
        Request(
            (Group("", {"VCPU": 6}, required=(FAST,), forbidden=frozenset(["COMPUTE_NODE"])),),
            can_split=frozenset(["VCPU"]),
        ),
        Request(
            (Group("", {"VCPU": 6}, required=(FAST, frozenset(["COMPUTE_NODE"]))),),
            can_split=frozenset(["VCPU"]),
        ),
        Request(
            (Group("", {"VCPU": 20, "MEMORY_MB": 5}), Group("1", {"VCPU": 4})),
            can_split=frozenset(["VCPU", "MEMORY_MB"]),
        ),
        Request((Group("", {"VCPU": 1}, required=(FAST,)),), can_split=frozenset(["VCPU"])),
    ],
)
"""Filters and amounts decide whether one provider or several supply a class."""


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(15),
)
@example(scenario=ON_PAPER)
@example(scenario=MOVED)
@example(scenario=ISOLATED)
@example(scenario=ON_CHILD)
@example(scenario=SPLIT)
@given(scenario=scenarios())
def test_explanation_agrees_with_oracle(
    api: Api,
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
) -> None:
    clean_database()
    loaded, requests = scenario
    load_cloud(loaded)
    for request in requests[:4]:
        cloud = without_consumers(loaded, request.ignore_consumer)
        note(f"cloud: {cloud}\nrequest: {request}")
        response = api("GET", f"/allocation_candidates/explanation?{request.query()}", version="1.0")
        assert response.status_code == 200, response.json
        body = response.json
        assert not SummaryOracle(cloud, request, roots_of(cloud), body).untrue()
        del body["summary"]
        returned, truncated_by = body["roots"].pop("returned"), body.pop("truncated_by")
        explainer = Explainer(cloud, request)
        assert body.pop("nearest") == without_has(NearestOracle(explainer).nearest())
        assert body.pop("complete")
        assert body.pop("relaxations") == RelaxationOracle(cloud, request, roots_of(cloud)).relaxations()
        assert body == explainer.explain()
        if truncated_by is None:
            assert returned == returned_roots(cloud, request)
        else:
            assert 0 < returned <= request.limit * 5


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(30),
)
@example(scenario=POOLS_IN_ONE_TREE)
@given(scenario=scenarios() | scenarios_of_pools())
def test_returned_roots_of_unlimited_requests_agree_with_oracle(
    api: Api,
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
) -> None:
    clean_database()
    loaded, requests = scenario
    load_cloud(loaded)
    for limited in requests:
        request = replace(limited, limit=None)
        cloud = without_consumers(loaded, request.ignore_consumer)
        note(f"cloud: {cloud}\nrequest: {request}")
        path = f"/allocation_candidates/explanation?relaxations=0&{request.query()}"
        body = api("GET", path, version="1.0").json
        assert body["truncated_by"] is None
        assert body["roots"]["returned"] == returned_roots(cloud, request)
