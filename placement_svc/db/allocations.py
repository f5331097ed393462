"""Read allocations, and replace those of locked consumers (`docs/spec/allocations.md 4, 8 and 11`).

A reshape replaces them here, and so does a claim that moves consumers or searches while it holds locks.
Stored procedures grant all other claims (`placement_svc.db.claims.procedures`). Every write locks rows in the
same order (`docs/reliability.md`, "Lock order"), so that the data that was checked does not change before the
commit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select, text

from placement_svc.db import provider_parts, providers
from placement_svc.db.filters import is_any
from placement_svc.db.tables import (
    allocations,
    consumer_types,
    projects,
    resource_classes,
    resource_providers,
    users,
)
from placement_svc.db.tables import consumers as consumers_table
from placement_svc.domain.allocations import UNKNOWN_TYPE, Allocation, Claim, InventoryUsage
from placement_svc.domain.errors import NotFound
from placement_svc.domain.inventory import Inventory

_select_allocations = (
    select(
        consumers_table.c.uuid.label("consumer_uuid"),
        consumers_table.c.generation.label("consumer_generation"),
        projects.c.external_id.label("project_id"),
        users.c.external_id.label("user_id"),
        func.coalesce(consumer_types.c.name, UNKNOWN_TYPE).label("consumer_type"),
        resource_providers.c.uuid.label("provider_uuid"),
        resource_providers.c.generation.label("provider_generation"),
        resource_classes.c.name.label("resource_class"),
        allocations.c.used,
        allocations.c.created_at,
    )
    .join_from(allocations, consumers_table)
    .join(projects)
    .join(users)
    .outerjoin(consumer_types)
    .join(resource_providers, resource_providers.c.id == allocations.c.provider_id)
    .join(resource_classes, resource_classes.c.id == allocations.c.resource_class_id)
    .order_by(allocations.c.consumer_id, allocations.c.provider_id, allocations.c.resource_class_id)
)

_COLUMNS = ("allocation_consumers", "allocation_providers", "allocation_classes", "allocation_amounts")

_RELEASE = text("SELECT * FROM release_allocations(:consumer_ids, :provider_ids)")
_INSERT = select(
    func.insert_allocations(*map(bindparam, (*_COLUMNS, "consumers_to_delete", "providers_to_increment")))
)


def of_consumer(connection: Connection, uuid: str) -> list[Allocation]:
    """Return the allocations of a consumer; none for a consumer that does not exist."""
    return _find(connection, _select_allocations.where(consumers_table.c.uuid == uuid))


def of_consumers(connection: Connection, uuids: Collection[str]) -> list[Allocation]:
    """Return the allocations of several consumers; none of those that do not exist."""
    return _find(connection, _select_allocations.where(is_any(consumers_table.c.uuid, uuids)))


def of_provider(connection: Connection, uuid: str) -> tuple[int, list[Allocation]]:
    """Return the generation of a provider and its allocations; raises `NotFound`."""
    try:
        provider_id, generation = providers.get_id(connection, uuid)
    except NotFound as error:
        raise NotFound(f"Resource provider '{uuid}' not found: {error}") from None
    return generation, _find(connection, _select_allocations.where(allocations.c.provider_id == provider_id))


def of_providers(connection: Connection, uuids: Sequence[str]) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """Return, for each of the providers that exist, its generation and its allocations by consumer."""
    table = resource_providers.c
    query = select(table.uuid, table.id, table.generation).where(is_any(table.uuid, uuids))
    rows = connection.execute(query).all()
    parts = provider_parts.read(connection, [row.id for row in rows], ["allocations"])
    return {row.uuid: (row.generation, parts["allocations"](row.id)) for row in rows}


def _find(connection: Connection, query: Select[tuple[object, ...]]) -> list[Allocation]:
    return [Allocation(**row._mapping) for row in connection.execute(query)]


def release(
    connection: Connection, consumer_ids: Sequence[int], provider_ids: Mapping[str, int]
) -> dict[tuple[str, str], InventoryUsage]:
    """Delete all allocations of locked consumers and return the inventories of `provider_ids`.

    Lock the inventories of the providers in `provider_ids` (ids by uuid, locked by the caller) and of those
    that the consumers used. The usages, by provider uuid and resource class, are those before the deletion:
    `replaced` is the amount that the consumers used.
    """
    rows = connection.execute(
        _RELEASE, {"consumer_ids": consumer_ids, "provider_ids": list(provider_ids.values())}
    )
    return inventory_usages(rows, provider_ids)


def inventory_usages(
    rows: Iterable[Sequence[Any]], provider_ids: Mapping[str, int]
) -> dict[tuple[str, str], InventoryUsage]:
    """Return inventory usages by provider uuid and resource class, of the providers in `provider_ids`.

    A row, as the stored procedures return it, has the provider id, the name of the resource class, the
    fields of `Inventory` in their order, the used amount and the replaced amount.
    """
    uuids = {id: uuid for uuid, id in provider_ids.items()}
    return {
        (uuids[provider_id], resource_class): InventoryUsage(Inventory(*inventory), used, replaced)
        for provider_id, resource_class, *inventory, used, replaced in rows
        if provider_id in uuids
    }


def allocate(
    connection: Connection,
    claims: Sequence[Claim],
    *,
    consumers_to_delete: Sequence[int],
    providers_to_increment: Sequence[int],
) -> None:
    """Insert the allocations of checked `claims`, after `release`.

    Delete `consumers_to_delete` and increment the generations of `providers_to_increment` (ids of locked
    rows).
    """
    parameters = {
        **columns(claims),
        "consumers_to_delete": consumers_to_delete,
        "providers_to_increment": providers_to_increment,
    }
    connection.execute(_INSERT, parameters)


def columns(claims: Sequence[Claim]) -> dict[str, Any]:
    """Return the allocations of `claims` as statement parameters: arrays of equal length."""
    rows = [
        (claim.consumer_uuid, provider, resource_class, amount)
        for claim in claims
        for provider, resources in claim.allocations.items()
        for resource_class, amount in resources.items()
    ]
    arrays = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
    return dict(zip(_COLUMNS, map(list, arrays), strict=True))
