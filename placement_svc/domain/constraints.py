"""Constraints on several suppliers of one allocation candidate (`docs/spec/candidates.md 3`).

Around an *anchor* (a root provider), each demand has its *suppliers*: the providers that can supply it when
the other demands are ignored. The search assigns a supplier to one demand after the other, and asks every
constraint at each step.
"""

import functools
import operator
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Protocol

from placement_svc.domain.demands import CombinationRules
from placement_svc.domain.groups import GroupPolicy

SuppliersByDemand = Sequence[Sequence[int]]
"""For each demand the ids of the providers that can supply it around one anchor."""


class ProviderLookup(Protocol):
    """The data of suppliers that the constraints need, by provider id."""

    def path(self, provider_id: int) -> tuple[int, ...]:
        """Return the ids from the provider's root down to itself."""

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        """Return the ids of the provider's traits."""

    def max_allocatable(self, provider_id: int, resource_class: str) -> int:
        """Return the largest amount that a new allocation can get.

        The resource class is one of `CombinationRules.summed_classes`.
        """


class Constraint(ABC):
    """A condition on several suppliers, checked while the search assigns one supplier after the other."""

    @abstractmethod
    def allows(self, demand: int, provider_id: int) -> bool:
        """Return whether a provider can supply a demand in addition to the assignments so far."""

    @abstractmethod
    def assign(self, demand: int, provider_id: int) -> None:
        """Record an assignment."""

    @abstractmethod
    def unassign(self, demand: int, provider_id: int) -> None:
        """Undo the last assignment."""

    @abstractmethod
    def state(self, depth: int) -> Hashable:
        """Return everything about the assignments that affects the demands from step `depth` on."""

    def is_feasible(self) -> bool:
        """Return False if no assignment of all demands can satisfy the constraint; True if unknown."""
        return True


def constraints_of(
    rules: CombinationRules, suppliers: SuppliersByDemand, order: Sequence[int], providers: ProviderLookup
) -> list[Constraint]:
    """Return the constraints that can exclude a combination, for demands assigned in `order`."""
    constraints: list[Constraint] = []
    if rules.summed_classes:
        constraints.append(_SummedAmounts(rules, suppliers, order, providers))
    if rules.group_policy is GroupPolicy.ISOLATE:
        constraints.append(_GroupPolicyIsolate(rules, suppliers))
    for demands in rules.same_subtree:
        constraints.append(_SameSubtree(demands, suppliers, providers))
    if rules.unsuffixed_required and not _any_choice_has_required(rules, suppliers, providers):
        constraints.append(_UnsuffixedRequired(rules, suppliers, order, providers))
    if rules.one_provider_per_tree:
        constraints.append(_OneProviderPerTree(providers))
    return constraints


class _SummedAmounts(Constraint):
    """No provider supplies more of a resource class, to all demands together, than one allocation can get."""

    def __init__(
        self,
        rules: CombinationRules,
        suppliers: SuppliersByDemand,
        order: Sequence[int],
        providers: ProviderLookup,
    ) -> None:
        self.amounts = [
            [(name, amount) for name, amount in demand.resources if name in rules.summed_classes]
            for demand in rules.demands
        ]
        self.suppliers = suppliers
        self.order = order
        self.providers = providers
        self.assigned: defaultdict[tuple[int, str], int] = defaultdict(int)
        """The amounts assigned so far, by provider id and resource class."""

    def allows(self, demand: int, provider_id: int) -> bool:
        return all(
            self.assigned[provider_id, name] + amount <= self.providers.max_allocatable(provider_id, name)
            for name, amount in self.amounts[demand]
        )

    def assign(self, demand: int, provider_id: int) -> None:
        for name, amount in self.amounts[demand]:
            self.assigned[provider_id, name] += amount

    def unassign(self, demand: int, provider_id: int) -> None:
        for name, amount in self.amounts[demand]:
            self.assigned[provider_id, name] -= amount

    def state(self, depth: int) -> Hashable:
        return frozenset((key, self.assigned[key]) for key in self.usable_from[depth] if self.assigned[key])

    @functools.cached_property
    def usable_from(self) -> list[frozenset[tuple[int, str]]]:
        """For each step, the providers and classes that the demands from there on could use."""
        usable = [frozenset[tuple[int, str]]()]
        for demand in reversed(self.order):
            names = [name for name, _ in self.amounts[demand]]
            usable.append(usable[-1].union((id_, name) for id_ in self.suppliers[demand] for name in names))
        return usable[::-1]

    def is_feasible(self) -> bool:
        """Return whether demands with the same suppliers request no more in total than these can supply."""
        totals: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for amounts, ids in zip(self.amounts, self.suppliers, strict=True):
            for name, amount in amounts:
                totals[name, tuple(ids)] += amount
        return all(
            amount <= sum(self.providers.max_allocatable(id_, name) for id_ in ids)
            for (name, ids), amount in totals.items()
        )


