"""Combining the suppliers of a tree into allocation candidates (`spec/candidates.md 3`).

A *demand* is what one provider must supply whole: a suffixed group, or one resource class of the
unsuffixed group. Around an *anchor* (a root provider) each demand has its *options*, the providers
that can supply it when nothing else is asked. A *candidate* takes one option for each demand, such
that all of them go together.

Candidates are generated, not collected: a tree with a million of them costs as many as are taken.
"""

import functools
import operator
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from placement_svc.domain.errors import Invalid
from placement_svc.domain.groups import CandidatesRequest

PATIENCE = 300_000
"""Combinations that may fail in a row around one anchor before the request is refused."""


class ResourceSummary(NamedTuple):
    """What a provider has of a resource class, and the most that one consumer may take of it.

    There is one for each inventory of each tree in an answer: a tuple costs least.
    """

    capacity: int
    used: int
    max_unit: int

    @property
    def room(self) -> int:
        """The amount that one more consumer can have."""
        return min(self.capacity - self.used, self.max_unit)


class Supplier(NamedTuple):
    """A provider as the search sees it; `path` leads from its root to itself, by ids."""

    id: int
    uuid: str
    parent_uuid: str | None
    root_uuid: str
    path: tuple[int, ...]
    traits: tuple[str, ...]
    resources: Mapping[str, ResourceSummary]

    @property
    def root_id(self) -> int:
        """The id of the root of the provider's tree."""
        return self.path[0]


@dataclass(frozen=True)
class Demand:
    """What one provider must supply whole: amounts by resource class, none if it need only be there."""

    suffix: str
    resources: Mapping[str, int]


@dataclass(frozen=True)
class Terms:
    """What the suppliers of a candidate must meet together.

    `clauses` are the required traits of the unsuffixed group: each is met by any supplier of that
    group. `same_subtrees` are sets of demands, by index. With `one_per_tree` no two suppliers are of
    one tree (before 1.29).
    """

    demands: tuple[Demand, ...]
    clauses: tuple[frozenset[str], ...] = ()
    same_subtrees: tuple[frozenset[int], ...] = ()
    isolate: bool = False
    one_per_tree: bool = False


@dataclass(frozen=True)
class Candidate:
    """One answer: a supplier for each demand."""

    demands: tuple[Demand, ...]
    suppliers: tuple[Supplier, ...]

    def suppliers_of_amounts(self) -> Iterator[Supplier]:
        """Yield those that supply something, and do not only have to be there."""
        for demand, supplier in zip(self.demands, self.suppliers, strict=True):
            if demand.resources:
                yield supplier

    def allocations(self) -> dict[str, dict[str, int]]:
        """Return the amounts to claim, by provider uuid and resource class, added over all groups."""
        amounts: dict[str, dict[str, int]] = {}
        for demand, supplier in zip(self.demands, self.suppliers, strict=True):
            for name, amount in demand.resources.items():
                of_supplier = amounts.setdefault(supplier.uuid, {})
                of_supplier[name] = of_supplier.get(name, 0) + amount
        return amounts

    def mappings(self) -> dict[str, list[str]]:
        """Return the uuids of the providers that satisfy each group, by suffix."""
        uuids: dict[str, dict[str, None]] = {}
        for demand, supplier in zip(self.demands, self.suppliers, strict=True):
            uuids.setdefault(demand.suffix, {})[supplier.uuid] = None
        return {suffix: list(of_group) for suffix, of_group in uuids.items()}


def terms_of(request: CandidatesRequest, one_per_tree: bool) -> Terms:
    """Return what a request demands, its unsuffixed group taken apart by resource class."""
    demands: list[Demand] = []
    for group in request.groups:
        if group.suffix:
            demands.append(Demand(group.suffix, group.resources))
        else:
            demands += [Demand("", {name: amount}) for name, amount in group.resources.items()]
    return Terms(
        demands=tuple(demands),
        clauses=tuple(
            clause for group in request.groups if not group.suffix for clause in group.traits.required
        ),
        same_subtrees=tuple(
            frozenset(index for index, demand in enumerate(demands) if demand.suffix in suffixes)
            for suffixes in request.same_subtrees
            if len(suffixes) > 1
        ),
        isolate=request.isolate,
        one_per_tree=one_per_tree,
    )


