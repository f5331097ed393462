"""Inventories: what a provider has of a resource class, and how it may be handed out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from placement_svc.domain.errors import Invalid

MAX_INTEGER = 2**31 - 1
"""The largest amount there is; more than that no inventory has in one piece."""

MOST = 4 * 10**18
"""The bound of a capacity in both directions, so that it can be stored whatever the ratio."""


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
        """What can be allocated of it in all; less than nothing if more is reserved than there is."""
        return int(min(max((self.total - self.reserved) * self.allocation_ratio, -MOST), MOST))

    def fits_units(self, amount: int) -> bool:
        """Return whether `amount` is between min_unit and max_unit and a multiple of step_size.

        The same rule in SQL is `placement_svc/db/sql/fits_units.sql` (`docs/spec/allocations.md 6`).
        """
        return self.min_unit <= amount <= self.max_unit and amount % self.step_size == 0


@dataclass(frozen=True)
class ProviderInventories:
    """Inventories of a provider by resource class, and when the newest of them was changed (None: no one).

    `generation` is that of the provider.
    """

    generation: int
    inventories: Mapping[str, Inventory]
    modified: datetime | None


def check_capacities(
    provider_uuid: str, inventories: Mapping[str, Inventory], least: int, verb: str = "update"
) -> None:
    """Refuse inventories by resource class of which one has a capacity below `least`, which is 0 or 1.

    `verb` says what was to be done with them. Raises `Invalid` (`docs/spec/resources.md 4`, capacity).
    """
    reason = "greater than or equal to total" if least else "greater than total"
    for resource_class, inventory in inventories.items():
        if inventory.capacity < least:
            raise Invalid(
                f"Unable to {verb} inventory for resource provider {provider_uuid}: "
                f"Invalid inventory for '{resource_class}' on resource provider '{provider_uuid}'. "
                f"The reserved value is {reason}."
            )


@dataclass(frozen=True)
class Totals:
    """What all inventories of a resource class come to."""

    capacity: float
    used: float
    reserved: float
