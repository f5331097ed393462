"""The constraint of `same_subtree` (`docs/spec/candidates.md 3.7`).

One supplier of a set of demands must be an ancestor of all others, or equal to them: the *head* of a subtree.
Only a provider that supplies one of the demands, and at or below which each of them has a supplier, can be
the head. The search never enters a subtree without such a provider.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain

from placement_svc.domain.combining.interfaces import Combining, Constraint, SuppliersByDemand
from placement_svc.domain.combining.shared_lists import distinct_lists
from placement_svc.domain.demands import CombinationRules
from placement_svc.domain.execution.deadline import Deadline

PathLookup = Callable[[int], tuple[int, ...]]
"""The function that returns the ids from a provider's root down to itself."""

MAX_UNPREPARED_SUPPLIERS = 64
"""The sum of the numbers of suppliers around an anchor up to which no index is made."""

MIN_INDEXED_SUPPLIERS = 32
"""The number of suppliers of a demand from which on an index finds those in a subtree."""

MAX_FOUND_PART = 1 / 4
"""The part of a demand's suppliers above which trying all of them is cheaper than using the index."""


def same_subtree_constraints(combining: Combining) -> Iterator[Constraint]:
    """Return the constraint of each `same_subtree`.

    Raises `Unavailable` when their preparation exceeds the deadline.
    """
    is_small = sum(map(len, combining.suppliers)) <= MAX_UNPREPARED_SUPPLIERS
    kind = _UnpreparedConstraint if is_small else _PreparedConstraint
    return (kind(combining, demands) for demands in combining.rules.same_subtree)


def have_head(provider_ids: Iterable[int], path: PathLookup) -> bool:
    """Return whether one of the providers is an ancestor of all others, or equal to them."""
    paths = list(map(path, provider_ids))
    head = min(paths, key=len)
    return all(path[: len(head)] == head for path in paths)


def suppliers_in_subtrees(
    demands: Collection[int],
    suppliers: SuppliersByDemand,
    path: PathLookup,
    deadline: Deadline,
) -> SuppliersByDemand:
    """Return the suppliers around an anchor without those that the `same_subtree` of `demands` excludes.

    These have no possible head at or above them, whichever suppliers the other demands have.
    """
    lists = distinct_lists([suppliers[demand] for demand in demands])
    heads = _possible_heads(lists, path, deadline)
    inside: dict[int, Sequence[int]] = {}
    for ids in lists:
        deadline.check()
        inside[id(ids)] = tuple([id_ for id_ in ids if not heads.isdisjoint(path(id_))])
    left = list(suppliers)
    for demand in demands:
        left[demand] = inside[id(suppliers[demand])]
    return tuple(left)


def in_subtrees(
    rules: CombinationRules, suppliers: SuppliersByDemand, path: PathLookup, deadline: Deadline
) -> SuppliersByDemand:
    """Return the suppliers around an anchor without those that some `same_subtree` excludes.

    Often each demand has a single one left, and the search is over. If there are many, they are returned as
    they are: the constraints then have indexes, which take longer to prepare.
    """
    if not rules.same_subtree:
        return suppliers
    counts = tuple(map(len, suppliers))
    if max(counts) > 1 and sum(counts) <= MAX_UNPREPARED_SUPPLIERS:
        for demands in rules.same_subtree:
            suppliers = suppliers_in_subtrees(demands, suppliers, path, deadline)
    return suppliers


class _UnpreparedConstraint(Constraint):
    """The constraint without any preparation, which would take longer than combining the few suppliers."""

    def __init__(self, combining: Combining, demands: Collection[int]) -> None:
        self._combining = combining
        self._suppliers = combining.suppliers
        self._path = combining.providers.path
        self._demands = demands
        self._assigned: dict[int, int] = {}
        """The assigned providers, by demand."""
        self._common_paths: list[tuple[int, ...]] = []
        """After each assignment, the common ancestors (or selves) of all assigned providers, root first."""

    def accepts(self, candidate: Sequence[int]) -> bool:
        return have_head([candidate[demand] for demand in self._demands], self._path)

    def allows(self, demand: int, provider_id: int) -> bool:
        if demand not in self._demands or not self._assigned:
            return True
        common = frozenset(self._common_path_with(provider_id))
        if provider_id in common or not common.isdisjoint(self._assigned.values()):
            return True
        return not all(
            common.isdisjoint(self._suppliers[other])
            for other in self._demands
            if other != demand and other not in self._assigned
        )

    def _common_path_with(self, provider_id: int) -> tuple[int, ...]:
        path = self._path(provider_id)
        if not self._common_paths:
            return path
        common = self._common_paths[-1]
        length = 0
        for one, other in zip(common, path, strict=False):
            if one != other:
                break
            length += 1
        return common[:length]

    def assign(self, demand: int, provider_id: int) -> None:
        if demand in self._demands:
            self._common_paths.append(self._common_path_with(provider_id))
            self._assigned[demand] = provider_id

    def unassign(self, demand: int, provider_id: int) -> None:
        if demand in self._demands:
            self._common_paths.pop()
            del self._assigned[demand]

    def state(self, depth: int) -> Hashable:
        if not self._assigned:
            return None
        common = self._common_paths[-1]
        assigned = self._assigned.values()
        return common[-1:], next((id_ for id_ in common if id_ in assigned), None)

    def is_feasible(self) -> bool:
        """Return whether any provider can be the head."""
        return bool(_supplied_by_heads(self._combining, self._demands))


