"""The constraints on several suppliers of one allocation candidate (`docs/spec/candidates.md 3`)."""

import functools
import operator
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain

from placement_svc.domain.combining.interfaces import Combining, Constraint, ProviderLookup
from placement_svc.domain.combining.matching import can_all_differ
from placement_svc.domain.combining.same_subtree import same_subtree_constraints
from placement_svc.domain.combining.split_suppliers import SplitSupplier, provider_ids_of
from placement_svc.domain.combining.subtree_exclusion import subtree_exclusion_constraints
from placement_svc.domain.demands import CombinationRules


def constraints_of(combining: Combining) -> list[Constraint]:
    """Return the constraints that can exclude a combination.

    Raises `Unavailable` when their preparation exceeds the deadline.
    """
    rules = combining.rules
    constraints: list[Constraint] = []
    if rules.summed_classes:
        constraints.append((_SummedParts if rules.splittable else _SummedAmounts)(combining))
    if rules.isolated:
        constraints.append(_Isolated(combining))
    if rules.same_subtree:
        constraints += same_subtree_constraints(combining)
    if rules.subtree_exclusions:
        constraints += subtree_exclusion_constraints(combining)
    if rules.unsuffixed_required and not _any_choice_has_required(combining):
        constraints.append(_UnsuffixedRequired(combining))
    if rules.one_provider_per_tree:
        constraints.append(_OneProviderPerTree(combining.providers))
    return constraints


def are_isolated(candidate: Sequence[int], rules: CombinationRules) -> bool:
    """Return whether the supplier of each isolated demand supplies no other suffixed demand."""
    isolated = [candidate[demand] for demand in rules.isolated]
    others = [
        provider_id
        for demand, (provider_id, is_suffixed) in enumerate(zip(candidate, rules.suffixed, strict=True))
        if is_suffixed and demand not in rules.isolated
    ]
    exclusive = set(isolated)
    return len(exclusive) == len(isolated) and exclusive.isdisjoint(others)


class _SummedAmounts(Constraint):
    """No provider supplies more of a resource class, to all demands together, than one allocation can get."""

    def __init__(self, combining: Combining) -> None:
        self.combining = combining
        self.suppliers = combining.suppliers
        self.amounts = combining.rules.summed_amounts
        self.max_allocatable = combining.providers.max_allocatable
        self.assigned: dict[tuple[int, str], int] = {}
        """The amounts assigned so far, by provider id and resource class; none is 0."""

    def accepts(self, candidate: Sequence[int]) -> bool:
        totals: dict[tuple[int, str], int] = {}
        for demand, supplier in enumerate(candidate):
            for key, amount in self._parts(demand, supplier):
                totals[key] = totals.get(key, 0) + amount
        return all(amount <= self.max_allocatable(*key) for key, amount in totals.items())

    def _parts(self, demand: int, supplier: int) -> Iterable[tuple[tuple[int, str], int]]:
        """Return the amounts that each provider of a supplier supplies to a demand."""
        return [((supplier, name), amount) for name, amount in self.amounts[demand]]

    def allows(self, demand: int, provider_id: int) -> bool:
        return all(
            self.assigned.get(key, 0) + amount <= self.max_allocatable(*key)
            for key, amount in self._parts(demand, provider_id)
        )

    def assign(self, demand: int, provider_id: int) -> None:
        for key, amount in self._parts(demand, provider_id):
            self.assigned[key] = self.assigned.get(key, 0) + amount

    def unassign(self, demand: int, provider_id: int) -> None:
        for key, amount in self._parts(demand, provider_id):
            remaining = self.assigned.pop(key) - amount
            if remaining:
                self.assigned[key] = remaining

    def state(self, depth: int) -> Hashable:
        return frozenset(item for item in self.assigned.items() if self.last_use[item[0]] >= depth)

    @functools.cached_property
    def last_use(self) -> dict[tuple[int, str], int]:
        """For each provider and class, the last step whose demand could use them."""
        last_use: dict[tuple[int, str], int] = {}
        seen: set[tuple[int, str]] = set()
        for step, demand in reversed(list(enumerate(self.combining.order))):
            suppliers = self.suppliers[demand]
            for name, _ in self.amounts[demand]:
                # Many demands can have the same suppliers.
                if (id(suppliers), name) not in seen:
                    seen.add((id(suppliers), name))
                    for id_ in self.combining.deadline.checked(suppliers):
                        last_use.setdefault((id_, name), step)
        return last_use

    def is_feasible(self) -> bool:
        """Return whether demands with the same suppliers request no more in total than these can supply."""
        checked = self.combining.deadline.checked
        totals: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for amounts, ids in checked(zip(self.amounts, self.suppliers, strict=True)):
            for name, amount in amounts:
                totals[name, tuple(ids)] += amount
        return all(
            amount <= sum(self.max_allocatable(id_, name) for id_ in checked(ids))
            for (name, ids), amount in totals.items()
        )


