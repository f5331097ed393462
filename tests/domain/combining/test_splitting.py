"""The sets of providers that supply a class in parts (`docs/spec/extensions.md 2.8`)."""

from itertools import combinations
from math import lcm

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_svc.domain.combining.candidates import combine_around
from placement_svc.domain.combining.interfaces import TreeSuppliers
from placement_svc.domain.combining.split_suppliers import SplitSupplier
from placement_svc.domain.combining.splitting import (
    all_suppliers,
    can_supply_together,
    smallest_sets,
)
from placement_svc.domain.demands import CombinationRules, Demand
from placement_svc.domain.errors import Invalid, Unavailable
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MEGABYTE, MemoryBudget
from placement_svc.domain.inventory import UnitLimits

MEMORY = MemoryBudget(100 * MEGABYTE)

limits = st.builds(UnitLimits, st.integers(1, 5), st.integers(0, 9), st.sampled_from([1, 1, 1, 2, 3, 4, 6]))


def suffices(members: tuple[UnitLimits, ...], amount: int) -> bool:
    multiple = lcm(*(each.step_size for each in members))
    parts = [range(-(-each.min_unit // multiple) * multiple, each.max_unit + 1, multiple) for each in members]
    return (
        amount % multiple == 0
        and all(parts)
        and sum(part[0] for part in parts) <= amount <= sum(part[-1] for part in parts)
    )


@settings(deadline=None)
@given(st.lists(limits, max_size=7), st.integers(1, 30))
def test_sets_are_the_smallest_that_suffice(providers: list[UnitLimits], amount: int) -> None:
    numbered = [(number, each) for number, each in enumerate(providers) if not each.fits_units(amount)]
    found = [
        frozenset(member.provider_id for member in members)
        for members in smallest_sets(numbered, amount, Deadline.of(60), MEMORY)
    ]
    expected: set[frozenset[int]] = set()
    for size in range(2, len(numbered) + 1):
        expected = {
            frozenset(id_ for id_, _ in members)
            for members in combinations(numbered, size)
            if suffices(tuple(each for _, each in members), amount)
        }
        if expected:
            break
    assert len(found) == len(set(found))
    assert set(found) == expected
    alone = [each for _, each in numbered]
    assert can_supply_together(alone, amount, Deadline.of(60), MEMORY) == bool(expected)


def test_first_set_of_thousands_of_providers_is_found_at_once() -> None:
    providers = [(number, UnitLimits(1, 1, 1)) for number in range(10_000)]
    first = next(iter(smallest_sets(providers, 5000, Deadline.of(60), MEMORY)))
    assert len(first) == 5000


def test_impossible_amount_needs_no_sets() -> None:
    providers = [(number, UnitLimits(1, 1, 1)) for number in range(10_000)]
    assert list(smallest_sets(providers, 10_001, Deadline.of(60), MEMORY)) == []


def test_search_for_sets_ends_at_the_deadline() -> None:
    providers = [(number, UnitLimits(1, 1, 1)) for number in range(10_000)]
    with pytest.raises(Unavailable):
        for _ in smallest_sets(providers, 5000, Deadline.of(0.05), MEMORY):
            pass


def test_many_step_sizes_are_bounded_by_the_memory() -> None:
    amount = lcm(*range(1, 20))
    steps = [step for step in range(1, 2000) if amount % step == 0]
    providers = [(number, UnitLimits(1, amount // 2, step)) for number, step in enumerate(steps * 20)]
    with pytest.raises(Invalid):
        next(iter(smallest_sets(providers, amount, Deadline.of(600), MemoryBudget(MEGABYTE))))


class OneTree:
    """A tree of providers with one unit each: the root is 0."""

    def path(self, provider_id: int) -> tuple[int, ...]:
        return (0, provider_id)

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        return frozenset()

    def max_allocatable(self, provider_id: int, resource_class: str) -> int:
        return 1

    def units(self, provider_id: int, resource_class: str) -> UnitLimits:
        return UnitLimits(1, 1, 1)

    def uuid(self, provider_id: int) -> str:
        return f"{provider_id:04}"


@pytest.mark.parametrize("others", [29, 31])
def test_combining_splits_ends_with_a_candidate_or_at_a_bound(others: int) -> None:
    demands = (Demand("", (("VCPU", 30),)), *(Demand(f"_{n}", (("VCPU", 1),)) for n in range(others)))
    rules = CombinationRules(demands, splittable=frozenset([0]))
    suppliers = [tuple(range(1, 61))] * len(demands)
    candidates = combine_around(
        TreeSuppliers(0, rules, suppliers, OneTree(), Deadline.of(60 if others < 30 else 2), MEMORY)
    )
    if others < 30:
        first = next(candidates)
        split = first[0]
        assert isinstance(split, SplitSupplier)
        assert len(split.parts) == 30
        assert {part.provider_id for part in split.parts}.isdisjoint(first[1:])
    else:
        # Which bound comes first, the deadline or the number of failures, depends on the machine.
        with pytest.raises((Unavailable, Invalid)):
            next(candidates)


def test_all_splits_of_an_ordered_search_are_bounded_by_the_memory() -> None:
    rules = CombinationRules((Demand("", (("VCPU", 30),)),), splittable=frozenset([0]))
    suppliers = [tuple(range(1, 61))]
    memory = MemoryBudget(MEGABYTE)
    with pytest.raises(Invalid):
        all_suppliers(TreeSuppliers(0, rules, suppliers, OneTree(), Deadline.of(60), memory))
