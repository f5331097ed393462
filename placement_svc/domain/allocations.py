"""Consumers, their allocations, and the rules that decide whether a claim is granted.

A claim is refused for the first of six reasons that applies: generation conflict (`check_generations`),
unknown provider (`check_providers`), unknown resource class (checked in `db`), and missing inventory,
units, capacity (`check_inventories`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from placement_svc.domain.errors import ConcurrentUpdate, Conflict, Invalid, OverCapacity
from placement_svc.domain.inventory import Inventory
from placement_svc.domain.wording import list_names

UNKNOWN_TYPE = "unknown"
"""The consumer type that responses show for a consumer without a type. No stored type has this name."""


@dataclass(frozen=True)
class Claim:
    """The allocations that a consumer is to have: amounts by provider uuid and resource class.

    They replace all present allocations of the consumer; a claim without allocations deletes the consumer.
    `consumer_type` None leaves the type unchanged. `generation` is the consumer's generation as the
    client knows it, None for a new consumer.
    """

    consumer_uuid: str
    project_id: str
    user_id: str
    consumer_type: str | None
    generation: int | None
    allocations: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Allocation:
    """An amount of one resource class of one provider, with its consumer and its creation time."""

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
    """The number of some consumers, and the sum of their allocations by resource class."""

    consumer_count: int
    resources: Mapping[str, int]


@dataclass(frozen=True)
class InventoryUsage:
    """An inventory, the amount that all consumers use of it, and the part of it that the claims replace."""

    inventory: Inventory
    used: int = 0
    replaced: int = 0

    def exceeds_capacity(self, requested: int) -> bool:
        """Return whether more than the capacity is used if this amount replaces `replaced`."""
        return self.used - self.replaced + requested > self.inventory.capacity


InventoryUsages = Mapping[tuple[str, str], InventoryUsage]
"""Inventory usages by provider uuid and resource class."""


def resource_classes_of(claims: Iterable[Claim]) -> list[str]:
    """Return the resource classes that `claims` name, each once, in the order of the claims."""
    resources = (resources for claim in claims for resources in claim.allocations.values())
    return list(dict.fromkeys(resource_class for amounts in resources for resource_class in amounts))


def check_generations(claims: Iterable[Claim], generations: Mapping[str, int | None]) -> None:
    """Raise `ConcurrentUpdate` for the first claim with an outdated consumer generation.

    `generations` are the stored ones by consumer uuid, None for a consumer that does not exist
    (`docs/spec/allocations.md 5`, A2).
    """
    for claim in claims:
        generation = generations[claim.consumer_uuid]
        if claim.generation != generation:
            expected = "null" if generation is None else generation
            raise ConcurrentUpdate(
                f"consumer generation conflict - expected {expected} but got {claim.generation}"
            )


def check_providers(claims: Iterable[Claim], existing: Collection[str]) -> None:
    """Raise `Invalid` for the first claimed provider whose uuid is not in `existing`."""
    for claim in claims:
        for provider in claim.allocations:
            if provider not in existing:
                raise Invalid(f"Allocation for resource provider '{provider}' that does not exist.")


def check_inventories(
    claims: Iterable[Claim], usages: InventoryUsages, *, tolerates_overuse: bool = True
) -> None:
    """Raise `Conflict` if the inventories in `usages` cannot grant all claims together.

    `usages` holds every inventory of every claimed provider. A provider that is used beyond its capacity
    grants replacements up to its present usage, but never more (`docs/spec/allocations.md 6`); without
    `tolerates_overuse` none.
    """
    wanted = [
        (provider, resource_class, amount)
        for claim in claims
        for provider, resources in claim.allocations.items()
        for resource_class, amount in resources.items()
    ]
    _check_each_provider_has_inventory(wanted, usages)
    requested: dict[tuple[str, str], int] = {}
    for provider, resource_class, amount in wanted:
        usage = usages.get((provider, resource_class))
        if usage is None:
            raise _missing_inventory([resource_class], [provider])
        before = requested.get((provider, resource_class), 0)
        reason = _reason_against(usage, amount, requested=before)
        if reason is None and not tolerates_overuse and usage.exceeds_capacity(before + amount):
            reason = OverCapacity, "exceed the capacity"
        if reason:
            error, words = reason
            raise error(
                f"Unable to allocate inventory: Unable to create allocation for '{resource_class}' on "
                f"resource provider '{provider}'. The requested amount would {words}."
            )
        requested[provider, resource_class] = before + amount


def _check_each_provider_has_inventory(
    wanted: Sequence[tuple[str, str, int]], usages: InventoryUsages
) -> None:
    """Raise `Conflict` for providers without an inventory of any class that the request names."""
    classes = dict.fromkeys(resource_class for _, resource_class, _ in wanted)
    providers = dict.fromkeys(provider for provider, _, _ in wanted)
    # One pass over the inventories: a test of each provider with each class takes minutes for thousands.
    with_inventory = {provider for provider, resource_class in usages if resource_class in classes}
    without = [provider for provider in providers if provider not in with_inventory]
    if without:
        raise _missing_inventory(list(classes), without)


def _missing_inventory(classes: Sequence[str], providers: Sequence[str]) -> Conflict:
    return Conflict(
        f"Unable to allocate inventory: Inventory for '{list_names(classes)}' on resource provider "
        f"'{list_names(providers)}' invalid."
    )


def _reason_against(
    usage: InventoryUsage, amount: int, *, requested: int
) -> tuple[type[Conflict], str] | None:
    """Return why `amount` cannot be granted, None if it can.

    `requested` is the sum of the amounts that earlier records of the same request ask of this inventory.
    """
    inventory = usage.inventory
    if not inventory.fits_units(amount):
        return Conflict, "violate inventory constraints"
    requested += amount
    if usage.exceeds_capacity(requested) and requested > usage.replaced:
        return OverCapacity, "exceed the capacity"
    return None
