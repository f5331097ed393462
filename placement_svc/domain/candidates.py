"""Combining the suppliers of a tree into allocation candidates (`docs/spec/candidates.md 3`).

A *candidate* takes one option for each demand, such that all of them go together.

Candidates are generated, not collected: a tree with a million of them costs as many as are taken.
"""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache

from placement_svc.domain.constraints import Constraint, Facts, Options, constraints_of
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.demands import Terms
from placement_svc.domain.errors import Invalid

PATIENCE = 300_000
"""Combinations that may fail in a row around one anchor before the request is refused."""

HOPE = 100
"""Combinations that may fail in a row before it is asked whether any can succeed."""

LOOK_AT_CLOCK_EVERY = 1000
"""Combinations that fail in a row between looks at the deadline."""

Candidate = tuple[int, ...]
"""One answer: for each demand the id of the provider that supplies it."""


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
    order = _fewest_first(tuple(map(len, options)))
    constraints = constraints_of(terms, options, order, facts)
    if not constraints:
        return _products(options, order, deadline)
    return _Search(options, order, constraints, deadline).run()


@lru_cache
def _fewest_first(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indexes of numbers in the order of these; most trees have as many options as others."""
    return tuple(sorted(range(len(numbers)), key=numbers.__getitem__))


def _products(options: Options, order: Sequence[int], deadline: Deadline) -> Iterator[Candidate]:
    """Yield every combination, the last demand in `order` changing fastest."""
    places = [order.index(index) for index in range(len(order))]
    for chosen in itertools.product(*(options[index] for index in order)):
        deadline.check()
        yield tuple([chosen[place] for place in places])


class _Search:
    """Depth-first search over the demands of one anchor, in an order of them.

    `dead` are the states from which nothing came: another way to the same state is not followed again.
    """

    def __init__(
        self,
        options: Options,
        order: Sequence[int],
        constraints: Sequence[Constraint],
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
                self.deadline.check()
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