class _SummedParts(_SummedAmounts):
    """The same constraint where several providers may supply a demand in parts."""

    def __init__(self, combining: Combining) -> None:
        super().__init__(combining)
        suppliers = list(combining.suppliers)
        for demand in combining.rules.splittable:
            ids = (provider_ids_of(each) for each in combining.deadline.checked(suppliers[demand]))
            suppliers[demand] = sorted(set(chain.from_iterable(ids)))
        self.suppliers = suppliers

    def _parts(self, demand: int, supplier: int) -> Iterable[tuple[tuple[int, str], int]]:
        if not isinstance(supplier, SplitSupplier):
            return super()._parts(demand, supplier)
        names = [name for name, _ in self.amounts[demand]]
        return [((part.provider_id, name), part.amount) for name in names for part in supplier.parts]


class _Isolated(Constraint):
    """The supplier of an isolated demand supplies no other suffixed demand.

    With `group_policy=isolate` all suffixed demands are isolated, with `isolate` only some of them.
    """

    def __init__(self, combining: Combining) -> None:
        self.combining = combining
        self.suffixed = combining.rules.suffixed
        self.isolated = combining.rules.isolated
        self.exclusive: set[int] = set()
        """The ids of the suppliers of isolated demands."""
        self.shared: Counter[int] = Counter()
        """How many other suffixed demands each provider supplies; none is 0."""
        self.numbers: dict[tuple[int, bool], int] = {}
        """The suppliers of isolated demands, and of others, numbered by their first assignment."""
        self.mask = 0
        """`exclusive` and `shared` as a bit mask of these numbers, which needs less memory."""

    def accepts(self, candidate: Sequence[int]) -> bool:
        return are_isolated(candidate, self.combining.rules)

    def allows(self, demand: int, provider_id: int) -> bool:
        if not self.suffixed[demand]:
            return True
        if provider_id in self.exclusive:
            return False
        return demand not in self.isolated or provider_id not in self.shared

    def assign(self, demand: int, provider_id: int) -> None:
        if not self.suffixed[demand]:
            return
        is_isolated = demand in self.isolated
        if is_isolated:
            self.exclusive.add(provider_id)
        else:
            self.shared[provider_id] += 1
        self.mask |= 1 << self.numbers.setdefault((provider_id, is_isolated), len(self.numbers))

    def unassign(self, demand: int, provider_id: int) -> None:
        if not self.suffixed[demand]:
            return
        is_isolated = demand in self.isolated
        if is_isolated:
            self.exclusive.remove(provider_id)
        else:
            self.shared[provider_id] -= 1
            if self.shared[provider_id]:
                return
            del self.shared[provider_id]
        self.mask &= ~(1 << self.numbers[provider_id, is_isolated])

    def state(self, depth: int) -> Hashable:
        return self.mask

    def is_feasible(self) -> bool:
        """Return whether all isolated demands, and any one of the others, can have different suppliers."""
        deadline, suppliers = self.combining.deadline, self.combining.suppliers
        isolated = [suppliers[demand] for demand in sorted(self.isolated)]
        others = {
            id(ids): ids
            for demand, ids in enumerate(suppliers)
            if self.suffixed[demand] and demand not in self.isolated
        }
        if not others:
            return can_all_differ(isolated, deadline)
        return all(can_all_differ([*isolated, ids], deadline) for ids in deadline.checked(others.values()))