def in_turn(generators: Iterable[Iterator[Candidate]]) -> Iterator[Candidate]:
    """Yield one candidate of each generator, then the next of each, until all are exhausted."""
    turn = list(generators)
    while turn:
        going_on = []
        for generator in turn:
            candidate = next(generator, None)
            if candidate is not None:
                yield candidate
                going_on.append(generator)
        turn = going_on


def combine(terms: Terms, options: Sequence[Sequence[Supplier]]) -> Iterator[Candidate]:
    """Yield each candidate that the options of one anchor make, one list of options per demand.

    Raises `Invalid` when very many combinations in a row came to nothing.
    """
    if all(options) and _can_be_isolated(terms, options) and _is_room_for_all(terms, options):
        yield from _Search(terms, options).run()


def _can_be_isolated(terms: Terms, options: Sequence[Sequence[Supplier]]) -> bool:
    """Tell whether all suffixed groups can have a provider of their own at once, if they must.

    This is bipartite matching: a group that finds all its providers taken asks the groups that
    took them to move on.
    """
    if not terms.isolate:
        return True
    taken_by: dict[int, int] = {}

    def place(demand: int, asked: set[int]) -> bool:
        for supplier in options[demand]:
            if supplier.id not in asked:
                asked.add(supplier.id)
                if supplier.id not in taken_by or place(taken_by[supplier.id], asked):
                    taken_by[supplier.id] = demand
                    return True
        return False

    return all(place(index, set()) for index, demand in enumerate(terms.demands) if demand.suffix)


def _is_room_for_all(terms: Terms, options: Sequence[Sequence[Supplier]]) -> bool:
    """Tell whether demands that share their options ask no more in sum than these have in sum."""
    sums: Counter[tuple[str, tuple[int, ...]]] = Counter()
    rooms: dict[tuple[str, tuple[int, ...]], int] = {}
    for demand, suppliers in zip(terms.demands, options, strict=True):
        ids = tuple(supplier.id for supplier in suppliers)
        for name, amount in demand.resources.items():
            if (name, ids) not in rooms:
                rooms[name, ids] = sum(supplier.resources[name].room for supplier in suppliers)
            sums[name, ids] += amount
    return all(amount <= rooms[shared] for shared, amount in sums.items())