class _PreparedConstraint(Constraint):
    """The constraint with indexes, which bound the time of each step.

    As far as this constraint is concerned, assignments can be completed if all their providers are at or
    below a possible head that is one of them or can supply one of the other demands.
    """

    finds_suppliers = True

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
        return bool(self._heads.supplied)

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
        self._deadline = combining.deadline
        self.supplied = _supplied_by_heads(combining, demands)
        """For each head the demands that it can supply itself, as a bit mask."""
        self.parent: dict[int, int | None] = {}
        """For each head that was described the next one above it."""
        self.level: dict[int, int] = {}
        """For each head that was described how many are above it."""
        self.supplied_above: dict[int, int] = {}
        """For each head that was described the demands that it or a head above can supply, as a bit mask."""
        self._nearest: dict[int, int | None] = {}

    def nearest(self, provider_id: int) -> int | None:
        """Return the nearest head at or above a provider, and describe it; None if there is none."""
        if provider_id not in self._nearest:
            path = self._path(provider_id)
            nearest = next(filter(self.supplied.__contains__, reversed(path)), None)
            self._nearest[provider_id] = nearest
            if nearest is not None and nearest not in self.level:
                self._describe(path)
        return self._nearest[provider_id]

    def _describe(self, path: tuple[int, ...]) -> None:
        """Describe the heads on a path."""
        parent = None
        for head in filter(self.supplied.__contains__, path):
            if head not in self.level:
                self.parent[head] = parent
                self.level[head] = 0 if parent is None else self.level[parent] + 1
                above = 0 if parent is None else self.supplied_above[parent]
                self.supplied_above[head] = above | self.supplied[head]
            parent = head

    @cached_property
    def preorder(self) -> dict[int, range]:
        """The numbers of each head and of all heads below it, in preorder."""
        for head in self._deadline.checked(self.supplied):
            self.nearest(head)
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


def _supplied_by_heads(combining: Combining, demands: Collection[int]) -> dict[int, int]:
    """Return the possible heads with the demands that each can supply itself, as a bit mask."""
    # Many demands can have the same suppliers.
    lists: dict[int, Sequence[int]] = {}
    masks: dict[int, int] = {}
    for demand in demands:
        ids = combining.suppliers[demand]
        lists[id(ids)] = ids
        masks[id(ids)] = masks.get(id(ids), 0) | 1 << demand
    heads = _possible_heads(lists.values(), combining.providers.path, combining.deadline)
    supplied: dict[int, int] = {}
    for key, ids in lists.items():
        combining.deadline.check()
        for id_ in heads.intersection(ids):
            supplied[id_] = supplied.get(id_, 0) | masks[key]
    needed = combining.rules.least_suppliers(demands)
    return _with_enough_suppliers(combining, supplied, lists.values(), needed) if needed > 1 else supplied


def _possible_heads(lists: Collection[Sequence[int]], path: PathLookup, deadline: Deadline) -> set[int]:
    """Return those of the suppliers at or below which there is a supplier of each list."""
    heads = set(chain.from_iterable(lists))
    for ids in lists:
        heads.intersection_update(chain.from_iterable(map(path, deadline.checked(ids))))
    return heads


def _with_enough_suppliers(
    combining: Combining, supplied: dict[int, int], lists: Iterable[Sequence[int]], needed: int
) -> dict[int, int]:
    """Return those of `supplied` in whose subtree there are so many different suppliers."""
    counts = Counter[int]()
    for provider_id in combining.deadline.checked(set[int]().union(*lists)):
        counts.update(filter(supplied.__contains__, combining.providers.path(provider_id)))
    return {id_: mask for id_, mask in supplied.items() if counts[id_] >= needed}