def _any_choice_has_required(combining: Combining) -> bool:
    """Return whether the required traits of the unsuffixed group hold for every choice of suppliers.

    It is enough if, for the unsuffixed demand with the fewest suppliers, each supplier has a trait of every
    required set. That is so where hosts have no children, or have them for other groups only.
    """
    rules = combining.rules
    fewest = next(
        (combining.suppliers[demand] for demand in combining.order if not rules.suffixed[demand]), ()
    )
    traits_of_each = map(combining.trait_ids, combining.deadline.checked(fewest))
    return bool(fewest) and all(map(rules.has_unsuffixed_required, traits_of_each))


class _UnsuffixedRequired(Constraint):
    """The suppliers of the unsuffixed group together have its required traits: one trait of each set.

    A set of required sets is a bit mask: bit n stands for `CombinationRules.unsuffixed_required[n]`.
    """

    def __init__(self, combining: Combining) -> None:
        self.required = combining.rules.unsuffixed_required
        self.suffixed = combining.rules.suffixed
        self.trait_ids = combining.trait_ids
        self.satisfied_by: dict[frozenset[int], int] = {}
        """The sets that a provider with certain traits satisfies; most providers have the same traits."""
        self.satisfied_after = [0]
        """The satisfied sets after each assignment."""
        # For each step, the sets that suppliers of the demands from there on can satisfy.
        self.satisfiable_from = [0]
        for demand in reversed(combining.order):
            ids = () if self.suffixed[demand] else combining.suppliers[demand]
            masks = map(self._satisfied_by, combining.deadline.checked(ids))
            self.satisfiable_from.append(functools.reduce(operator.or_, masks, self.satisfiable_from[-1]))
        self.satisfiable_from.reverse()

    def _satisfied_by(self, provider_id: int) -> int:
        """Return the sets of which a provider has a trait."""
        trait_ids = self.trait_ids(provider_id)
        satisfied = self.satisfied_by.get(trait_ids)
        if satisfied is None:
            satisfied = sum(
                1 << n for n, any_of in enumerate(self.required) if not any_of.isdisjoint(trait_ids)
            )
            self.satisfied_by[trait_ids] = satisfied
        return satisfied

    def _satisfied_with(self, demand: int, provider_id: int) -> int:
        satisfied = self.satisfied_after[-1]
        return satisfied if self.suffixed[demand] else satisfied | self._satisfied_by(provider_id)

    def allows(self, demand: int, provider_id: int) -> bool:
        satisfiable = self.satisfiable_from[len(self.satisfied_after)]
        return self._satisfied_with(demand, provider_id) | satisfiable == (1 << len(self.required)) - 1

    def assign(self, demand: int, provider_id: int) -> None:
        self.satisfied_after.append(self._satisfied_with(demand, provider_id))

    def unassign(self, demand: int, provider_id: int) -> None:
        self.satisfied_after.pop()

    def state(self, depth: int) -> Hashable:
        return self.satisfied_after[-1]


class _OneProviderPerTree(Constraint):
    """All suppliers in one tree are the same provider (before microversion 1.29)."""

    def __init__(self, providers: ProviderLookup) -> None:
        self.path = providers.path
        self.assigned: dict[int, int] = {}
        """The assigned provider of each tree, by root id."""
        self.new_trees: list[bool] = []
        """For each assignment, whether it is the first one in its tree."""

    def allows(self, demand: int, provider_id: int) -> bool:
        return self.assigned.get(self.path(provider_id)[0], provider_id) == provider_id

    def assign(self, demand: int, provider_id: int) -> None:
        root_id = self.path(provider_id)[0]
        self.new_trees.append(root_id not in self.assigned)
        self.assigned[root_id] = provider_id

    def unassign(self, demand: int, provider_id: int) -> None:
        if self.new_trees.pop():
            del self.assigned[self.path(provider_id)[0]]

    def state(self, depth: int) -> Hashable:
        return frozenset(self.assigned.values())
