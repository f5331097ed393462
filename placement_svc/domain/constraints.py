"""What goes together: the conditions on several suppliers of one candidate (`docs/spec/candidates.md 3`).

Around an *anchor* (a root provider) each demand has its *options*, the providers that can supply it
when nothing else is asked. Suppliers are chosen for one demand after the other, and every constraint
judges each step.
"""

import functools
import operator
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Protocol

from placement_svc.domain.demands import Terms

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


class Constraint(ABC):
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


def constraints_of(terms: Terms, options: Options, order: Sequence[int], facts: Facts) -> list[Constraint]:
    """Return the constraints that can make a difference, for demands that are chosen in `order`."""
    constraints: list[Constraint] = []
    if terms.summed:
        constraints.append(_Sums(terms, options, order, facts))
    if terms.isolate:
        constraints.append(_Isolation(terms, options))
    for subtree in terms.same_subtree:
        constraints.append(_Subtree(subtree, options, facts))
    if terms.clauses and not _are_met_by_one(terms, options, facts):
        constraints.append(_Clauses(terms, options, order, facts))
    if terms.one_per_tree:
        constraints.append(_OnePerTree(facts))
    return constraints


class _Sums(Constraint):
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


class _Isolation(Constraint):
    """No two suffixed demands have the same supplier."""

    def __init__(self, terms: Terms, options: Options) -> None:
        self.suffixed = terms.suffixed
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


class _Subtree(Constraint):
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
        above = frozenset(self._above(provider_id))
        if provider_id in above or not above.isdisjoint(self.chosen.values()):
            return True
        to_come = self.demands.difference(self.chosen, (demand,))
        return not all(above.isdisjoint(self.options[index]) for index in to_come)

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


def _are_met_by_one(terms: Terms, options: Options, facts: Facts) -> bool:
    """Tell whether every option of that unsuffixed demand which has the fewest meets all clauses.

    So it is where hosts have no children, or need them for other groups only.
    """
    unsuffixed = (ids for ids, suffixed in zip(options, terms.suffixed, strict=True) if not suffixed)
    fewest = min(unsuffixed, key=len, default=())
    return bool(fewest) and not any(
        clause.isdisjoint(facts.trait_ids(id_)) for id_ in fewest for clause in terms.clauses
    )


class _Clauses(Constraint):
    """The suppliers of the unsuffixed group together have a trait of each clause."""

    def __init__(self, terms: Terms, options: Options, order: Sequence[int], facts: Facts) -> None:
        self.clauses = terms.clauses
        self.suffixed = terms.suffixed
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


class _OnePerTree(Constraint):
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
