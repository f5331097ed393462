"""The greatest number of claims, compared with trying every number of claims of each kind."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_svc.domain.errors import Unavailable
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.simulated_claims.amounts import SimulatedInventories
from placement_svc.domain.simulated_claims.packing import StepBudget, StepsExhausted, pack
from tests.conftest import examples

KEYS = [(provider, name) for provider in (1, 2, 3) for name in ("VCPU", "DISK_GB")]


def budget(steps: int = 100_000, seconds: float = 60.0) -> StepBudget:
    return StepBudget(steps, Deadline.of(seconds))


@st.composite
def kinds(draw: st.DrawFn) -> list[dict[tuple[int, str], int]]:
    """Draw kinds of claims of one request: each takes the same amount of each class in all."""
    vcpu, disk = draw(st.sampled_from([(1, 1), (2, 1), (3, 2), (4, 4)]))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        kind: dict[tuple[int, str], int] = {}
        for name, total in (("VCPU", vcpu), ("DISK_GB", disk)):
            first, second = draw(st.integers(1, 3)), draw(st.integers(1, 3))
            part = draw(st.integers(1, total))
            for provider, amount in ((first, part), (second, total - part)):
                if amount:
                    kind[provider, name] = kind.get((provider, name), 0) + amount
        found.append(kind)
    return found


@settings(deadline=None, max_examples=examples(200))
@given(kinds=kinds(), free=st.fixed_dictionaries({key: st.integers(0, 8) for key in KEYS}))
def test_number_is_the_greatest(
    kinds: list[dict[tuple[int, str], int]], free: dict[tuple[int, str], int]
) -> None:
    def fit(counts: tuple[int, ...]) -> bool:
        return all(
            sum(count * kind.get(key, 0) for count, kind in zip(counts, kinds, strict=True)) <= free[key]
            for key in KEYS
        )

    counts = pack(kinds, SimulatedInventories(free), budget())

    assert fit(tuple(counts))
    assert sum(counts) == max(sum(each) for each in product(range(9), repeat=len(kinds)) if fit(each))


def test_one_kind_needs_few_steps_however_much_is_free() -> None:
    kinds = [{(1, "VCPU"): 2, (1, "DISK_GB"): 1}, {(2, "VCPU"): 2, (2, "DISK_GB"): 1}]
    free = dict.fromkeys(KEYS, 4 * 10**18)
    assert pack(kinds, SimulatedInventories(free), budget(steps=10)) == [2 * 10**18, 2 * 10**18]


def test_search_ends_with_its_steps_or_at_the_deadline() -> None:
    nodes = range(8)
    kinds = [{(one, "VCPU"): 2, (other, "VCPU"): 3} for one in nodes for other in nodes if one != other]
    inventories = SimulatedInventories({(node, "VCPU"): 4 for node in nodes})
    with pytest.raises(StepsExhausted):
        pack(kinds, inventories, budget(steps=50))
    with pytest.raises(Unavailable):
        pack(kinds, inventories, budget(seconds=0.0))
