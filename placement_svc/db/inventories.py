"""Inventories of resource providers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, fields
from dataclasses import replace as replace_fields
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    any_,
    delete,
    func,
    literal_column,
    not_,
    select,
    update,
)

from placement_svc.db import names, providers
from placement_svc.db.arrays import array_rows, insert_rows
from placement_svc.db.errors import map_constraints
from placement_svc.db.filters import is_any
from placement_svc.db.providers import LockedProvider
from placement_svc.db.row_locks import KEY_SHARE
from placement_svc.db.tables import inventories, resource_classes
from placement_svc.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    Invalid,
    InventoryInUse,
    NotFound,
    PlacementError,
)
from placement_svc.domain.inventory import Inventory, ProviderInventories, check_capacities
from placement_svc.domain.wording import list_names

GENERATION_CONFLICT = "resource provider generation conflict"

_FIELDS = [field.name for field in fields(Inventory)]
_INSERTED = [inventories.c[name] for name in ("provider_id", "root_id", "resource_class_id", *_FIELDS)]
"""The columns of the rows that `to_rows` returns."""


def get(connection: Connection, uuid: str, resource_class: str | None = None) -> ProviderInventories:
    """Return the inventories of a provider, or only that of one class, in the order of class ids.

    Raise `NotFound` for an unknown provider. A class without an inventory is omitted.
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
    rows = connection.execute(query).all()
    return ProviderInventories(
        generation=generation,
        inventories={name: Inventory(*values) for name, _, *values in rows},
        modified=max((modified for _, modified, *_ in rows), default=None),
    )


def add(connection: Connection, uuid: str, resource_class: str, inventory: Inventory) -> int:
    """Add an inventory to a provider; return the provider's new generation.

    Raise `NotFound` for an unknown provider, `Invalid` for an unknown class, and `ConcurrentUpdate`
    if the provider has an inventory of the class.
    """
    provider = providers.lock(connection, uuid)
    message = f"Unable to create inventory for resource provider {uuid}: No such resource class {{}}."
    class_ids = names.resource_class_ids(connection, [resource_class], message)
    with map_constraints(
        inventories_pkey=ConcurrentUpdate(
            f"Update conflict: resource provider {uuid} has an inventory of class {resource_class}."
        ),
        inventories_resource_class_id_fkey=_class_deleted(uuid),
    ):
        connection.execute(insert_rows(_INSERTED, to_rows(provider, class_ids, {resource_class: inventory})))
    return providers.increment_generation(connection, provider)


def replace_all(
    connection: Connection,
    uuid: str,
    generation: int,
    new_inventories: Mapping[str, Inventory],
    min_capacity: int,
) -> int:
    """Replace all inventories of a provider; return its new generation.

    `new_inventories` are by resource class. Raise `NotFound` for an unknown provider, `ConcurrentUpdate` if
    it is not at `generation`, `Invalid` for a capacity below `min_capacity` or an unknown class, and
    `InventoryInUse` if an inventory to delete has allocations.
    """
    provider = providers.lock_at(connection, uuid, generation, GENERATION_CONFLICT)
    return _set(connection, provider, new_inventories, min_capacity, _class_deleted(uuid))


def change(
    connection: Connection,
    uuid: str,
    generation: int | None,
    changes: Mapping[str, Mapping[str, Any] | None],
) -> ProviderInventories:
    """Change inventories of a provider at `generation` (None: at any); return all its inventories.

    `changes` has for each resource class the fields that change, or None to remove the inventory. A class
    without an inventory gets one. Raise the errors of `replace_all`, and `Invalid` if a new inventory has no
    `total`.
    """
    provider = providers.lock_at(connection, uuid, generation, GENERATION_CONFLICT)
    _lock_classes(connection, provider)
    new_inventories = dict(get(connection, uuid).inventories)
    for name, changed in changes.items():
        current = new_inventories.pop(name, None)
        if changed is None:
            continue
        if current is None and "total" not in changed:
            raise Invalid(f"Provider {uuid} has no inventory of class {name}: to add one, give its 'total'.")
        new_inventories[name] = replace_fields(current, **changed) if current else Inventory(**changed)
    # A PUT is a 409 then, as in OpenStack Placement.
    class_deleted = Invalid("No such resource class: one of them was deleted meanwhile.")
    _set(connection, provider, new_inventories, min_capacity=0, class_deleted=class_deleted)
    return get(connection, uuid)


def _lock_classes(connection: Connection, provider: LockedProvider) -> None:
    """Let requests that rename or delete a class of a provider's inventories wait until the transaction ends.

    The inventories are read with the names of their classes, and written by what has these names then.
    """
    of_provider = select(inventories.c.resource_class_id).where(inventories.c.provider_id == provider.id)
    connection.execute(
        select(resource_classes.c.id)
        .where(resource_classes.c.id.in_(of_provider))
        .order_by(resource_classes.c.id)
        .with_for_update(**KEY_SHARE)
    )


def _set(
    connection: Connection,
    provider: LockedProvider,
    new_inventories: Mapping[str, Inventory],
    min_capacity: int,
    class_deleted: PlacementError,
) -> int:
    """Replace all inventories of a locked provider; return its new generation.

    Raise `class_deleted` if another transaction deletes a class after it was looked up.
    """
    uuid = provider.uuid
    check_capacities(uuid, new_inventories, min_capacity)
    message = (
        f"Unknown resource class in inventory for resource provider {uuid}: No such resource class {{}}."
    )
    class_ids = names.resource_class_ids(connection, list(new_inventories), message)
    providers.lock_inventories(connection, [provider.id])
    in_use = _delete_unused(
        connection, provider, not_(is_any(inventories.c.resource_class_id, class_ids.values()))
    )
    if in_use:
        raise InventoryInUse(f"update conflict: {in_use_message(uuid, in_use)}")
    with map_constraints(inventories_resource_class_id_fkey=class_deleted):
        upsert(connection, to_rows(provider, class_ids, new_inventories))
    return providers.increment_generation(connection, provider)


