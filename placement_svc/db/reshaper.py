"""Reshapes: inventories and allocations change together (`docs/spec/allocations.md 11`)."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, select, tuple_

from placement_svc.db import allocations, consumers, inventories, names, providers
from placement_svc.db.consumers import LockedConsumer
from placement_svc.db.errors import map_constraints
from placement_svc.db.filters import is_any
from placement_svc.db.provider_trees import lock_tree_shape_shared
from placement_svc.db.providers import LockedProvider
from placement_svc.db.tables import allocations as allocations_table
from placement_svc.db.tables import inventories as inventories_table
from placement_svc.db.tables import resource_classes, resource_providers
from placement_svc.domain.allocations import Claim, check
from placement_svc.domain.errors import ConcurrentUpdate, Invalid, InventoryInUse, UnknownProvider
from placement_svc.domain.reshaper import ProviderReshape, Reshape, dropped, union


def reshape(connection: Connection, wanted: Reshape) -> None:
    """Give providers exactly the inventories, and consumers exactly the allocations, that are wanted.

    Raises `UnknownProvider` and `ConcurrentUpdate` for a provider that is not there or not at its
    generation, then what `allocations.replace` raises, and `InventoryInUse` when there still are
    allocations of an inventory that is to go.
    """
    lock_tree_shape_shared(connection)
    locked = consumers.lock_and_increment(connection, wanted.claims)
    claimed = _claimed(connection, wanted.claims, locked)
    found = providers.lock_all(connection, claimed | wanted.providers.keys())
    _check_providers(wanted.providers, found)
    consumers.check_generations(
        wanted.claims, {uuid: consumer.generation for uuid, consumer in locked.items()}
    )
    allocations.check_providers(wanted.claims, found)
    classes = [name for reshape in wanted.providers.values() for name in reshape.inventories]
    class_ids = names.resource_class_ids(
        connection,
        [*classes, *allocations.classes_of(wanted.claims)],
        "malformed reshaper data: No such resource class {}.",
    )
    provider_ids = {uuid: provider.id for uuid, provider in found.items()}
    stocks = allocations.take_back(connection, [consumer.id for consumer in locked.values()], provider_ids)
    check(wanted.claims, union(stocks, wanted.providers))
    _put(connection, wanted.providers, found, class_ids)
    allocations.give(
        connection,
        wanted.claims,
        allocations.emptied(wanted.claims, locked),
        [provider_ids[uuid] for uuid in claimed],
    )
    _drop(connection, dropped(stocks, wanted.providers))
    _raise_generations(connection, wanted.providers, provider_ids)


def _claimed(
    connection: Connection, claims: Sequence[Claim], locked: Mapping[str, LockedConsumer]
) -> set[str]:
    """Return the uuids of the providers that `claims` name, and of those that emptied consumers hold."""
    named = {provider for claim in claims for provider in claim.allocations}
    held = (
        select(resource_providers.c.uuid)
        .join(allocations_table, allocations_table.c.provider_id == resource_providers.c.id)
        .where(is_any(allocations_table.c.consumer_id, allocations.emptied(claims, locked)))
    )
    return named.union(connection.scalars(held))


def _check_providers(reshapes: Mapping[str, ProviderReshape], found: Mapping[str, LockedProvider]) -> None:
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


def _put(
    connection: Connection,
    reshapes: Mapping[str, ProviderReshape],
    found: Mapping[str, LockedProvider],
    class_ids: Mapping[str, int],
) -> None:
    """Add and change inventories; what is used of them stays."""
    vanished = Invalid("malformed reshaper data: A resource class was deleted meanwhile.")
    with map_constraints(inventories_resource_class_id_fkey=vanished):
        inventories.upsert(
            connection,
            [
                row
                for uuid, reshape in reshapes.items()
                for row in inventories.to_rows(found[uuid], class_ids, reshape.inventories)
            ],
        )


def _drop(connection: Connection, going: Sequence[tuple[str, str]]) -> None:
    """Delete inventories by provider uuid and resource class; raises `InventoryInUse` if one is in use."""
    if not going:
        return
    query = (
        delete(inventories_table)
        .where(
            inventories_table.c.provider_id == resource_providers.c.id,
            inventories_table.c.resource_class_id == resource_classes.c.id,
            resource_providers.c.uuid.in_({uuid for uuid, _ in going}),
            tuple_(resource_providers.c.uuid, resource_classes.c.name).in_(going),
            inventories_table.c.used == 0,
        )
        .returning(resource_providers.c.uuid, resource_classes.c.name)
    )
    gone = set(connection.execute(query))
    left = [pair for pair in going if pair not in gone]
    if left:
        uuid = left[0][0]
        classes = ", ".join(resource_class for provider, resource_class in left if provider == uuid)
        raise InventoryInUse(
            f"update conflict: Inventory for '{classes}' on resource provider '{uuid}' in use."
        )


def _raise_generations(
    connection: Connection, reshapes: Mapping[str, ProviderReshape], provider_ids: Mapping[str, int]
) -> None:
    """Count the writes of each reshaped provider: of the inventories it gets, and of those it loses."""
    raises = {provider_ids[uuid]: 2 if reshape.inventories else 1 for uuid, reshape in reshapes.items()}
    for by in set(raises.values()):
        providers.increment_generations(connection, [id for id, times in raises.items() if times == by], by)
