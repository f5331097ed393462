"""The input of combining the suppliers around one anchor, and the interface of its constraints.

Around an *anchor* (a root provider), each demand has its *suppliers*: the providers that can supply it when
the other demands are ignored. The search assigns a supplier to one demand after the other, and asks every
constraint at each step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from placement_svc.domain.combining.split_suppliers import provider_ids_of
from placement_svc.domain.demands import CombinationRules
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.inventory import UnitLimits

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


class UnitLookup(ProviderLookup, Protocol):
    """The data that splitting a class among several providers needs, too."""

    def units(self, provider_id: int, resource_class: str) -> UnitLimits:
        """Return the amounts that a new allocation can get.

        The resource class is one of `CombinationRules.splittable_classes`.
        """

    def uuid(self, provider_id: int) -> str:
        """Return the uuid of a provider that can supply a class of `CombinationRules.splittable_classes`."""


class TreeSuppliers(NamedTuple):
    """The suppliers around the anchor `root_id`, and what is needed to combine them."""

    root_id: int
    rules: CombinationRules
    suppliers: SuppliersByDemand
    providers: UnitLookup
    deadline: Deadline
    memory: MemoryBudget


class Combining(NamedTuple):
    """The task of combining the suppliers around one anchor.

    `order` holds the indexes of the demands in the order in which they get their suppliers.
    """

    rules: CombinationRules
    suppliers: SuppliersByDemand
    order: Sequence[int]
    providers: ProviderLookup
    deadline: Deadline
    memory: MemoryBudget

    @property
    def trait_ids(self) -> Callable[[int], frozenset[int]]:
        """The function that returns the ids of the traits of a supplier: of all providers of a split."""
        of_provider = self.providers.trait_ids
        if not self.rules.splittable:
            return of_provider
        return lambda supplier: frozenset(chain.from_iterable(map(of_provider, provider_ids_of(supplier))))


class Constraint(ABC):
    """A condition on several suppliers, checked while the search assigns one supplier after the other."""

    finds_suppliers = False
    """Whether `allowed_suppliers` can return anything but None."""

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

    def accepts(self, candidate: Sequence[int]) -> bool | None:
        """Return whether the suppliers of all demands meet the constraint; None if unknown.

        It needs no assignments.
        """
        return None

    def is_feasible(self) -> bool:
        """Return False if no assignment of all demands can satisfy the constraint; True if unknown."""
        return True

    def allowed_suppliers(self, demand: int) -> Sequence[int] | None:
        """Return the suppliers of a demand that `allows` can accept now, in their order; None if unknown.

        Only a constraint that can find them without trying all suppliers returns them.
        """
        return None
