"""Reshapes: inventories that change their providers, and the allocations that move with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from placement_svc.domain.allocations import Claim, InventoryUsage, InventoryUsages
from placement_svc.domain.inventory import Inventory


@dataclass(frozen=True)
class ProviderReshape:
    """All that a provider is to have from now on, by resource class.

    `generation` is that of the provider as the client knows it.
    """

    generation: int
    inventories: Mapping[str, Inventory]


@dataclass(frozen=True)
class Reshape:
    """What providers are to have, by their uuid, and what consumers are to hold, at one stroke."""

    providers: Mapping[str, ProviderReshape]
    claims: Sequence[Claim]


def union(
    stocks: InventoryUsages, reshapes: Mapping[str, ProviderReshape]
) -> dict[tuple[str, str], InventoryUsage]:
    """Return what there is while claims are checked: what stays as it will be, what goes as it still is."""
    coming = {
        (provider, resource_class): replace(
            stocks.get((provider, resource_class), InventoryUsage(inventory)), inventory=inventory
        )
        for provider, reshape in reshapes.items()
        for resource_class, inventory in reshape.inventories.items()
    }
    return {**stocks, **coming}


def dropped(stocks: InventoryUsages, reshapes: Mapping[str, ProviderReshape]) -> list[tuple[str, str]]:
    """Return the provider uuid and the resource class of each inventory that is to be there no more."""
    return [
        (provider, resource_class)
        for provider, resource_class in stocks
        if provider in reshapes and resource_class not in reshapes[provider].inventories
    ]
