"""Reshapes: replace inventories and allocations in one transaction (`docs/spec/allocations.md 11`)."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from placement_svc.db import allocations, consumers, inventories, names, providers
from placement_svc.db.errors import map_constraints
from placement_svc.db.filters import is_any
from placement_svc.db.provider_trees import lock_tree_shape_shared
from placement_svc.db.providers import LockedProvider
from placement_svc.db.tables import allocations as allocations_table
from placement_svc.db.tables import resource_classes, resource_providers
from placement_svc.domain.allocations import (
    Claim,
    check_generations,
    check_inventories,
    check_providers,
    resource_classes_of,
)
from placement_svc.domain.errors import ConcurrentUpdate, Invalid, InventoryInUse, UnknownProvider
from placement_svc.domain.reshaper import (
    ProviderReshape,
    Reshape,
    removed_inventories,
    usages_during_reshape,
)


def reshape(connection: Connection, wanted: Reshape) -> None:
    """Replace the inventories of providers and the allocations of consumers.

    Raises `UnknownProvider` for a provider that does not exist and `ConcurrentUpdate` for one with another
    generation; then the errors of `ClaimService.replace_allocations`; then `InventoryInUse` for an inventory
    that the reshape removes and that still has allocations.
    """
    lock_tree_shape_shared(connection)
    locked = consumers.lock_and_increment(connection, wanted.claims)
    deleted_consumers = consumers.without_allocations(wanted.claims, locked)
    claimed = _claimed_providers(connection, wanted.claims, deleted_consumers)
    found = providers.lock_all(connection, claimed | wanted.providers.keys())
    _check_reshaped_providers(wanted.providers, found)
    check_generations(wanted.claims, {uuid: consumer.generation for uuid, consumer in locked.items()})
    check_providers(wanted.claims, found)
    classes = [name for reshape in wanted.providers.values() for name in reshape.inventories]
    class_ids = names.resource_class_ids(
        connection,
        list(dict.fromkeys([*classes, *resource_classes_of(wanted.claims)])),
        "malformed reshaper data: No such resource class {}.",
        lock=True,
    )
    provider_ids = {uuid: provider.id for uuid, provider in found.items()}
    usages = allocations.release(connection, [consumer.id for consumer in locked.values()], provider_ids)
    check_inventories(wanted.claims, usages_during_reshape(usages, wanted.providers))
    _put_inventories(connection, wanted.providers, found, class_ids)
    allocations.allocate(
        connection,
        wanted.claims,
        consumers_to_delete=deleted_consumers,
        providers_to_increment=[provider_ids[uuid] for uuid in claimed],
    )
    _delete_inventories(connection, removed_inventories(usages, wanted.providers), provider_ids)
    _increment_generations(connection, wanted.providers, provider_ids)


def _claimed_providers(
    connection: Connection, claims: Sequence[Claim], deleted_consumers: Sequence[int]
) -> set[str]:
    """Return the uuids of the providers that `claims` name, and of those that deleted consumers use."""
    named = {provider for claim in claims for provider in claim.allocations}
    used = (
        select(resource_providers.c.uuid)
        .join(allocations_table, allocations_table.c.provider_id == resource_providers.c.id)
        .where(is_any(allocations_table.c.consumer_id, deleted_consumers))
    )
    return named.union(connection.scalars(used))


def _check_reshaped_providers(
    reshapes: Mapping[str, ProviderReshape], found: Mapping[str, LockedProvider]
) -> None:
    for uuid, reshape in reshapes.items():
        if uuid not in found:
            raise UnknownProvider(
                f"Resource provider {uuid} in inventories not found: "
                f"No resource provider with uuid {uuid} found"
            )
        if reshape.generation != found[uuid].generation:
            raise ConcurrentUpdate(
                f"resource provider generation conflict for provider {uuid}: "
                f"actual: {found[uuid].generation}, given: {reshape.generation}"
            )


def _put_inventories(
    connection: Connection,
    reshapes: Mapping[str, ProviderReshape],
    found: Mapping[str, LockedProvider],
    class_ids: Mapping[str, int],
) -> None:
    """Insert and update inventories; their used amounts do not change."""
    class_deleted = Invalid("malformed reshaper data: A resource class was deleted meanwhile.")
    with map_constraints(inventories_resource_class_id_fkey=class_deleted):
        inventories.upsert(
            connection,
            [
                row
                for uuid, reshape in reshapes.items()
                for row in inventories.to_rows(found[uuid], class_ids, reshape.inventories)
            ],
        )


def _delete_inventories(
    connection: Connection, removed: Sequence[tuple[str, str]], provider_ids: Mapping[str, int]
) -> None:
    """Delete inventories by provider uuid and resource class; raise `InventoryInUse` if one is in use.

    Raise `ConcurrentUpdate` if one of the classes has another name now.
    """
    if not removed:
        return
    class_ids = names.ids(connection, resource_classes, {resource_class for _, resource_class in removed})
    if any(name not in class_ids for _, name in removed):
        raise ConcurrentUpdate("update conflict: a resource class was renamed meanwhile.")
    keys = {(uuid, name): (provider_ids[uuid], class_ids[name]) for uuid, name in removed}
    deleted = inventories.remove_unused(connection, keys.values())
    in_use = [pair for pair, key in keys.items() if key not in deleted]
    if in_use:
        uuid = in_use[0][0]
        classes = [resource_class for provider, resource_class in in_use if provider == uuid]
        raise InventoryInUse(f"update conflict: {inventories.in_use_message(uuid, classes)}")


def _increment_generations(
    connection: Connection, reshapes: Mapping[str, ProviderReshape], provider_ids: Mapping[str, int]
) -> None:
    """Increment the generation of each reshaped provider by 2, or by 1 if it has no inventory afterwards.

    One increment is for the removed inventories, one for those that the reshape writes.
    """
    increments = {provider_ids[uuid]: 2 if reshape.inventories else 1 for uuid, reshape in reshapes.items()}
    for by in set(increments.values()):
        ids = [id for id, increment in increments.items() if increment == by]
        providers.increment_generations(connection, ids, by)
