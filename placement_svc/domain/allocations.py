"""Consumers, what they hold of which inventory, and whether a claim to hold it can be granted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from placement_svc.domain.errors import Conflict, OverCapacity
from placement_svc.domain.inventory import Inventory

UNKNOWN_TYPE = "unknown"
"""How the type of a consumer is told that was never given one; no type has this name."""


@dataclass(frozen=True)
class Claim:
    """What a consumer is to hold from now on: amounts by provider uuid and resource class.

    Nothing at all means that the consumer goes away. `consumer_type` None leaves the type as it is.
    `generation` is that of the consumer as the client knows it, None for one that is new to it.
    """

    consumer_uuid: str
    project_id: str
    user_id: str
    consumer_type: str | None
    generation: int | None
    allocations: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Allocation:
    """An amount of one resource class of one provider, its consumer, and the time it was granted."""

    consumer_uuid: str
    consumer_generation: int
    project_id: str
    user_id: str
    consumer_type: str
    provider_uuid: str
    provider_generation: int
    resource_class: str
    used: int
    created_at: datetime


@dataclass(frozen=True)
class Usages:
    """How much some consumers hold, by resource class, and how many they are."""

    consumer_count: int
    resources: Mapping[str, int]


@dataclass(frozen=True)
class InventoryUsage:
    """An inventory with what all consumers hold of it, and the part of that which claims replace."""

    inventory: Inventory
    used: int = 0
    replaced: int = 0


InventoryUsages = Mapping[tuple[str, str], InventoryUsage]
"""InventoryUsages by the uuid of their provider and their resource class."""


def check(claims: Iterable[Claim], stocks: InventoryUsages) -> None:
    """Refuse claims that `stocks` cannot grant together (`docs/spec/allocations.md 6`).

    `stocks` has every inventory of every provider that is named. A provider that has less than is
    used of it grants as much again, but never more. Raises `Conflict`.
    """
    wanted = [
        (provider, resource_class, amount)
        for claim in claims
        for provider, resources in claim.allocations.items()
        for resource_class, amount in resources.items()
    ]
    _check_providers(wanted, stocks)
    granted: dict[tuple[str, str], int] = {}
    for provider, resource_class, amount in wanted:
        stock = stocks.get((provider, resource_class))
        if stock is None:
            raise _no_inventory([resource_class], [provider])
        before = granted.get((provider, resource_class), 0)
        problem = _problem(stock, amount, before)
        if problem:
            kind, words = problem
            raise kind(
                f"Unable to allocate inventory: Unable to create allocation for '{resource_class}' on "
                f"resource provider '{provider}'. The requested amount would {words}."
            )
        granted[provider, resource_class] = before + amount


def _check_providers(wanted: Sequence[tuple[str, str, int]], stocks: InventoryUsages) -> None:
    """Refuse providers that have nothing of any class in the whole request."""
    classes = list(dict.fromkeys(resource_class for _, resource_class, _ in wanted))
    providers = dict.fromkeys(provider for provider, _, _ in wanted)
    barren = [p for p in providers if not any((p, resource_class) in stocks for resource_class in classes)]
    if barren:
        raise _no_inventory(classes, barren)


def _no_inventory(classes: Iterable[str], providers: Iterable[str]) -> Conflict:
    return Conflict(
        f"Unable to allocate inventory: Inventory for '{', '.join(classes)}' on resource provider "
        f"'{', '.join(providers)}' invalid."
    )


def _problem(stock: InventoryUsage, amount: int, granted: int) -> tuple[type[Conflict], str] | None:
    """Return what is wrong with `amount` of `stock` when `granted` went to the claims before it."""
    inventory = stock.inventory
    if not inventory.fits_units(amount):
        return Conflict, "violate inventory constraints"
    used = stock.used - stock.replaced + granted + amount
    if used > inventory.capacity and used > stock.used:
        return OverCapacity, "exceed the capacity"
    return None