@dataclass
class _Search:
    """Depth-first search over the demands of one anchor, fewest options first.

    What is chosen so far is kept in running form, so that every step is judged at once: `taken` are
    the amounts by provider and class, `holders` counts the suffixed demands of each provider. `dead`
    are the states from which nothing came: another way to the same state is not followed again.
    """

    terms: Terms
    options: Sequence[Sequence[Supplier]]
    chosen: dict[int, Supplier] = field(default_factory=dict)
    taken: Counter[tuple[int, str]] = field(default_factory=Counter)
    holders: Counter[int] = field(default_factory=Counter)
    fruitless: int = 0

    def __post_init__(self) -> None:
        """Fix the order of the demands, and what those behind each step could still add."""
        demands = self.terms.demands
        self.order = sorted(range(len(demands)), key=lambda index: len(self.options[index]))
        self.met = {s.id: self._clauses_met(s) for suppliers in self.options for s in suppliers}
        self.all_met = (1 << len(self.terms.clauses)) - 1
        self.dead: set[Hashable] = set()
        # The clauses that the demands from each step on could still meet.
        self.may_meet = [0]
        for index in reversed(self.order):
            met = self.may_meet[-1]
            if not demands[index].suffix:
                met = functools.reduce(operator.or_, (self.met[s.id] for s in self.options[index]), met)
            self.may_meet.append(met)
        self.may_meet.reverse()

    @functools.cached_property
    def may_take(self) -> list[frozenset[tuple[int, str]]]:
        """What the demands from each step on could take, as providers and classes."""
        may_take = [frozenset[tuple[int, str]]()]
        for index in reversed(self.order):
            names = self.terms.demands[index].resources
            may_take.append(may_take[-1].union((s.id, name) for s in self.options[index] for name in names))
        return may_take[::-1]

    def _clauses_met(self, supplier: Supplier) -> int:
        """Return which clauses the traits of `supplier` meet, as a bit mask."""
        if not self.terms.clauses:
            return 0
        held = set(supplier.traits)
        return sum(1 << n for n, clause in enumerate(self.terms.clauses) if not clause.isdisjoint(held))

    def run(self) -> Iterator[Candidate]:
        """Yield every candidate."""
        depth, found = 0, [0]
        untried = [iter(self.options[self.order[0]])]
        while untried:
            index = self.order[depth]
            self._put_back(index)
            supplier = next(untried[-1], None)
            if supplier is None:
                untried.pop()
                if not found.pop():
                    if len(self.dead) < PATIENCE:
                        self.dead.add(self._state(depth))
                elif found:
                    found[-1] += 1
                depth -= 1
                continue
            self.fruitless += 1
            if self.fruitless > PATIENCE:
                raise Invalid(
                    "These request groups can be combined in too many ways that all fail:"
                    " ask for fewer groups, or for one group of a larger amount."
                )
            if not self._take(index, supplier):
                continue
            if depth + 1 == len(self.order):
                self.fruitless = 0
                found[-1] += 1
                suppliers = tuple(self.chosen[i] for i in range(len(self.order)))
                yield Candidate(self.terms.demands, suppliers)
            elif not (self.dead and self._state(depth + 1) in self.dead):
                depth += 1
                found.append(0)
                untried.append(iter(self.options[self.order[depth]]))

    def _take(self, index: int, supplier: Supplier) -> bool:
        """Choose `supplier` for a demand if it goes together with what is chosen already."""
        demand = self.terms.demands[index]
        if self.terms.isolate and demand.suffix and self.holders[supplier.id]:
            return False
        for name, amount in demand.resources.items():
            if self.taken[supplier.id, name] + amount > supplier.resources[name].room:
                return False
        if self.terms.one_per_tree and any(
            other is not supplier and other.root_id == supplier.root_id for other in self.chosen.values()
        ):
            return False
        self._choose(index, supplier, +1)
        if self._may_be_covered(index) and self._may_meet_clauses():
            return True
        self._put_back(index)
        return False

    def _put_back(self, index: int) -> None:
        if index in self.chosen:
            self._choose(index, self.chosen[index], -1)

    def _choose(self, index: int, supplier: Supplier, sign: int) -> None:
        demand = self.terms.demands[index]
        for name, amount in demand.resources.items():
            self.taken[supplier.id, name] += sign * amount
        if demand.suffix:
            self.holders[supplier.id] += sign
        if sign > 0:
            self.chosen[index] = supplier
        else:
            del self.chosen[index]

    def _may_be_covered(self, index: int) -> bool:
        """Tell whether each same_subtree of a demand just chosen for can still come true."""
        return all(self._has_cover(subtree) for subtree in self.terms.same_subtrees if index in subtree)

    def _has_cover(self, subtree: frozenset[int]) -> bool:
        """Tell whether one of these demands has, or may get, a provider above all those chosen."""
        above = self._common_path(subtree)
        return any(
            self.chosen[index].id in above
            if index in self.chosen
            else any(supplier.id in above for supplier in self.options[index])
            for index in subtree
        )

    def _common_path(self, subtree: frozenset[int]) -> list[int]:
        """Return the ids of the providers that are above (or are) all those chosen for `subtree`."""
        paths = [self.chosen[index].path for index in subtree if index in self.chosen]
        return [steps[0] for steps in zip(*paths, strict=False) if len(set(steps)) == 1]

    def _may_meet_clauses(self) -> bool:
        """Tell whether the chosen and the coming suppliers of the unsuffixed group meet all clauses."""
        return self._met_so_far() | self.may_meet[len(self.chosen)] == self.all_met

    def _met_so_far(self) -> int:
        chosen = (self.met[s.id] for index, s in self.chosen.items() if not self.terms.demands[index].suffix)
        return functools.reduce(operator.or_, chosen, 0)

    def _state(self, depth: int) -> Hashable:
        """Return all that the demands from `depth` on can notice of those before."""
        taken = frozenset((stock, self.taken[stock]) for stock in self.may_take[depth] if self.taken[stock])
        holders = frozenset(+self.holders) if self.terms.isolate else None
        trees = frozenset(s.id for s in self.chosen.values()) if self.terms.one_per_tree else None
        covers = []
        for subtree in self.terms.same_subtrees:
            above = self._common_path(subtree)
            within = (s.id for index, s in self.chosen.items() if index in subtree and s.id in above)
            covers.append((tuple(above), frozenset(within), subtree.isdisjoint(self.chosen)))
        return depth, taken, holders, trees, self._met_so_far(), tuple(covers)