def replace(
    connection: Connection,
    uuid: str,
    generation: int,
    resource_class: str,
    inventory: Inventory,
    min_capacity: int,
) -> int:
    """Change one inventory of a provider; return the provider's new generation.

    Raise `NotFound` for an unknown provider or class, `ConcurrentUpdate` if the provider is not at
    `generation`, and `Invalid` for a capacity below `min_capacity` or if the provider has no inventory of
    the class.
    """
    provider = providers.lock_at(connection, uuid, generation, GENERATION_CONFLICT)
    check_capacities(uuid, {resource_class: inventory}, min_capacity)
    class_id = names.ids(connection, resource_classes, [resource_class]).get(resource_class)
    if class_id is None:
        raise NotFound(f"No such resource class {resource_class}.")
    updated = connection.execute(
        update(inventories)
        .where(inventories.c.provider_id == provider.id, inventories.c.resource_class_id == class_id)
        .values(**asdict(inventory), updated_at=func.now())
    )
    if not updated.rowcount:
        raise Invalid(f"No inventory record with resource class {resource_class} of provider {uuid}.")
    return providers.increment_generation(connection, provider)


def remove(connection: Connection, uuid: str, resource_class: str) -> None:
    """Delete one inventory of a provider.

    Raise `NotFound` if there is no such provider, class or inventory, and `ConcurrentUpdate` if the
    inventory has allocations.
    """
    provider = providers.lock(connection, uuid)
    class_id = select(resource_classes.c.id).where(resource_classes.c.name == resource_class)
    message = (
        f"Unable to delete inventory of class {resource_class}: {in_use_message(uuid, [resource_class])}"
    )
    with map_constraints(allocations_provider_id_resource_class_id_fkey=ConcurrentUpdate(message)):
        deleted = connection.execute(
            delete(inventories).where(
                inventories.c.provider_id == provider.id,
                inventories.c.resource_class_id == class_id.scalar_subquery(),
            )
        )
    if not deleted.rowcount:
        raise NotFound(f"No inventory of class {resource_class} found for delete")
    providers.increment_generations(connection, [provider.id])


def remove_all(connection: Connection, uuid: str) -> None:
    """Delete all inventories of a provider.

    Raise `NotFound` for an unknown provider, and `InventoryInUse` if an inventory has allocations.
    """
    provider = providers.lock(connection, uuid)
    providers.lock_inventories(connection, [provider.id])
    in_use = _delete_unused(connection, provider)
    if in_use:
        raise InventoryInUse(in_use_message(uuid, in_use))
    providers.increment_generations(connection, [provider.id])


def _delete_unused(
    connection: Connection, provider: LockedProvider, *conditions: ColumnElement[bool]
) -> list[str]:
    """Delete locked inventories of a provider; return the classes of those that remain, being in use."""
    selected = (inventories.c.provider_id == provider.id, *conditions)
    connection.execute(delete(inventories).where(*selected, inventories.c.used == 0))
    remaining_classes = (
        select(resource_classes.c.name)
        .join_from(inventories, resource_classes)
        .where(*selected)
        .order_by(resource_classes.c.id)
    )
    return list(connection.scalars(remaining_classes))


def upsert(connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Insert and update inventories of locked providers, given as `to_rows` returns them.

    The used amounts do not change. One statement, however many rows there are.
    """
    if rows:
        statement = insert_rows(_INSERTED, rows)
        changes = {field: statement.excluded[field] for field in _FIELDS} | {"updated_at": func.now()}
        connection.execute(statement.on_conflict_do_update(constraint=inventories.primary_key, set_=changes))


def remove_unused(connection: Connection, keys: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Delete those of some locked inventories that have no allocations; return the keys of the deleted ones.

    A key is a provider id and a resource class id. The subquery for each key is a lookup by primary key,
    whatever PostgreSQL expects of the sizes of the tables; only if most of the index is dead entries, and the
    statistics are older than these, it can read the whole class. The rows are locked, so their physical
    addresses (ctid) do not change between the lookup and the deletion.
    """
    key = array_rows([inventories.c.provider_id, inventories.c.resource_class_id], keys, "removed")
    found = inventories.alias("found")
    address = (
        select(literal_column("found.ctid"))
        .select_from(found)
        .where(
            found.c.provider_id == key.c.provider_id,
            found.c.resource_class_id == key.c.resource_class_id,
            found.c.used == 0,
        )
        .correlate(key)
        .scalar_subquery()
    )
    addresses = func.array(select(address).select_from(key).scalar_subquery())
    deleted = (
        delete(inventories)
        .where(literal_column("inventories.ctid") == any_(addresses))
        .returning(inventories.c.provider_id, inventories.c.resource_class_id)
    )
    return {(provider_id, class_id) for provider_id, class_id in connection.execute(deleted)}


def to_rows(
    provider: LockedProvider, class_ids: Mapping[str, int], by_class: Mapping[str, Inventory]
) -> list[tuple[Any, ...]]:
    """Return the inventories of a locked provider as rows for `upsert`."""
    return [
        (provider.id, provider.root_id, class_ids[name], *astuple(inventory))
        for name, inventory in by_class.items()
    ]


def in_use_message(uuid: str, classes: Sequence[str]) -> str:
    """Return the message that a provider has allocations of inventories that are to be deleted."""
    return f"Inventory for '{list_names(classes)}' on resource provider '{uuid}' in use."


def _class_deleted(uuid: str) -> Conflict:
    return Conflict(f"Race condition detected when setting inventory of resource provider {uuid}.")
