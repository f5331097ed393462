"""The constraint of `same_subtree` (`docs/spec/candidates.md 3.7`).

One supplier of a set of demands must be an ancestor of all others, or equal to them: the *head* of a subtree.
Only a provider that supplies one of the demands, and at or below which each of them has a supplier, can be
the head. The search never enters a subtree without such a provider.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

from placement_svc.domain.combining import Combining, Constraint
from placement_svc.domain.deadline import Deadline

MIN_INDEXED_SUPPLIERS = 32
"""The number of suppliers of a demand from which on an index finds those in a subtree."""

MAX_FOUND_PART = 1 / 4
"""The part of a demand's suppliers above which trying all of them is cheaper than using the index."""


def same_subtree_constraints(combining: Combining) -> Iterator[Constraint]:
    """Return the constraint of each `same_subtree`.

    Raises `Unavailable` when their preparation exceeds the deadline.
    """
    return (_SameSubtree(combining, demands) for demands in combining.rules.same_subtree)


class _SameSubtree(Constraint):
    """One supplier of a set of demands is an ancestor of all others, or equal to them.

    As far as this constraint is concerned, assignments can be completed if all their providers are at or
    below a possible head that is one of them or can supply one of the other demands.
    """

    def __init__(self, combining: Combining, demands: Collection[int]) -> None:
        self._combining = combining
        self._demands = demands
        self._heads = _Heads(combining, demands)
        self._unassigned = sum(1 << demand for demand in demands)
        """The demands without a provider, as a bit mask: bit n stands for demand n."""
        self._assignments: list[tuple[int | None, int | None]] = []
        """After each assignment, the lowest possible head at or above all assigned providers, and the topmost
        possible head at or above that one that is assigned itself (None: there is none)."""
        self._indexes: dict[int, _SubtreeIndex] = {}

    def allows(self, demand: int, provider_id: int) -> bool:
        if demand not in self._demands:
            return True
        lowest, assigned = self._with(provider_id)
        if assigned is not None or lowest is None:
            return lowest is not None
        return self._heads.supplied_above[lowest] & self._unassigned & ~(1 << demand) != 0

    def _with(self, provider_id: int) -> tuple[int | None, int | None]:
        """Return what `_assignments` would end with after the assignment of a provider."""
        heads = self._heads
        lowest = heads.nearest(provider_id)
        assigned = None
        if self._assignments:
            previous, assigned = self._assignments[-1]
            lowest = heads.lowest_common(lowest, previous)
        if lowest is None:
            return None, None
        if assigned is not None and heads.level[assigned] <= heads.level[lowest]:
            return lowest, assigned
        return lowest, provider_id if provider_id == lowest else None

    def assign(self, demand: int, provider_id: int) -> None:
        if demand in self._demands:
            self._assignments.append(self._with(provider_id))
            self._unassigned &= ~(1 << demand)

    def unassign(self, demand: int, provider_id: int) -> None:
        if demand in self._demands:
            self._assignments.pop()
            self._unassigned |= 1 << demand

    def state(self, depth: int) -> Hashable:
        return self._assignments[-1] if self._assignments else None

    def is_feasible(self) -> bool:
        """Return whether any provider can be the head."""
        return bool(self._heads.level)

    def allowed_suppliers(self, demand: int) -> Sequence[int] | None:
        suppliers = self._combining.suppliers[demand]
        if len(suppliers) < MIN_INDEXED_SUPPLIERS or demand not in self._demands or not self._assignments:
            return None
        if demand not in self._indexes:
            self._indexes[demand] = _SubtreeIndex(suppliers, self._heads, self._combining.deadline)
        index, heads = self._indexes[demand], self._heads
        lowest, assigned = self._assignments[-1]
        remaining = self._unassigned & ~(1 << demand)
        # Either a provider below a head that supplies another demand, or a head that supplies this one.
        allowed: list[range] = []
        for head in heads.upwards(lowest):
            if head == assigned or heads.supplied[head] & remaining:
                allowed = [index.at_or_below(head)]
            elif heads.supplied[head] >> demand & 1:
                allowed.append(index.only(head))
        if sum(map(len, allowed)) > MAX_FOUND_PART * len(suppliers):
            return None
        return index.suppliers_at(allowed)


