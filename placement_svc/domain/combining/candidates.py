"""Combining the suppliers in a tree into allocation candidates (`docs/spec/candidates.md 3`).

A *candidate* names one supplier for each demand, such that all constraints hold.

Candidates are generated on demand: the cost depends on how many are taken, not on how many exist.
"""

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from sys import getsizeof

from placement_svc.domain.combining.constraints import are_isolated, constraints_of
from placement_svc.domain.combining.interfaces import (
    Combining,
    Constraint,
    ProviderLookup,
    SuppliersByDemand,
    TreeSuppliers,
)
from placement_svc.domain.combining.same_subtree import have_head, in_subtrees
from placement_svc.domain.combining.split_suppliers import PART_SIZE, SplitSupplier
from placement_svc.domain.combining.splitting import supplier_chunks
from placement_svc.domain.demands import CombinationRules
from placement_svc.domain.errors import Invalid
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget

MAX_TRIED_SUPPLIERS = 300_000
"""Suppliers that may be tried around one anchor since its last candidate, before the request is refused."""

FEASIBILITY_CHECK_AFTER = 100
"""Suppliers tried since the last candidate, after which a check tells whether any candidate is possible."""

CHECK_DEADLINE_EVERY = 10
"""Suppliers tried between two checks of the deadline."""

SEARCH_SIZE = 2000
"""Bytes of memory that the search around an anchor needs for itself and its constraints, approximately."""

STEP_SIZE = 200
"""Bytes of memory that it needs for each demand, approximately."""

STATE_SIZE = 200
"""Bytes of memory that a failed state needs besides its parts, approximately."""

ITEM_SIZE = 150
"""Bytes of memory that an item of a set in a failed state needs, approximately."""

Candidate = tuple[int, ...]
"""An allocation candidate: for each demand the id of the provider that supplies it, or a `SplitSupplier`."""


def candidate_size(candidate: Candidate) -> int:
    """Return how many bytes of memory a candidate without splits needs in a list or set, approximately."""
    return 150 + 8 * len(candidate)


def _split_candidate_size(candidate: Candidate) -> int:
    """Return the same for a candidate that may have splits, whose parts it needs too."""
    parts = sum(len(each.parts) for each in candidate if isinstance(each, SplitSupplier))
    return candidate_size(candidate) + PART_SIZE * parts


def size_function(rules: CombinationRules) -> Callable[[Candidate], int]:
    """Return the function that returns how many bytes a candidate needs in a list, approximately."""
    return _split_candidate_size if rules.splittable else candidate_size


def reserving(
    candidates: Iterable[Candidate], rules: CombinationRules, memory: MemoryBudget
) -> Iterator[Candidate]:
    """Yield the candidates, and reserve the memory that keeping each of them needs."""
    size = size_function(rules)
    for candidate in candidates:
        memory.reserve(size(candidate))
        yield candidate


def round_robin(generators: Iterable[Iterator[Candidate]]) -> Iterator[Candidate]:
    """Yield one candidate of each generator, then the next of each, until all are exhausted."""
    remaining = list(generators)
    while remaining:
        unfinished = []
        for generator in remaining:
            candidate = next(generator, None)
            if candidate is not None:
                yield candidate
                unfinished.append(generator)
        remaining = unfinished


def combine_around(tree: TreeSuppliers) -> Iterator[Candidate]:
    """Yield each candidate around an anchor, also those in which several providers supply a class.

    Raises what `combine` raises.
    """
    _, rules, suppliers, providers, deadline, memory = tree
    if not rules.splittable:
        return combine(rules, suppliers, providers, deadline, memory)
    return itertools.chain.from_iterable(
        combine(rules, chunk, providers, deadline, memory) for chunk in supplier_chunks(tree)
    )


