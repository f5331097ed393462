"""The most claims of demands that compete for amounts, compared with an exhaustive search of all kinds."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placement_svc.domain.combining.candidates import combine
from placement_svc.domain.demands import CombinationRules, Demand
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MEGABYTE, MemoryBudget
from placement_svc.domain.groups import GroupPolicy
from placement_svc.domain.simulated_claims.amounts import (
    InventoryKey,
    RootSuppliers,
    SimulatedInventories,
    amounts_of,
)
from placement_svc.domain.simulated_claims.claiming import claim_all
from placement_svc.domain.simulated_claims.competing_demands import CompetingDemands, compete_only
from placement_svc.domain.simulated_claims.packing import StepBudget, StepsExhausted, pack
from placement_svc.domain.simulated_claims.run import ClaimRun
from tests.conftest import examples

CHILDREN = range(2, 6)
NAMES = ("VCPU", "DISK_GB")
ENOUGH = 1_000_000


def held(free: dict[InventoryKey, int], max_unit: int) -> SimulatedInventories:
    ids = {id_ for id_, _ in free}
    return SimulatedInventories(
        free=dict(free),
        max_unit=dict.fromkeys(free, max_unit),
        paths={id_: (1, id_) for id_ in ids},
        traits=dict.fromkeys(ids, frozenset()),
        uuids={id_: f"{id_:08}" for id_ in ids},
    )


resources = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(1, 3)),
    min_size=1,
    max_size=2,
    unique_by=lambda each: each[0],
).map(tuple)


@st.composite
def requests(draw: st.DrawFn) -> tuple[CombinationRules, list[list[int]]]:
    """Draw demands and the suppliers of each, which may be the same ones."""
    demands = [
        *(Demand("", ((name, draw(st.integers(1, 3))),)) for name in draw(st.sets(st.sampled_from(NAMES)))),
        *(Demand(f"_{number}", draw(resources)) for number in range(draw(st.integers(1, 3)))),
    ]
    lists = draw(st.lists(st.permutations(CHILDREN), min_size=2, max_size=2))
    lengths = draw(st.tuples(st.integers(1, 4), st.integers(2, 4)))
    lists = [each[:length] for each, length in zip(lists, lengths, strict=True)]
    suppliers = [draw(st.sampled_from(lists)) for _ in demands]
    return CombinationRules(tuple(demands), group_policy=draw(st.sampled_from(GroupPolicy))), suppliers


@settings(deadline=None, max_examples=examples(300))
@given(
    request=requests(),
    free=st.fixed_dictionaries({(id_, name): st.integers(0, 6) for id_ in CHILDREN for name in NAMES}),
    max_unit=st.sampled_from([3, 9]),
)
def test_number_is_the_greatest(
    request: tuple[CombinationRules, list[list[int]]], free: dict[InventoryKey, int], max_unit: int
) -> None:
    rules, suppliers = request
    inventories, deadline = held(free, max_unit), Deadline.of(600)
    # All suppliers of a demand can supply it at first.
    suppliers = [
        [id_ for id_ in ids if inventories.times_of(demand, id_)]
        for demand, ids in zip(rules.demands, suppliers, strict=True)
    ]
    assume(all(suppliers))
    assume(compete_only(rules, suppliers, inventories))
    candidates = combine(rules, suppliers, inventories, deadline, MemoryBudget(64 * MEGABYTE))
    kinds = list({frozenset(amounts_of(rules.demands, each).items()) for each in candidates})
    assume(len(kinds) <= 30)
    try:
        greatest = sum(pack(list(map(dict, kinds)), inventories, StepBudget(20_000, deadline)))
    except StepsExhausted:
        assume(False)

    competing = CompetingDemands(rules, suppliers, inventories, StepBudget(ENOUGH, deadline), deadline)
    counts = competing.most(0, 99)

    assert sum((counts or {}).values()) == greatest
    used = Counter[InventoryKey]()
    for kind, times in (counts or {}).items():
        assert kind in kinds
        used.update({key: amount * times for key, amount in kind})
    assert all(amount <= free[key] for key, amount in used.items())
    if counts:
        assert competing.most(greatest - 1, greatest) is not None
        assert competing.most(greatest, 99) is None


@pytest.mark.parametrize("policy", GroupPolicy)
@pytest.mark.parametrize(
    ("free", "amounts", "none", "isolate"),
    [
        ([2, 4, 3, 4, 2, 3, 4, 4], (1, 2), 8, 8),
        ([8, 5, 6, 6, 8, 7, 8, 7], (4, 1), 11, 11),
        ([5, 6, 4, 12, 10], (3, 6, 2), 3, 3),
        ([8] * 7, (3, 4), 7, 7),
        ([8] * 8, (3, 4), 8, 8),
        ([9, 1, 1], (1, 1), 5, 2),
    ],
)
def test_groups_of_one_class_at_a_host_of_numa_nodes(
    free: Sequence[int], amounts: Sequence[int], none: int, isolate: int, policy: GroupPolicy
) -> None:
    run = claim_at_host(free, amounts, policy)
    expected = isolate if policy is GroupPolicy.ISOLATE else none
    assert ([each.count for each in run.claims], run.is_exact) == ([expected], True)


@pytest.mark.parametrize("amount", [1000, 10**18])
def test_search_of_too_many_steps_is_a_lower_bound(amount: int) -> None:
    run = claim_at_host([amount] * 8, (3, 4, 5), GroupPolicy.NONE)
    [claims] = run.claims
    assert not run.is_exact
    # Each claim takes 12, and some of each node may be left.
    assert claims.count > amount * 8 // 12 * 0.9


def test_many_different_demands_are_a_lower_bound() -> None:
    run = claim_at_host([130_000, 130_000], range(1, 501), GroupPolicy.NONE)
    # A claim takes 125,250.
    assert [each.count for each in run.claims] == [2]


def claim_at_host(free: Sequence[int], amounts: Sequence[int], policy: GroupPolicy) -> ClaimRun:
    """Claim groups of these amounts at a host whose NUMA nodes have so much free."""
    ids = range(2, 2 + len(free))
    inventories = held({(id_, "VCPU"): amount for id_, amount in zip(ids, free, strict=True)}, 10**18)
    demands = tuple(Demand(f"_{number}", (("VCPU", amount),)) for number, amount in enumerate(amounts))
    rules = CombinationRules(demands, group_policy=policy)
    root = RootSuppliers(1, [list(ids)] * len(amounts))
    memory = MemoryBudget(64 * MEGABYTE)
    return claim_all(rules, [root], inventories, 10**20, Deadline.of(60), memory)
