"""Reshapes: inventories that move between providers, together with their allocations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from placement_svc.domain.allocations import Claim, InventoryUsage, InventoryUsages
from placement_svc.domain.inventory import Inventory


@dataclass(frozen=True)
class ProviderReshape:
    """All inventories that a provider is to have, by resource class.

    `generation` is the provider's generation as the client knows it.
    """

    generation: int
    inventories: Mapping[str, Inventory]


@dataclass(frozen=True)
class Reshape:
    """New inventories by provider uuid and new allocations of consumers, applied in one transaction."""

    providers: Mapping[str, ProviderReshape]
    claims: Sequence[Claim]


def usages_during_reshape(
    usages: InventoryUsages, reshapes: Mapping[str, ProviderReshape]
) -> dict[tuple[str, str], InventoryUsage]:
    """Return the inventories against which the claims of a reshape are checked.

    New and changed inventories count as they will be; inventories that the reshape removes still count.
    """
    new = {
        (provider, resource_class): replace(
            usages.get((provider, resource_class), InventoryUsage(inventory)), inventory=inventory
        )
        for provider, reshape in reshapes.items()
        for resource_class, inventory in reshape.inventories.items()
    }
    return {**usages, **new}


def removed_inventories(
    usages: InventoryUsages, reshapes: Mapping[str, ProviderReshape]
) -> list[tuple[str, str]]:
    """Return the provider uuid and the resource class of each inventory that the reshape removes.

    The providers are in the order of `reshapes`, so that an error names the first one.
    """
    removed = [
        (provider, resource_class)
        for provider, resource_class in usages
        if provider in reshapes and resource_class not in reshapes[provider].inventories
    ]
    positions = {provider: position for position, provider in enumerate(reshapes)}
    return sorted(removed, key=lambda each: positions[each[0]])