def combine(
    rules: CombinationRules,
    suppliers: SuppliersByDemand,
    providers: ProviderLookup,
    deadline: Deadline,
    memory: MemoryBudget,
) -> Iterator[Candidate]:
    """Yield each candidate around one anchor, with one of the suppliers for each demand.

    Raises `Invalid` when more than `MAX_TRIED_SUPPLIERS` are tried in vain or `memory` does not suffice, and
    `Unavailable` when the combining exceeds `deadline`.
    """
    deadline.check()
    suppliers = in_subtrees(rules, suppliers, providers.path, deadline)
    if not all(suppliers):
        return iter(())
    counts = tuple(map(len, suppliers))
    if max(counts, default=1) == 1:
        # Most hosts that are one provider: a generator would take longer than the only combination.
        only = first_combination(suppliers)
        if is_surely_candidate(rules, only, providers):
            return iter([only])
    order = _fewest_first(counts)
    if rules.may_exclude:
        combining = Combining(rules, suppliers, order, providers, deadline, memory)
        constraints = constraints_of(combining)
        if constraints:
            return _combine_constrained(combining, constraints)
    return _products(suppliers, order, deadline)


def first_combination(suppliers: SuppliersByDemand) -> Candidate:
    """Return the combination that `combine` tries first."""
    return tuple([ids[0] for ids in suppliers])


def is_surely_candidate(rules: CombinationRules, combination: Candidate, providers: ProviderLookup) -> bool:
    """Return whether a combination is certainly a candidate; False if that is not certain.

    It is one if no other rules can exclude it but isolation, `same_subtree`, and the traits that the
    unsuffixed group requires, and if one supplier has all of these.
    """
    if rules.has_other_rules or (rules.isolated and not are_isolated(combination, rules)):
        return False
    for demands in rules.same_subtree:
        if not have_head([combination[demand] for demand in demands], providers.path):
            return False
    return not rules.unsuffixed_required or any(
        rules.has_unsuffixed_required(providers.trait_ids(id_))
        for id_, suffixed in zip(combination, rules.suffixed, strict=True)
        if not suffixed
    )


def _combine_constrained(combining: Combining, constraints: Sequence[Constraint]) -> Iterator[Candidate]:
    """Yield each candidate; if the first combination is one, the search begins only when the next is wanted.

    A limited search wants one candidate of most trees. The only combination often needs no search either.
    """
    first = first_combination(combining.suppliers)
    accepts_first = [constraint.accepts(first) for constraint in constraints]
    is_candidate = all(accepts_first)
    if is_candidate:
        yield first
    if None in accepts_first or max(map(len, combining.suppliers), default=1) > 1:
        yield from itertools.islice(_DepthFirstSearch(combining, constraints).run(), int(is_candidate), None)


