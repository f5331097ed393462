"""Parts of several resource providers: what the single reads return, one statement for each kind of part."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, any_, func, select, true

from placement_svc.db.filters import is_any
from placement_svc.db.tables import (
    aggregates,
    allocations,
    consumers,
    inventories,
    provider_aggregates,
    resource_classes,
    resource_providers,
    traits,
)
from placement_svc.domain.inventory import Inventory

_INVENTORY_FIELDS = [field.name for field in fields(Inventory)]

Part = Callable[[int], Any]
"""The part of the provider with this id: a list or a dict, empty if the provider has nothing of the kind."""


def read(connection: Connection, provider_ids: Sequence[int], kinds: Collection[str]) -> dict[str, Part]:
    """Return the parts of the given kinds of some providers, by kind.

    The kinds are `inventories`, `usages`, `traits`, `aggregates` and `allocations`.
    """
    return {kind: _READERS[kind](connection, provider_ids) for kind in _READERS if kind in kinds}


def _inventories(connection: Connection, provider_ids: Sequence[int]) -> Part:
    query = (
        select(
            inventories.c.provider_id,
            resource_classes.c.name,
            *(inventories.c[field] for field in _INVENTORY_FIELDS),
        )
        .join_from(inventories, resource_classes)
        .where(is_any(inventories.c.provider_id, provider_ids))
        .order_by(inventories.c.provider_id, resource_classes.c.id)
    )
    found: dict[int, dict[str, Any]] = {}
    for provider_id, name, *values in connection.execute(query).all():
        found.setdefault(provider_id, {})[name] = dict(zip(_INVENTORY_FIELDS, values, strict=True))
    return lambda provider_id: found.get(provider_id, {})


def _usages(connection: Connection, provider_ids: Sequence[int]) -> Part:
    query = (
        select(inventories.c.provider_id, resource_classes.c.name, inventories.c.used)
        .join_from(inventories, resource_classes)
        .where(is_any(inventories.c.provider_id, provider_ids))
        .order_by(inventories.c.provider_id, resource_classes.c.id)
    )
    found: dict[int, dict[str, int]] = {}
    for provider_id, name, used in connection.execute(query).all():
        found.setdefault(provider_id, {})[name] = used
    return lambda provider_id: found.get(provider_id, {})


def _traits(connection: Connection, provider_ids: Sequence[int]) -> Part:
    # Many hosts have the same hundred traits: one row for each set of traits, not for each host.
    trait_ids = resource_providers.c.trait_ids
    names = select(traits.c.name).where(traits.c.id == any_(trait_ids)).order_by(traits.c.id)
    query = (
        select(
            func.array(names.correlate(resource_providers).scalar_subquery()),
            func.array_agg(resource_providers.c.id),
        )
        .where(is_any(resource_providers.c.id, provider_ids))
        .group_by(trait_ids)
    )
    found = {
        provider_id: names for names, holders in connection.execute(query).all() for provider_id in holders
    }
    return lambda provider_id: found[provider_id]


def _aggregates(connection: Connection, provider_ids: Sequence[int]) -> Part:
    query = (
        select(provider_aggregates.c.provider_id, aggregates.c.uuid)
        .join_from(provider_aggregates, aggregates)
        .where(is_any(provider_aggregates.c.provider_id, provider_ids))
        .order_by(provider_aggregates.c.provider_id, aggregates.c.id)
    )
    found: dict[int, list[str]] = {}
    for provider_id, uuid in connection.execute(query).all():
        found.setdefault(provider_id, []).append(uuid)
    return lambda provider_id: found.get(provider_id, [])


def _allocations(connection: Connection, provider_ids: Sequence[int]) -> Part:
    # The rows are sorted before they get their uuids, so that more of them fit the memory for sorting.
    # OFFSET 0 makes PostgreSQL find each consumer by its key: for a join with thousands of rows, it reads all
    # consumers.
    allocated = (
        select(allocations)
        .where(is_any(allocations.c.provider_id, provider_ids))
        .order_by(allocations.c.provider_id, allocations.c.consumer_id, allocations.c.resource_class_id)
        .subquery("allocated")
    )
    consumer = (
        select(consumers.c.uuid, consumers.c.generation)
        .where(consumers.c.id == allocated.c.consumer_id)
        .offset(0)
        .lateral("consumer")
    )
    query = (
        select(
            allocated.c.provider_id,
            consumer.c.uuid,
            consumer.c.generation,
            resource_classes.c.name,
            allocated.c.used,
        )
        .join_from(allocated, consumer, true())
        .join(resource_classes, resource_classes.c.id == allocated.c.resource_class_id)
    )
    found: dict[int, dict[str, dict[str, Any]]] = {}
    for provider_id, uuid, generation, name, used in connection.execute(query).all():
        by_consumer = found.setdefault(provider_id, {})
        if uuid not in by_consumer:
            by_consumer[uuid] = {"resources": {}, "consumer_generation": generation}
        by_consumer[uuid]["resources"][name] = used
    return lambda provider_id: found.get(provider_id, {})


_READERS: Mapping[str, Callable[[Connection, Sequence[int]], Part]] = {
    "inventories": _inventories,
    "usages": _usages,
    "traits": _traits,
    "aggregates": _aggregates,
    "allocations": _allocations,
}
