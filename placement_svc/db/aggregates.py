"""Aggregates, by the providers that are in them.

An aggregate is stored when it is first named, and stays; one that no provider is in is not told about.
"""

from collections.abc import Collection

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects.postgresql import insert

from placement_svc.db.filters import is_any
from placement_svc.db.tables import aggregates, provider_aggregates, resource_providers
from placement_svc.domain.aggregates import AggregateSize, Member
from placement_svc.domain.errors import NotFound


def aggregate_ids(connection: Connection, uuids: Collection[str]) -> list[int]:
    """Return the ids of those aggregates that exist."""
    query = select(aggregates.c.id).where(is_any(aggregates.c.uuid, uuids))
    return list(connection.scalars(query))


def find_or_create(connection: Connection, uuids: Collection[str]) -> list[int]:
    """Return the ids of aggregates, which exist from now on."""
    ids = aggregate_ids(connection, uuids)
    if len(ids) == len(uuids):
        return ids
    # In one order, so that two requests that name the same new aggregates cannot block each other.
    rows = [{"uuid": uuid} for uuid in sorted(uuids)]
    connection.execute(insert(aggregates).values(rows).on_conflict_do_nothing())
    return aggregate_ids(connection, uuids)


def find(connection: Connection) -> list[AggregateSize]:
    """Return every aggregate that a provider is in, oldest first."""
    query = (
        select(aggregates.c.uuid, func.count().label("resource_providers"))
        .join_from(aggregates, provider_aggregates)
        .group_by(aggregates.c.id)
        .order_by(aggregates.c.id)
    )
    return [AggregateSize(**row._mapping) for row in connection.execute(query)]


def members(connection: Connection, uuid: str) -> list[Member]:
    """Return the providers that are in an aggregate, oldest first; raises `NotFound` if none is."""
    query = (
        select(resource_providers.c.uuid, resource_providers.c.name)
        .join_from(aggregates, provider_aggregates)
        .join(resource_providers, resource_providers.c.id == provider_aggregates.c.provider_id)
        .where(aggregates.c.uuid == uuid)
        .order_by(resource_providers.c.id)
    )
    found = [Member(**row._mapping) for row in connection.execute(query)]
    if not found:
        raise NotFound(f"No aggregate with uuid {uuid} found")
    return found
