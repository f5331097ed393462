"""The amounts of simulated claims (`docs/spec/extensions.md 4`)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placement_svc.domain.combining.interfaces import SuppliersByDemand
from placement_svc.domain.combining.split_suppliers import divided
from placement_svc.domain.demands import Demand
from placement_svc.domain.inventory import UnitLimits

InventoryKey = tuple[int, str]
"""An inventory: the id of the provider, and the resource class."""

ClaimAmounts = Mapping[InventoryKey, int]
"""The amounts of one claim; none is 0."""

ClaimKind = frozenset[tuple[InventoryKey, int]]
"""All claims with the same amounts: the items of `ClaimAmounts`."""


@dataclass(frozen=True)
class RootSuppliers:
    """A root, and for each demand the ids of the providers that can supply it there.

    They are ordered by uuid, or at random for placements without an order.
    """

    id: int
    suppliers: SuppliersByDemand


@dataclass(frozen=True)
class RootClaims:
    """The number of claims that a root gets, and the amounts of the last one.

    `is_cut` means that the maximum number of claims was reached before the root had no candidate left.
    """

    root_id: int
    count: int
    last: ClaimAmounts
    is_cut: bool = False


def amounts_of(demands: Sequence[Demand], suppliers: Sequence[int]) -> ClaimAmounts:
    """Return the amounts of a claim, summed over all demands; `suppliers` has the supplier of each."""
    amounts: Counter[InventoryKey] = Counter()
    for demand, provider_id in zip(*divided(demands, suppliers), strict=True):
        for name, amount in demand.resources:
            amounts[provider_id, name] += amount
    return amounts


@dataclass
class SimulatedInventories:
    """The inventories of suppliers, which simulated claims use up: a `UnitLookup`.

    `paths`, `traits` and `uuids` are by provider id. `min_unit` and `step_size` have the classes that may be
    split.
    """

    free: dict[InventoryKey, int] = field(default_factory=dict)
    max_unit: dict[InventoryKey, int] = field(default_factory=dict)
    paths: dict[int, tuple[int, ...]] = field(default_factory=dict)
    traits: dict[int, frozenset[int]] = field(default_factory=dict)
    uuids: dict[int, str] = field(default_factory=dict)
    min_unit: dict[InventoryKey, int] = field(default_factory=dict)
    step_size: dict[InventoryKey, int] = field(default_factory=dict)

    def path(self, provider_id: int) -> tuple[int, ...]:
        """Return the ids from the provider's root down to itself."""
        return self.paths[provider_id]

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        """Return the ids of the provider's traits."""
        return self.traits[provider_id]

    def max_allocatable(self, provider_id: int, resource_class: str) -> int:
        """Return the largest amount that a new allocation can get."""
        key = provider_id, resource_class
        return min(self.free[key], self.max_unit[key])

    def units(self, provider_id: int, resource_class: str) -> UnitLimits:
        """Return the amounts that a new allocation can get."""
        key = provider_id, resource_class
        return UnitLimits(self.min_unit[key], self.max_allocatable(*key), self.step_size[key])

    def uuid(self, provider_id: int) -> str:
        """Return the uuid of a provider."""
        return self.uuids[provider_id]

    def copy(self) -> "SimulatedInventories":
        """Return the same inventories; claims in one of both do not change the other."""
        return replace(self, free=dict(self.free))

    def part(self, keys: Iterable[InventoryKey]) -> "SimulatedInventories":
        """Return a copy of some of the inventories."""
        return replace(self, free={key: self.free[key] for key in keys})

    def times(self, amounts: ClaimAmounts) -> int:
        """Return how many claims of these amounts are free."""
        return min([self.free[key] // amount for key, amount in amounts.items()])

    def times_of(self, demand: Demand, provider_id: int) -> int:
        """Return how many claims a provider can supply with a demand that has resources."""
        return min([self.free[provider_id, name] // amount for name, amount in demand.resources])

    def claim(self, amounts: ClaimAmounts, times: int) -> None:
        """Use the amounts of so many claims."""
        for key, amount in amounts.items():
            self.free[key] -= amount * times
