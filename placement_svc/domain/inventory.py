"""Inventories: how much of a resource class a provider has, and in which amounts it can be allocated."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from placement_svc.domain.errors import Invalid

MAX_INTEGER = 2**31 - 1
"""The largest amount that an inventory or an allocation can have."""

ANY_PART = 0
"""The amount that stands for any amount that an inventory can give: a part of a class that is split."""

MAX_CAPACITY = 4 * 10**18
"""The limit of a capacity in both directions, so that a bigint can hold it for every allocation ratio."""


class UnitLimits(NamedTuple):
    """The amounts that one allocation can have of an inventory: multiples of step_size in a range.

    For a new allocation, `max_unit` is that of the inventory or what is free, whichever is less.
    """

    min_unit: int
    max_unit: int
    step_size: int

    def fits_units(self, amount: int) -> bool:
        """Return whether `amount` is between min_unit and max_unit and a multiple of step_size.

        The same rule in SQL is `placement_svc/db/sql/fits_units.sql` (`docs/spec/allocations.md 6`).
        """
        return self.min_unit <= amount <= self.max_unit and self.is_multiple(amount)

    @property
    def least(self) -> int:
        """The smallest multiple of step_size from min_unit on; it may exceed max_unit."""
        return -(-self.min_unit // self.step_size) * self.step_size

    def largest_below(self, amount: int) -> int | None:
        """Return the largest allowed amount below `amount`, None if there is none."""
        found = min(amount - 1, self.max_unit) // self.step_size * self.step_size
        return found if found >= max(self.least, 1) else None

    def smallest_above(self, amount: int) -> int | None:
        """Return the smallest allowed amount above `amount`, None if there is none."""
        found = max(self.least, (amount // self.step_size + 1) * self.step_size)
        return found if found <= self.max_unit else None

    def is_multiple(self, amount: int) -> bool:
        """Return whether `amount` is a multiple of step_size."""
        return amount % self.step_size == 0


class HeldAmount(NamedTuple):
    """An inventory: its units, its capacity, and what is free, each at least 0."""

    units: UnitLimits
    capacity: int
    free: int


@dataclass(frozen=True)
class Inventory:
    """The inventory of a resource class, with the defaults of omitted fields (`docs/spec/resources.md 4`)."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INTEGER
    step_size: int = 1
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> int:
        """How much can be allocated in total; negative if more is reserved than the total."""
        capacity = (self.total - self.reserved) * self.allocation_ratio
        return int(min(max(capacity, -MAX_CAPACITY), MAX_CAPACITY))

    def fits_units(self, amount: int) -> bool:
        """Return whether the units allow an allocation of `amount`, whether it is free or not."""
        return UnitLimits(self.min_unit, self.max_unit, self.step_size).fits_units(amount)


@dataclass(frozen=True)
class ProviderInventories:
    """The inventories of a provider, by resource class.

    `generation` is that of the provider. `modified` is the time of the latest change of one of the
    inventories, None if there are none.
    """

    generation: int
    inventories: Mapping[str, Inventory]
    modified: datetime | None


def check_capacities(
    provider_uuid: str, inventories: Mapping[str, Inventory], minimum: int, verb: str = "update"
) -> None:
    """Raise `Invalid` if the capacity of an inventory is below `minimum` (`docs/spec/resources.md 4`).

    `inventories` are by resource class, `minimum` is 0 or 1, and `verb` names the operation in the error.
    """
    reason = "greater than or equal to total" if minimum else "greater than total"
    for resource_class, inventory in inventories.items():
        if inventory.capacity < minimum:
            raise Invalid(
                f"Unable to {verb} inventory for resource provider {provider_uuid}: "
                f"Invalid inventory for '{resource_class}' on resource provider '{provider_uuid}'. "
                f"The reserved value is {reason}."
            )


@dataclass(frozen=True)
class Totals:
    """Sums over all inventories of a resource class."""

    capacity: float
    used: float
    reserved: float