class _SubtreeIndex:
    """The suppliers of a demand, ordered so that those in the subtree of a head are next to each other."""

    def __init__(self, suppliers: Sequence[int], heads: "_Heads", deadline: Deadline) -> None:
        self._suppliers = suppliers
        self._preorder = heads.preorder
        # Behind each head come the providers whose nearest head it is, then the heads below it.
        keys = array("q")
        for provider_id in deadline.checked(suppliers):
            nearest = heads.nearest(provider_id)
            first = -1 if nearest is None else self._preorder[nearest].start
            keys.append(2 * first + (provider_id != nearest))
        self._positions = array("q", sorted(range(len(keys)), key=keys.__getitem__))
        self._keys = array("q", map(keys.__getitem__, self._positions))

    def at_or_below(self, head: int) -> range:
        """Return the range of the suppliers in the subtree of a head."""
        numbers = self._preorder[head]
        return range(bisect_left(self._keys, 2 * numbers.start), bisect_left(self._keys, 2 * numbers.stop))

    def only(self, head: int) -> range:
        """Return the range of the head itself, which is a supplier."""
        start = bisect_left(self._keys, 2 * self._preorder[head].start)
        return range(start, start + 1)

    def suppliers_at(self, ranges: Iterable[range]) -> list[int]:
        """Return the suppliers in some ranges, in their original order."""
        positions = sorted(self._positions[index] for each in ranges for index in each)
        return [self._suppliers[position] for position in positions]


class _Heads:
    """The providers that can be the head of a subtree for a set of demands."""

    def __init__(self, combining: Combining, demands: Collection[int]) -> None:
        self._path = combining.providers.path
        self.supplied: dict[int, int] = _supplied_by_heads(combining, demands)
        """For each head the demands that it can supply itself, as a bit mask."""
        self._nearest: dict[int, int | None] = {head: head for head in self.supplied}
        """The nearest head at or above each provider that was asked for."""
        self.parent: dict[int, int | None] = {}
        """For each head the next one above it."""
        self.level: dict[int, int] = {}
        """For each head how many are above it."""
        self.supplied_above: dict[int, int] = {}
        """For each head the demands that it or a head above it can supply, as a bit mask."""
        for head in combining.deadline.checked(sorted(self.supplied, key=lambda head: len(self._path(head)))):
            parent = self.parent[head] = self._nearest_of(islice(reversed(self._path(head)), 1, None))
            self.level[head] = 0 if parent is None else self.level[parent] + 1
            above = 0 if parent is None else self.supplied_above[parent]
            self.supplied_above[head] = above | self.supplied[head]

    def nearest(self, provider_id: int) -> int | None:
        """Return the nearest head at or above a provider; None if there is none."""
        if provider_id in self._nearest:
            return self._nearest[provider_id]
        return self._nearest_of(reversed(self._path(provider_id)))

    def _nearest_of(self, ids: Iterable[int]) -> int | None:
        """Return the nearest head among a provider and its ancestors."""
        passed = []
        nearest = None
        for id_ in ids:
            if id_ in self._nearest:
                nearest = self._nearest[id_]
                break
            passed.append(id_)
        self._nearest.update(dict.fromkeys(passed, nearest))
        return nearest

    def lowest_common(self, one: int | None, other: int | None) -> int | None:
        """Return the lowest head at or above two heads; None if there is none."""
        while one != other:
            if one is None or other is None:
                return None
            if self.level[one] >= self.level[other]:
                one, other = self.parent[one], other
            else:
                other = self.parent[other]
        return one

    def upwards(self, head: int | None) -> Iterator[int]:
        """Yield a head and those above it, the topmost last."""
        while head is not None:
            yield head
            head = self.parent[head]

    @cached_property
    def preorder(self) -> dict[int, range]:
        """The numbers of each head and of all heads below it, in preorder."""
        sizes = dict.fromkeys(self.parent, 1)
        for head, parent in reversed(self.parent.items()):
            if parent is not None:
                sizes[parent] += sizes[head]
        numbers: dict[int, range] = {}
        # The next free number below each head, and at the top.
        free: dict[int | None, int] = {None: 0}
        for head, parent in self.parent.items():
            start = free[parent]
            free[parent] += sizes[head]
            free[head] = start + 1
            numbers[head] = range(start, start + sizes[head])
        return numbers


def _supplied_by_heads(combining: Combining, demands: Collection[int]) -> dict[int, int]:
    """Return the possible heads with the demands that each can supply itself, as a bit mask."""
    # Many demands can have the same suppliers.
    masks: dict[int, int] = {}
    for demand in demands:
        key = id(combining.suppliers[demand])
        masks[key] = masks.get(key, 0) | 1 << demand
    suppliers = {id(each): each for each in map(combining.suppliers.__getitem__, demands)}
    covered: set[int] | None = None
    for ids in sorted(suppliers.values(), key=len):
        at_or_above = _at_or_above(combining, ids)
        covered = at_or_above if covered is None else covered & at_or_above
    supplied: dict[int, int] = {}
    for key, ids in suppliers.items():
        for id_ in combining.deadline.checked((covered or set()).intersection(ids)):
            supplied[id_] = supplied.get(id_, 0) | masks[key]
    return supplied


def _at_or_above(combining: Combining, provider_ids: Iterable[int]) -> set[int]:
    """Return the ids of some providers and all their ancestors."""
    found: set[int] = set()
    for provider_id in combining.deadline.checked(provider_ids):
        for id_ in reversed(combining.providers.path(provider_id)):
            if id_ in found:
                break
            found.add(id_)
    return found
