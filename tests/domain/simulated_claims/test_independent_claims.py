"""Claims at a root whose demands never affect each other."""

import pytest

from placement_svc.domain.demands import CombinationRules, Demand
from placement_svc.domain.groups import GroupPolicy
from placement_svc.domain.simulated_claims.independent_claims import are_independent, independent_claims

DISK = Demand("", (("DISK_GB", 20),))
NODE = Demand("1", (("VCPU", 2), ("MEMORY_MB", 512)))
OTHER_NODE = Demand("2", (("VCPU", 4),))
CARD = Demand("2", (("SRIOV_NET_VF", 1),))


@pytest.mark.parametrize(
    ("disk", "nodes", "count", "exhausted"),
    [
        ([9], [[3, 4], [2, 2]], 5, {"VCPU", "MEMORY_MB"}),
        ([5], [[3, 4], [2, 3]], 5, {"DISK_GB", "VCPU"}),
        ([2], [[3, 4], [2, 2]], 2, {"DISK_GB"}),
        ([3], [[2, 2], [4, 3]], 3, {"DISK_GB", "MEMORY_MB"}),
        ([1, 1], [[2, 3], [3, 2]], 2, {"DISK_GB", "VCPU"}),
        ([1, 1], [[3, 2], [2, 3]], 2, {"DISK_GB", "MEMORY_MB"}),
    ],
)
def test_last_supplier_of_each_demand_tells_the_exhausted_classes(
    disk: list[int], nodes: list[list[int]], count: int, exhausted: set[str]
) -> None:
    claims = independent_claims([DISK, NODE], [[[each] for each in disk], nodes])
    assert (claims.count, claims.exhausted) == (count, exhausted)


def test_demand_without_suppliers_exhausts_no_class() -> None:
    claims = independent_claims([DISK], [[]])
    assert (claims.count, claims.exhausted) == (0, set())


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (CombinationRules((DISK, NODE)), True),
        (CombinationRules((DISK, NODE), group_policy=GroupPolicy.ISOLATE), True),
        (CombinationRules((DISK, NODE, CARD)), True),
        (CombinationRules((DISK, NODE, CARD), group_policy=GroupPolicy.ISOLATE), False),
        (CombinationRules((DISK, NODE, OTHER_NODE)), False),
        (CombinationRules((DISK, NODE, CARD), same_subtree=(frozenset([1, 2]),)), False),
        (CombinationRules((DISK, NODE), splittable=frozenset([0])), False),
        (CombinationRules((NODE, Demand("2", ()))), False),
    ],
)
def test_demands_are_independent_if_no_rule_concerns_two_suppliers(
    rules: CombinationRules, expected: bool
) -> None:
    assert are_independent(rules) is expected