class _GroupPolicyIsolate(Constraint):
    """No two suffixed demands have the same supplier (`group_policy=isolate`)."""

    def __init__(self, rules: CombinationRules, suppliers: SuppliersByDemand) -> None:
        self.suffixed = rules.suffixed
        self.suppliers = suppliers
        self.assigned: set[int] = set()
        """The ids of the suppliers of suffixed demands."""

    def allows(self, demand: int, provider_id: int) -> bool:
        return not (self.suffixed[demand] and provider_id in self.assigned)

    def assign(self, demand: int, provider_id: int) -> None:
        if self.suffixed[demand]:
            self.assigned.add(provider_id)

    def unassign(self, demand: int, provider_id: int) -> None:
        if self.suffixed[demand]:
            self.assigned.remove(provider_id)

    def state(self, depth: int) -> Hashable:
        return frozenset(self.assigned)

    def is_feasible(self) -> bool:
        """Return whether all suffixed demands can have different suppliers at the same time.

        This is a bipartite matching by augmenting paths.
        """
        demand_of: dict[int, int] = {}

        def match(demand: int, visited: set[int]) -> bool:
            for id_ in self.suppliers[demand]:
                if id_ not in visited:
                    visited.add(id_)
                    if id_ not in demand_of or match(demand_of[id_], visited):
                        demand_of[id_] = demand
                        return True
            return False

        return all(match(demand, set()) for demand, suffixed in enumerate(self.suffixed) if suffixed)


class _SameSubtree(Constraint):
    """One supplier of a set of demands is an ancestor of all others, or equal to them (`same_subtree`)."""

    def __init__(
        self, demands: frozenset[int], suppliers: SuppliersByDemand, providers: ProviderLookup
    ) -> None:
        self.demands = demands
        self.suppliers = suppliers
        self.providers = providers
        self.assigned: dict[int, int] = {}
        """The assigned providers, by demand."""
        self.common_paths: list[tuple[int, ...]] = []
        """After each assignment, the common ancestors (or selves) of all assigned providers, root first."""

    def allows(self, demand: int, provider_id: int) -> bool:
        if demand not in self.demands or not self.assigned:
            return True
        common = frozenset(self._common_path_with(provider_id))
        if provider_id in common or not common.isdisjoint(self.assigned.values()):
            return True
        unassigned = self.demands.difference(self.assigned, (demand,))
        return not all(common.isdisjoint(self.suppliers[other]) for other in unassigned)

    def _common_path_with(self, provider_id: int) -> tuple[int, ...]:
        path = self.providers.path(provider_id)
        if not self.common_paths:
            return path
        common = self.common_paths[-1]
        length = 0
        for one, other in zip(common, path, strict=False):
            if one != other:
                break
            length += 1
        return common[:length]

    def assign(self, demand: int, provider_id: int) -> None:
        if demand in self.demands:
            self.common_paths.append(self._common_path_with(provider_id))
            self.assigned[demand] = provider_id

    def unassign(self, demand: int, provider_id: int) -> None:
        if demand in self.demands:
            self.common_paths.pop()
            del self.assigned[demand]

    def state(self, depth: int) -> Hashable:
        if not self.assigned:
            return None
        common = self.common_paths[-1]
        return common, frozenset(id_ for id_ in self.assigned.values() if id_ in common)


def _any_choice_has_required(
    rules: CombinationRules, suppliers: SuppliersByDemand, providers: ProviderLookup
) -> bool:
    """Return whether the required traits of the unsuffixed group hold for every choice of suppliers.

    It is enough if, for the unsuffixed demand with the fewest suppliers, each supplier has a trait of every
    required set. That is so where hosts have no children, or have them for other groups only.
    """
    unsuffixed = (ids for ids, suffixed in zip(suppliers, rules.suffixed, strict=True) if not suffixed)
    fewest = min(unsuffixed, key=len, default=())
    return bool(fewest) and not any(
        any_of.isdisjoint(providers.trait_ids(id_)) for id_ in fewest for any_of in rules.unsuffixed_required
    )


class _UnsuffixedRequired(Constraint):
    """The suppliers of the unsuffixed group together have its required traits: one trait of each set.

    A set of required sets is a bit mask: bit n stands for `CombinationRules.unsuffixed_required[n]`.
    """

    def __init__(
        self,
        rules: CombinationRules,
        suppliers: SuppliersByDemand,
        order: Sequence[int],
        providers: ProviderLookup,
    ) -> None:
        self.required = rules.unsuffixed_required
        self.suffixed = rules.suffixed
        self.providers = providers
        self.satisfied_after = [0]
        """The satisfied sets after each assignment."""
        # For each step, the sets that suppliers of the demands from there on can satisfy.
        self.satisfiable_from = [0]
        for demand in reversed(order):
            ids = () if self.suffixed[demand] else suppliers[demand]
            masks = map(self._satisfied_by, ids)
            self.satisfiable_from.append(functools.reduce(operator.or_, masks, self.satisfiable_from[-1]))
        self.satisfiable_from.reverse()

    def _satisfied_by(self, provider_id: int) -> int:
        """Return the sets of which a provider has a trait."""
        trait_ids = self.providers.trait_ids(provider_id)
        return sum(1 << n for n, any_of in enumerate(self.required) if not any_of.isdisjoint(trait_ids))

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
        self.providers = providers
        self.assigned: list[tuple[int, int]] = []
        """The root id and the id of each assigned provider."""

    def allows(self, demand: int, provider_id: int) -> bool:
        root_id = self.providers.path(provider_id)[0]
        return all(root != root_id or id_ == provider_id for root, id_ in self.assigned)

    def assign(self, demand: int, provider_id: int) -> None:
        self.assigned.append((self.providers.path(provider_id)[0], provider_id))

    def unassign(self, demand: int, provider_id: int) -> None:
        self.assigned.pop()

    def state(self, depth: int) -> Hashable:
        return frozenset(self.assigned)
