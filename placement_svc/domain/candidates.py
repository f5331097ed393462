"""Combining the suppliers of a tree into allocation candidates (`spec/candidates.md 3`).

A *demand* is what one provider must supply whole: a suffixed group, or one resource class of the
unsuffixed group. Around an *anchor* (a root provider) each demand has its *options*, the providers
that can supply it when nothing else is asked. A *candidate* takes one option for each demand, such
that all of them go together.

Candidates are generated, not collected: a tree with a million of them costs as many as are taken.
"""

import functools
import itertools
import operator
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from placement_svc.domain.deadline import Deadline
from placement_svc.domain.errors import Invalid
from placement_svc.domain.groups import CandidatesRequest

PATIENCE = 300_000
"""Combinations that may fail in a row around one anchor before the request is refused."""

HOPE = 100
"""Combinations that may fail in a row before it is asked whether any can succeed."""

LOOK_AT_CLOCK_EVERY = 1000
"""Combinations that fail in a row between looks at the deadline."""

Candidate = tuple[int, ...]
"""One answer: for each demand the id of the provider that supplies it."""

Options = Sequence[Sequence[int]]
"""For each demand the ids of the providers around one anchor that can supply it."""


class Facts(Protocol):
    """What combining asks about the providers among the options, by id."""

    def path(self, provider_id: int) -> tuple[int, ...]:
        """Return the ids from the provider's root down to itself."""

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        """Return the ids of the provider's traits."""

    def room(self, provider_id: int, resource_class: str) -> int:
        """Return the most that one more consumer can get of a class of `Terms.summed`."""


@dataclass(frozen=True)
class Demand:
    """What one provider must supply whole: amounts by resource class, none if it need only be there."""

    suffix: str
    resources: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Terms:
    """What the suppliers of a candidate must meet together.

    `clauses` are the required traits of the unsuffixed group, by id: each is met by any supplier of
    that group. `same_subtrees` are sets of demands, by index. With `one_per_tree` no two suppliers are
    of one tree (before 1.29).
    """

    demands: tuple[Demand, ...]
    clauses: tuple[frozenset[int], ...] = ()
    same_subtrees: tuple[frozenset[int], ...] = ()
    isolate: bool = False
    one_per_tree: bool = False

    @functools.cached_property
    def summed(self) -> frozenset[str]:
        """The resource classes that one provider may have to supply to several demands."""
        suffixed = Counter(name for demand in self.demands if demand.suffix for name, _ in demand.resources)
        unsuffixed = {name for demand in self.demands if not demand.suffix for name, _ in demand.resources}
        # Groups that are kept apart share no provider with each other.
        least = len(self.demands) if self.isolate else 1
        return frozenset(name for name, n in suffixed.items() if n > least or name in unsuffixed)


def terms_of(
    request: CandidatesRequest, clauses: tuple[frozenset[int], ...] = (), *, one_per_tree: bool = False
) -> Terms:
    """Return what a request demands, its unsuffixed group taken apart by resource class.

    `clauses` are the required traits of that group, by id.
    """
    demands: list[Demand] = []
    for group in request.groups:
        resources = tuple(group.resources.items())
        if group.suffix:
            demands.append(Demand(group.suffix, resources))
        else:
            demands += [Demand("", (resource,)) for resource in resources]
    return Terms(
        demands=tuple(demands),
        clauses=clauses,
        same_subtrees=tuple(
            frozenset(index for index, demand in enumerate(demands) if demand.suffix in suffixes)
            for suffixes in request.same_subtrees
            if len(suffixes) > 1
        ),
        isolate=request.isolate,
        one_per_tree=one_per_tree,
    )


