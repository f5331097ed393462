"""The largest number of claims that fit together, by an exhaustive search with a bounded number of steps.

Each claim has one of several *kinds*: the amounts that it takes of some inventories. A claim stays possible
as long as its amounts are free, so the order of the claims does not matter, only how many there are of each
kind. To maximize their number is NP-hard in general; the bounds below make small cases cheap.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.simulated_claims.amounts import ClaimAmounts, InventoryKey, SimulatedInventories


class StepsExhausted(Exception):
    """The search has used all its steps."""


class StepBudget:
    """The steps that the searches of one request may still take."""

    def __init__(self, steps: int, deadline: Deadline) -> None:
        self.steps = steps
        self._deadline = deadline

    def take(self) -> None:
        """Use one step; raise `StepsExhausted` if none is left, and what `Deadline.check` raises."""
        if self.steps <= 0:
            raise StepsExhausted
        self.steps -= 1
        self._deadline.check()

    @contextmanager
    def part(self, most: int) -> Iterator["StepBudget"]:
        """Yield a budget of at most so many of the steps; those that are used count here too."""
        steps = min(most, self.steps)
        budget = StepBudget(steps, self._deadline)
        try:
            yield budget
        finally:
            self.steps -= steps - budget.steps


def pack(kinds: Sequence[ClaimAmounts], inventories: SimulatedInventories, budget: StepBudget) -> list[int]:
    """Return how many claims of each kind to make, so that their number is the greatest.

    Raises `StepsExhausted`. Kinds that use no inventory in common are independent of each other.
    """
    counts = [0] * len(kinds)
    for part in _independent_parts(kinds):
        search = _Search([kinds[number] for number in part], inventories, budget)
        for number, count in zip(part, search.run(), strict=True):
            counts[number] = count
    return counts


def _independent_parts(kinds: Sequence[ClaimAmounts]) -> Iterable[list[int]]:
    """Return the numbers of the kinds, those that have inventories in common together."""
    parts: list[tuple[set[InventoryKey], list[int]]] = []
    for number, kind in enumerate(kinds):
        keys, numbers = set(kind), [number]
        others = []
        for other_keys, other_numbers in parts:
            if keys.isdisjoint(other_keys):
                others.append((other_keys, other_numbers))
            else:
                keys |= other_keys
                numbers = other_numbers + numbers
        parts = [*others, (keys, numbers)]
    return [sorted(numbers) for _, numbers in parts]


class _Search:
    """A depth-first search: it decides on the number of claims of one kind after the other."""

    def __init__(
        self, kinds: Sequence[ClaimAmounts], inventories: SimulatedInventories, budget: StepBudget
    ) -> None:
        self._kinds = kinds
        self._budget = budget
        self._bounds = [_Bound(kinds[index:]) for index in range(len(kinds) + 1)]
        self._inventories = inventories.part(self._bounds[0].keys)
        self._counts = [0] * len(kinds)
        self._best = list(self._counts)
        self._best_total = 0
        self._reached: dict[Hashable, int] = {}
        """The most claims with which each state was reached: the amounts that are left for later kinds."""

    def run(self) -> list[int]:
        """Return the number of claims of each kind."""
        self._search(0, 0)
        return self._best

    def _search(self, index: int, total: int) -> None:
        self._budget.take()
        if total > self._best_total:
            self._best_total, self._best = total, list(self._counts)
        free = self._inventories.free
        limit = total + self._bounds[index].of(self._inventories)
        if limit <= self._best_total:
            return
        state = index, tuple([free[key] for key in self._bounds[index].keys])
        if self._reached.get(state, -1) >= total:
            return
        self._reached[state] = total
        kind = self._kinds[index]
        times = self._inventories.times(kind)
        # Without an inventory in common with later kinds, fewer claims of this kind win nothing.
        fewest = times if self._bounds[index + 1].keys.isdisjoint(kind) else 0
        for count in range(times, fewest - 1, -1):
            self._inventories.claim(kind, count)
            self._counts[index] = count
            self._search(index + 1, total + count)
            self._inventories.claim(kind, -count)
            self._counts[index] = 0
            if self._best_total >= limit:
                return


class _Bound:
    """An upper bound of the number of claims of some kinds."""

    def __init__(self, kinds: Sequence[ClaimAmounts]) -> None:
        self._kinds = kinds
        self.keys = frozenset[InventoryKey]().union(*kinds)
        """The inventories of the kinds."""
        self._by_class: dict[str, list[InventoryKey]] = {}
        for key in sorted(self.keys):
            self._by_class.setdefault(key[1], []).append(key)
        self._least: dict[str, int] = {}
        self._divisor: dict[str, int] = {}
        for name in self._by_class:
            amounts = [[amount for key, amount in kind.items() if key[1] == name] for kind in kinds]
            self._least[name] = min(map(sum, amounts))
            self._divisor[name] = math.gcd(*(amount for each in amounts for amount in each))

    def of(self, inventories: SimulatedInventories) -> int:
        """Return the bound with what is free now."""
        bound = sum(map(inventories.times, self._kinds))
        for name, keys in self._by_class.items():
            divisor = self._divisor[name]
            usable = sum(inventories.free[key] // divisor * divisor for key in keys)
            bound = min(bound, usable // self._least[name])
        return bound
