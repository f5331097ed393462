"""Aggregates and their members.

An aggregate is stored when a request first names it, and is never deleted. Aggregates without providers
are not listed.
"""

from collections.abc import Collection

from sqlalchemy import Connection, func, select

from placement_svc.db.arrays import insert_missing
from placement_svc.db.filters import is_any
from placement_svc.db.tables import aggregates, provider_aggregates, resource_providers
from placement_svc.domain.aggregates import AggregateMember, AggregateSize
from placement_svc.domain.errors import NotFound


def aggregate_ids(connection: Connection, uuids: Collection[str]) -> dict[str, int]:
    """Return the ids of the aggregates among `uuids` that exist, by uuid."""
    query = select(aggregates.c.uuid, aggregates.c.id).where(is_any(aggregates.c.uuid, uuids))
    return dict(connection.execute(query).all())


def get_or_create_ids(connection: Connection, uuids: Collection[str]) -> list[int]:
    """Return the ids of aggregates; create those that do not exist."""
    ids = aggregate_ids(connection, uuids)
    if len(ids) == len(uuids):
        return list(ids.values())
    # Sorted: two requests that create the same aggregates insert them in one order and cannot deadlock.
    insert_missing(connection, [aggregates.c.uuid], [(uuid,) for uuid in sorted(uuids)])
    return list(aggregate_ids(connection, uuids).values())


def uuids_of_tree(connection: Connection, root_uuid: str) -> frozenset[str]:
    """Return the uuids of the aggregates of all providers of a tree."""
    root_id = select(resource_providers.c.id).where(resource_providers.c.uuid == root_uuid)
    query = (
        select(aggregates.c.uuid)
        .join(provider_aggregates)
        .where(provider_aggregates.c.root_id == root_id.scalar_subquery())
        .distinct()
    )
    return frozenset(connection.execute(query).scalars())


def find(connection: Connection) -> list[AggregateSize]:
    """Return every aggregate that has a provider, oldest first."""
    query = (
        select(aggregates.c.uuid, func.count().label("resource_providers"))
        .join_from(aggregates, provider_aggregates)
        .group_by(aggregates.c.id)
        .order_by(aggregates.c.id)
    )
    return [AggregateSize(**row._mapping) for row in connection.execute(query)]


def members(connection: Connection, uuid: str) -> list[AggregateMember]:
    """Return the providers in an aggregate, oldest first; raise `NotFound` if there are none."""
    query = (
        select(resource_providers.c.uuid, resource_providers.c.name)
        .join_from(aggregates, provider_aggregates)
        .join(resource_providers, resource_providers.c.id == provider_aggregates.c.provider_id)
        .where(aggregates.c.uuid == uuid)
        .order_by(resource_providers.c.id)
    )
    providers = [AggregateMember(**row._mapping) for row in connection.execute(query)]
    if not providers:
        raise NotFound(f"No aggregate with uuid {uuid} found")
    return providers