def allocations_of(demands: Sequence[Demand], uuids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the amounts to claim, by provider uuid and resource class, added over all demands.

    `uuids` are those of the suppliers of the demands.
    """
    amounts: dict[str, dict[str, int]] = {}
    for demand, uuid in zip(demands, uuids, strict=True):
        for name, amount in demand.resources:
            of_supplier = amounts.setdefault(uuid, {})
            of_supplier[name] = of_supplier.get(name, 0) + amount
    return amounts


def mappings_of(demands: Sequence[Demand], uuids: Sequence[str]) -> dict[str, list[str]]:
    """Return the uuids of the providers that satisfy each group, by suffix."""
    mappings: dict[str, list[str]] = {}
    for demand, uuid in zip(demands, uuids, strict=True):
        of_group = mappings.setdefault(demand.suffix, [])
        if uuid not in of_group:
            of_group.append(uuid)
    return mappings


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


def combine(terms: Terms, options: Options, facts: Facts, deadline: Deadline) -> Iterator[Candidate]:
    """Yield each candidate that the options of one anchor make.

    Raises `Invalid` when very many combinations in a row came to nothing, and `Unavailable` when they
    take longer than `deadline`.
    """
    if not all(options):
        return iter(())
    # Fewest options first.
    order = sorted(range(len(options)), key=lambda index: len(options[index]))
    constraints = list(_constraints(terms, options, order, facts))
    if not constraints:
        return _products(options, order)
    return _Search(options, order, constraints, deadline).run()


def _products(options: Options, order: Sequence[int]) -> Iterator[Candidate]:
    """Yield every combination, the last demand in `order` changing fastest."""
    places = [order.index(index) for index in range(len(order))]
    for chosen in itertools.product(*(options[index] for index in order)):
        yield tuple(chosen[place] for place in places)


class _Constraint(ABC):
    """A condition on several suppliers, judged at every step of choosing one demand after the other."""

    @abstractmethod
    def admits(self, demand: int, provider_id: int) -> bool:
        """Tell whether a provider goes together, for a demand, with what is chosen already."""

    @abstractmethod
    def choose(self, demand: int, provider_id: int) -> None:
        """Take note of a choice."""

    @abstractmethod
    def put_back(self, demand: int, provider_id: int) -> None:
        """Undo the last choice."""

    @abstractmethod
    def state(self, depth: int) -> Hashable:
        """Return all that the demands from `depth` on can notice of those before."""

    def can_be_met(self) -> bool:
        """Tell, before anything is chosen, whether it is at all possible; in doubt it is."""
        return True


def _constraints(terms: Terms, options: Options, order: Sequence[int], facts: Facts) -> Iterator[_Constraint]:
    if terms.summed:
        yield _Sums(terms, options, order, facts)
    if terms.isolate:
        yield _Isolation(terms, options)
    for subtree in terms.same_subtrees:
        yield _Subtree(subtree, options, facts)
    if terms.clauses:
        yield _Clauses(terms, options, order, facts)
    if terms.one_per_tree:
        yield _OnePerTree(facts)


class _Sums(_Constraint):
    """No provider supplies more of a class, to all demands together, than it has room for."""

    def __init__(self, terms: Terms, options: Options, order: Sequence[int], facts: Facts) -> None:
        self.amounts = [
            [(name, amount) for name, amount in demand.resources if name in terms.summed]
            for demand in terms.demands
        ]
        self.options = options
        self.order = order
        self.facts = facts
        self.taken: defaultdict[tuple[int, str], int] = defaultdict(int)

    def admits(self, demand: int, provider_id: int) -> bool:
        return all(
            self.taken[provider_id, name] + amount <= self.facts.room(provider_id, name)
            for name, amount in self.amounts[demand]
        )

    def choose(self, demand: int, provider_id: int) -> None:
        for name, amount in self.amounts[demand]:
            self.taken[provider_id, name] += amount

    def put_back(self, demand: int, provider_id: int) -> None:
        for name, amount in self.amounts[demand]:
            self.taken[provider_id, name] -= amount

    def state(self, depth: int) -> Hashable:
        return frozenset((stock, self.taken[stock]) for stock in self.wanted[depth] if self.taken[stock])

    @functools.cached_property
    def wanted(self) -> list[frozenset[tuple[int, str]]]:
        """What the demands from each step on could take, as providers and classes."""
        wanted = [frozenset[tuple[int, str]]()]
        for index in reversed(self.order):
            names = [name for name, _ in self.amounts[index]]
            wanted.append(wanted[-1].union((id_, name) for id_ in self.options[index] for name in names))
        return wanted[::-1]

    def can_be_met(self) -> bool:
        """Tell whether demands that share their options ask no more in sum than these have in sum."""
        sums: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for amounts, ids in zip(self.amounts, self.options, strict=True):
            for name, amount in amounts:
                sums[name, tuple(ids)] += amount
        return all(
            amount <= sum(self.facts.room(id_, name) for id_ in ids) for (name, ids), amount in sums.items()
        )


class _Isolation(_Constraint):
    """No two suffixed demands have the same supplier."""

    def __init__(self, terms: Terms, options: Options) -> None:
        self.suffixed = [bool(demand.suffix) for demand in terms.demands]
        self.options = options
        self.holders: set[int] = set()

    def admits(self, demand: int, provider_id: int) -> bool:
        return not (self.suffixed[demand] and provider_id in self.holders)

    def choose(self, demand: int, provider_id: int) -> None:
        if self.suffixed[demand]:
            self.holders.add(provider_id)

    def put_back(self, demand: int, provider_id: int) -> None:
        if self.suffixed[demand]:
            self.holders.remove(provider_id)

    def state(self, depth: int) -> Hashable:
        return frozenset(self.holders)

    def can_be_met(self) -> bool:
        """Tell whether all suffixed demands can have a supplier of their own at once.

        This is bipartite matching: a demand that finds all its options taken asks the demands that
        took them to move on.
        """
        taken_by: dict[int, int] = {}

        def place(demand: int, asked: set[int]) -> bool:
            for id_ in self.options[demand]:
                if id_ not in asked:
                    asked.add(id_)
                    if id_ not in taken_by or place(taken_by[id_], asked):
                        taken_by[id_] = demand
                        return True
            return False

        return all(place(index, set()) for index, suffixed in enumerate(self.suffixed) if suffixed)


class _Subtree(_Constraint):
    """One of the suppliers of some demands is above all the others, or is all of them."""

    def __init__(self, demands: frozenset[int], options: Options, facts: Facts) -> None:
        self.demands = demands
        self.options = options
        self.facts = facts
        self.chosen: dict[int, int] = {}
        self.above: list[tuple[int, ...]] = []
        """After each choice, the ids of the providers that are above (or are) all those chosen."""

    def admits(self, demand: int, provider_id: int) -> bool:
        if demand not in self.demands or not self.chosen:
            return True
        above = self._above(provider_id)
        return (
            provider_id in above
            or any(id_ in above for id_ in self.chosen.values())
            or any(
                id_ in above
                for index in self.demands
                if index != demand and index not in self.chosen
                for id_ in self.options[index]
            )
        )

    def _above(self, provider_id: int) -> tuple[int, ...]:
        path = self.facts.path(provider_id)
        if not self.above:
            return path
        above = self.above[-1]
        alike = 0
        for one, other in zip(above, path, strict=False):
            if one != other:
                break
            alike += 1
        return above[:alike]

    def choose(self, demand: int, provider_id: int) -> None:
        if demand in self.demands:
            self.above.append(self._above(provider_id))
            self.chosen[demand] = provider_id

    def put_back(self, demand: int, provider_id: int) -> None:
        if demand in self.demands:
            self.above.pop()
            del self.chosen[demand]

    def state(self, depth: int) -> Hashable:
        if not self.chosen:
            return None
        above = self.above[-1]
        return above, frozenset(id_ for id_ in self.chosen.values() if id_ in above)


class _Clauses(_Constraint):
    """The suppliers of the unsuffixed group together have a trait of each clause."""

    def __init__(self, terms: Terms, options: Options, order: Sequence[int], facts: Facts) -> None:
        self.clauses = terms.clauses
        self.suffixed = [bool(demand.suffix) for demand in terms.demands]
        self.facts = facts
        self.met_after = [0]
        """Which clauses are met after each choice, as bit masks."""
        # Which the demands from each step on could still meet.
        self.may_meet = [0]
        for index in reversed(order):
            ids = () if self.suffixed[index] else options[index]
            met = map(self._met_by, ids)
            self.may_meet.append(functools.reduce(operator.or_, met, self.may_meet[-1]))
        self.may_meet.reverse()

    def _met_by(self, provider_id: int) -> int:
        """Return which clauses the traits of a provider meet, as a bit mask."""
        held = self.facts.trait_ids(provider_id)
        return sum(1 << n for n, clause in enumerate(self.clauses) if not clause.isdisjoint(held))

    def _met_with(self, demand: int, provider_id: int) -> int:
        met = self.met_after[-1]
        return met if self.suffixed[demand] else met | self._met_by(provider_id)

    def admits(self, demand: int, provider_id: int) -> bool:
        to_come = self.may_meet[len(self.met_after)]
        return self._met_with(demand, provider_id) | to_come == (1 << len(self.clauses)) - 1

    def choose(self, demand: int, provider_id: int) -> None:
        self.met_after.append(self._met_with(demand, provider_id))

    def put_back(self, demand: int, provider_id: int) -> None:
        self.met_after.pop()

    def state(self, depth: int) -> Hashable:
        return self.met_after[-1]


class _OnePerTree(_Constraint):
    """All suppliers of one tree are one provider."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.chosen: list[tuple[int, int]] = []
        """The root and the id of each provider chosen."""

    def admits(self, demand: int, provider_id: int) -> bool:
        root_id = self.facts.path(provider_id)[0]
        return all(root != root_id or id_ == provider_id for root, id_ in self.chosen)

    def choose(self, demand: int, provider_id: int) -> None:
        self.chosen.append((self.facts.path(provider_id)[0], provider_id))

    def put_back(self, demand: int, provider_id: int) -> None:
        self.chosen.pop()

    def state(self, depth: int) -> Hashable:
        return frozenset(self.chosen)


class _Search:
    """Depth-first search over the demands of one anchor, in an order of them.

    `dead` are the states from which nothing came: another way to the same state is not followed again.
    """

    def __init__(
        self,
        options: Options,
        order: Sequence[int],
        constraints: Sequence[_Constraint],
        deadline: Deadline,
    ) -> None:
        self.options = options
        self.order = order
        self.constraints = constraints
        self.deadline = deadline
        self.chosen = [0] * len(order)
        self.dead: set[Hashable] = set()
        self.fruitless = 0
        self.may_fail = min(HOPE, PATIENCE)
        """How many combinations may still fail in a row before something is done about it."""

    def run(self) -> Iterator[Candidate]:
        """Yield every candidate."""
        last = len(self.order) - 1
        untried = [iter(self.options[self.order[0]])]
        found = [0]
        while untried:
            depth = len(untried) - 1
            demand = self.order[depth]
            provider_id = self._next_admitted(demand, untried[-1])
            if provider_id is None:
                untried.pop()
                if not found.pop():
                    if len(self.dead) < PATIENCE:
                        self.dead.add(self._state(depth))
                elif found:
                    found[-1] += 1
                if untried:
                    self._put_back(self.order[depth - 1])
                continue
            self.chosen[demand] = provider_id
            if depth == last:
                self.fruitless = 0
                found[-1] += 1
                yield tuple(self.chosen)
                continue
            for constraint in self.constraints:
                constraint.choose(demand, provider_id)
            if self.dead and self._state(depth + 1) in self.dead:
                self._put_back(demand)
            else:
                found.append(0)
                untried.append(iter(self.options[self.order[depth + 1]]))

    def _next_admitted(self, demand: int, untried: Iterator[int]) -> int | None:
        """Return the next provider that goes together with what is chosen; None if there is no more hope."""
        for provider_id in untried:
            self.fruitless += 1
            if self.fruitless % LOOK_AT_CLOCK_EVERY == 0:
                self.deadline.check()
            if self.fruitless > self.may_fail and not self._goes_on():
                return None
            for constraint in self.constraints:
                if not constraint.admits(demand, provider_id):
                    break
            else:
                return provider_id
        return None

    def _put_back(self, demand: int) -> None:
        for constraint in self.constraints:
            constraint.put_back(demand, self.chosen[demand])

    def _goes_on(self) -> bool:
        """Tell whether there is hope; raises `Invalid` when patience is at an end."""
        if not all(constraint.can_be_met() for constraint in self.constraints):
            return False
        if self.fruitless > PATIENCE:
            raise Invalid(
                "These request groups can be combined in too many ways that all fail:"
                " ask for fewer groups, or for one group of a larger amount."
            )
        self.may_fail = PATIENCE
        return True

    def _state(self, depth: int) -> Hashable:
        return depth, *(constraint.state(depth) for constraint in self.constraints)
