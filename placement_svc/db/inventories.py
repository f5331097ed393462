"""Inventories of resource providers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, not_, select, update
from sqlalchemy.dialects.postgresql import insert

from placement_svc.db import names, providers
from placement_svc.db.errors import map_constraints
from placement_svc.db.filters import is_any
from placement_svc.db.providers import LockedProvider
from placement_svc.db.tables import inventories, resource_classes
from placement_svc.domain.errors import ConcurrentUpdate, Conflict, Invalid, InventoryInUse, NotFound
from placement_svc.domain.inventory import Inventory, ProviderInventories, check_capacities

GENERATION_CONFLICT = "resource provider generation conflict"

_FIELDS = [field.name for field in fields(Inventory)]


def get(connection: Connection, uuid: str, resource_class: str | None = None) -> ProviderInventories:
    """Return the inventories of a provider, or only that of one class, in the order of class ids.

    Raises `NotFound` for an unknown provider; a class that it does not have is just not there.
    """
    provider_id, generation = providers.get_id(connection, uuid)
    modified = func.coalesce(inventories.c.updated_at, inventories.c.created_at)
    query = (
        select(resource_classes.c.name, modified, *(inventories.c[field] for field in _FIELDS))
        .join_from(inventories, resource_classes)
        .where(inventories.c.provider_id == provider_id)
        .order_by(resource_classes.c.id)
    )
    if resource_class is not None:
        query = query.where(resource_classes.c.name == resource_class)
    found = connection.execute(query).all()
    return ProviderInventories(
        generation=generation,
        inventories={name: Inventory(*values) for name, _, *values in found},
        modified=max((modified for _, modified, *_ in found), default=None),
    )


def add(connection: Connection, uuid: str, resource_class: str, inventory: Inventory) -> int:
    """Give a provider an inventory of a class that it has none of; return its new generation.

    Raises `NotFound` for an unknown provider, `Invalid` for an unknown class, and `ConcurrentUpdate`
    for an inventory that is there.
    """
    provider = providers.lock(connection, uuid)
    problem = f"Unable to create inventory for resource provider {uuid}: No such resource class {{}}."
    class_ids = names.resource_class_ids(connection, [resource_class], problem)
    with map_constraints(
        inventories_pkey=ConcurrentUpdate(
            f"Update conflict: resource provider {uuid} has an inventory of class {resource_class}."
        ),
        inventories_resource_class_id_fkey=_class_vanished(uuid),
    ):
        connection.execute(insert(inventories), rows(provider, class_ids, {resource_class: inventory}))
    return providers.increment_generation(connection, provider)


def replace_all(
    connection: Connection,
    uuid: str,
    generation: int,
    wanted: Mapping[str, Inventory],
    least_capacity: int,
) -> int:
    """Give a provider exactly the inventories that are `wanted`, by class; return its new generation.

    Raises `NotFound` for an unknown provider, `ConcurrentUpdate` if it is not at `generation`,
    `Invalid` for a capacity below `least_capacity` and for an unknown class, and `InventoryInUse` if
    there are allocations of a class that is not wanted any more.
    """
    provider = providers.lock_at(connection, uuid, generation, GENERATION_CONFLICT)
    check_capacities(uuid, wanted, least_capacity)
    problem = (
        f"Unknown resource class in inventory for resource provider {uuid}: No such resource class {{}}."
    )
    class_ids = names.resource_class_ids(connection, list(wanted), problem)
    lock_all(connection, [provider.id])
    left = _drop(connection, provider, not_(is_any(inventories.c.resource_class_id, class_ids.values())))
    if left:
        raise InventoryInUse(f"update conflict: {_in_use(uuid, left)}")
    with map_constraints(inventories_resource_class_id_fkey=_class_vanished(uuid)):
        put(connection, rows(provider, class_ids, wanted))
    return providers.increment_generation(connection, provider)


def replace(
    connection: Connection,
    uuid: str,
    generation: int,
    resource_class: str,
    inventory: Inventory,
    least_capacity: int,
) -> int:
    """Change the inventory that a provider has of a class; return the provider's new generation.

    Raises `NotFound` for an unknown provider or class, `ConcurrentUpdate` if the provider is not at
    `generation`, and `Invalid` for a capacity below `least_capacity` and for a class that it has no
    inventory of.
    """
    provider = providers.lock_at(connection, uuid, generation, GENERATION_CONFLICT)
    check_capacities(uuid, {resource_class: inventory}, least_capacity)
    class_id = names.ids(connection, resource_classes, [resource_class]).get(resource_class)
    if class_id is None:
        raise NotFound(f"No such resource class {resource_class}.")
    changed = connection.execute(
        update(inventories)
        .where(inventories.c.provider_id == provider.id, inventories.c.resource_class_id == class_id)
        .values(**asdict(inventory), updated_at=func.now())
    )
    if not changed.rowcount:
        raise Invalid(f"No inventory record with resource class {resource_class} of provider {uuid}.")
    return providers.increment_generation(connection, provider)


def remove(connection: Connection, uuid: str, resource_class: str) -> None:
    """Delete the inventory that a provider has of a class.

    Raises `NotFound` if there is no such provider, class or inventory, and `ConcurrentUpdate` if
    there are allocations of it.
    """
    provider = providers.lock(connection, uuid)
    class_id = select(resource_classes.c.id).where(resource_classes.c.name == resource_class)
    in_use = f"Unable to delete inventory of class {resource_class}: {_in_use(uuid, [resource_class])}"
    with map_constraints(allocations_provider_id_resource_class_id_fkey=ConcurrentUpdate(in_use)):
        gone = connection.execute(
            delete(inventories).where(
                inventories.c.provider_id == provider.id,
                inventories.c.resource_class_id == class_id.scalar_subquery(),
            )
        )
    if not gone.rowcount:
        raise NotFound(f"No inventory of class {resource_class} found for delete")
    providers.increment_generations(connection, [provider.id])


def remove_all(connection: Connection, uuid: str) -> None:
    """Delete all inventories of a provider.

    Raises `NotFound` for an unknown provider, and `InventoryInUse` if there are allocations of any.
    """
    provider = providers.lock(connection, uuid)
    lock_all(connection, [provider.id])
    left = _drop(connection, provider)
    if left:
        raise InventoryInUse(_in_use(uuid, left))
    providers.increment_generations(connection, [provider.id])


def lock_all(connection: Connection, provider_ids: Iterable[int]) -> None:
    """Lock all inventories of some providers, in the order in which everybody locks inventories."""
    connection.execute(
        select(inventories.c.provider_id)
        .where(is_any(inventories.c.provider_id, list(provider_ids)))
        .order_by(inventories.c.provider_id, inventories.c.resource_class_id)
        .with_for_update()
    )


def _drop(connection: Connection, provider: LockedProvider, *which: ColumnElement[bool]) -> list[str]:
    """Delete locked inventories of a provider; return the classes of those that are in use and stay."""
    dropped = (inventories.c.provider_id == provider.id, *which)
    connection.execute(delete(inventories).where(*dropped, inventories.c.used == 0))
    left = (
        select(resource_classes.c.name)
        .join_from(inventories, resource_classes)
        .where(*dropped)
        .order_by(resource_classes.c.id)
    )
    return list(connection.scalars(left))


def put(connection: Connection, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Add and change inventories, given as `rows` of locked providers; what is used of them stays."""
    if wanted:
        new = insert(inventories)
        changes = {field: new.excluded[field] for field in _FIELDS} | {"updated_at": func.now()}
        connection.execute(
            new.on_conflict_do_update(constraint=inventories.primary_key, set_=changes), wanted
        )


def rows(
    provider: LockedProvider, class_ids: Mapping[str, int], wanted: Mapping[str, Inventory]
) -> list[dict[str, Any]]:
    """Return inventories of a locked provider, by class, as rows of their table."""
    return [
        {
            "provider_id": provider.id,
            "root_id": provider.root_id,
            "resource_class_id": class_ids[name],
            **asdict(inventory),
        }
        for name, inventory in wanted.items()
    ]


def _in_use(uuid: str, classes: Iterable[str]) -> str:
    return f"Inventory for '{', '.join(classes)}' on resource provider '{uuid}' in use."


def _class_vanished(uuid: str) -> Conflict:
    return Conflict(f"Race condition detected when setting inventory of resource provider {uuid}.")
