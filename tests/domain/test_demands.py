import pytest

from placement_svc.domain.demands import (
    CombinationRules,
    Demand,
    allocations_of,
    combination_rules,
    demands_of,
    mappings_of,
)
from placement_svc.domain.groups import CandidatesRequest, GroupPolicy, RequestGroup, SameSubtree

ONE_VCPU = Demand("", (("VCPU", 1),))
TWO_VGPUS = Demand("", (("VGPU", 2),))


def test_unsuffixed_group_has_one_demand_for_each_class():
    request = CandidatesRequest(
        groups=(
            RequestGroup("a", {"VCPU": 1, "VGPU": 2}),
            RequestGroup("", {"VCPU": 3, "DISK_GB": 4}),
            RequestGroup("b"),
        ),
        same_subtree=(SameSubtree(frozenset({"a", "b"})), SameSubtree(frozenset({"a"}))),
        group_policy=GroupPolicy.ISOLATE,
    )
    demands = [demand for group in request.groups for demand in demands_of(group)]
    required = (frozenset({65}),)
    assert combination_rules(request, demands, required) == CombinationRules(
        demands=(
            Demand("a", (("VCPU", 1), ("VGPU", 2))),
            Demand("", (("VCPU", 3),)),
            Demand("", (("DISK_GB", 4),)),
            Demand("b", ()),
        ),
        unsuffixed_required=required,
        same_subtree=(frozenset({0, 3}),),
        group_policy=GroupPolicy.ISOLATE,
    )


@pytest.mark.parametrize(
    ("demands", "uuids", "allocations", "mappings"),
    [
        ([ONE_VCPU], "1", {"1": {"VCPU": 1}}, {"": ["1"]}),
        ([ONE_VCPU, TWO_VGPUS], "12", {"1": {"VCPU": 1}, "2": {"VGPU": 2}}, {"": ["1", "2"]}),
        ([ONE_VCPU, TWO_VGPUS], "11", {"1": {"VCPU": 1, "VGPU": 2}}, {"": ["1"]}),
        (
            [ONE_VCPU, Demand("a", (("VCPU", 2), ("VGPU", 3))), Demand("b", (("VCPU", 4),))],
            "112",
            {"1": {"VCPU": 3, "VGPU": 3}, "2": {"VCPU": 4}},
            {"": ["1"], "a": ["1"], "b": ["2"]},
        ),
        ([Demand("a", ()), Demand("b", (("VCPU", 1),))], "21", {"1": {"VCPU": 1}}, {"a": ["2"], "b": ["1"]}),
    ],
)
def test_allocations_and_mappings_of_suppliers(demands, uuids, allocations, mappings):
    assert allocations_of(demands, uuids) == allocations
    assert mappings_of(demands, uuids) == mappings