@lru_cache
def _fewest_first(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indexes of `counts` in ascending order of the counts.

    Cached because most trees have the same numbers of suppliers.
    """
    return tuple(sorted(range(len(counts)), key=counts.__getitem__))


def _products(suppliers: SuppliersByDemand, order: Sequence[int], deadline: Deadline) -> Iterator[Candidate]:
    """Yield every combination; the last demand in `order` changes fastest."""
    positions = [order.index(demand) for demand in range(len(order))]
    for chosen in itertools.product(*(suppliers[demand] for demand in order)):
        deadline.check()
        yield tuple([chosen[position] for position in positions])


class _DepthFirstSearch:
    """A depth-first search that chooses a supplier for each demand of one anchor, in a given order.

    A state is what the constraints depend on after some demands have their suppliers. `failed_states` are
    those that led to no candidate: the search does not enter an equal state again.
    """

    def __init__(self, combining: Combining, constraints: Sequence[Constraint]) -> None:
        self.suppliers = combining.suppliers
        self.order = combining.order
        self.deadline = combining.deadline
        self.memory = combining.memory
        self.reserved = 0
        """The bytes of memory that this search has reserved."""
        self.constraints = constraints
        self.finders = [constraint for constraint in constraints if constraint.finds_suppliers]
        self.chosen = [0] * len(self.order)
        self.failed_states: set[Hashable] = set()
        self.tried = 0
        """How many suppliers have been tried since the last candidate."""
        self.tried_limit = min(FEASIBILITY_CHECK_AFTER, MAX_TRIED_SUPPLIERS)
        """The number of tried suppliers above which `_may_continue` is called."""
        self.is_infeasible = False
        """Whether no candidate is possible, whatever suppliers are chosen."""

    def run(self) -> Iterator[Candidate]:
        """Yield every candidate."""
        try:
            self._reserve_own_size()
            last_depth = len(self.order) - 1
            untried = [iter(self._suppliers_to_try(0))]
            # For each depth, how many candidates have come from its current state.
            candidates_below = [0]
            while untried:
                depth = len(untried) - 1
                demand = self.order[depth]
                provider_id = self._next_allowed(demand, untried[-1])
                if self.is_infeasible:
                    return
                if provider_id is None:
                    untried.pop()
                    if not candidates_below.pop():
                        self._remember_failed(self._state(depth))
                    elif candidates_below:
                        candidates_below[-1] += 1
                    if untried:
                        self._unassign(self.order[depth - 1])
                    continue
                self.chosen[demand] = provider_id
                if depth == last_depth:
                    self.tried = 0
                    candidates_below[-1] += 1
                    self.deadline.check()
                    yield tuple(self.chosen)
                    continue
                for constraint in self.constraints:
                    constraint.assign(demand, provider_id)
                if self.failed_states and self._state(depth + 1) in self.failed_states:
                    self._unassign(demand)
                else:
                    candidates_below.append(0)
                    untried.append(iter(self._suppliers_to_try(depth + 1)))
        finally:
            self.memory.release(self.reserved)

    def _reserve_own_size(self) -> None:
        size = SEARCH_SIZE + STEP_SIZE * len(self.order)
        self.memory.reserve(size)
        self.reserved += size

    def _suppliers_to_try(self, depth: int) -> Sequence[int]:
        """Return those suppliers of the demand at a depth that may be allowed."""
        demand = self.order[depth]
        if not self.finders:
            return self.suppliers[demand]
        found = (constraint.allowed_suppliers(demand) for constraint in self.finders)
        return min((ids for ids in found if ids is not None), key=len, default=self.suppliers[demand])

    def _next_allowed(self, demand: int, untried: Iterator[int]) -> int | None:
        """Return the next supplier that all constraints allow; None if there is none or can be none."""
        for provider_id in untried:
            self.tried += 1
            if self.tried % CHECK_DEADLINE_EVERY == 0:
                self.deadline.check()
            if self.tried > self.tried_limit and not self._may_continue():
                return None
            for constraint in self.constraints:
                if not constraint.allows(demand, provider_id):
                    break
            else:
                return provider_id
        return None

    def _unassign(self, demand: int) -> None:
        for constraint in self.constraints:
            constraint.unassign(demand, self.chosen[demand])

    def _may_continue(self) -> bool:
        """Return whether any candidate is possible; raise `Invalid` after `MAX_TRIED_SUPPLIERS`."""
        self.is_infeasible = not all(constraint.is_feasible() for constraint in self.constraints)
        if self.is_infeasible:
            return False
        if self.tried > MAX_TRIED_SUPPLIERS:
            raise Invalid(
                "These request groups can be combined in too many ways that all fail:"
                " ask for fewer groups, or for one group of a larger amount."
            )
        self.tried_limit = MAX_TRIED_SUPPLIERS
        return True

    def _remember_failed(self, state: tuple[Hashable, ...]) -> None:
        """Add a failed state, if there is memory for it."""
        size = STATE_SIZE + sum(
            getsizeof(part) + (ITEM_SIZE * len(part) if isinstance(part, frozenset) else 0) for part in state
        )
        if len(self.failed_states) < MAX_TRIED_SUPPLIERS and self.memory.try_reserve(size):
            self.reserved += size
            self.failed_states.add(state)

    def _state(self, depth: int) -> tuple[Hashable, ...]:
        return depth, *(constraint.state(depth) for constraint in self.constraints)
