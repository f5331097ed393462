"""The sets of providers that supply a class in parts (`docs/spec/extensions.md 2.8`)."""

from itertools import combinations
from math import lcm

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_svc.domain.deadline import Deadline
from placement_svc.domain.errors import Invalid, Unavailable
from placement_svc.domain.inventory import UnitLimits
from placement_svc.domain.memory import MEGABYTE, MemoryBudget
from placement_svc.domain.splitting import smallest_sets

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
