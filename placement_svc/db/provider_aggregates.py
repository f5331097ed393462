"""The aggregates of a resource provider."""

from collections.abc import Collection

from sqlalchemy import Connection, delete, not_, select

from placement_svc.db import providers
from placement_svc.db.aggregates import get_or_create_ids
from placement_svc.db.arrays import insert_missing
from placement_svc.db.filters import is_any
from placement_svc.db.providers import LockedProvider
from placement_svc.db.tables import aggregates, provider_aggregates
from placement_svc.domain.aggregates import ProviderAggregates


def get(connection: Connection, provider_uuid: str) -> ProviderAggregates:
    """Return the aggregates of a provider, oldest first; raise `NotFound`."""
    provider_id, generation = providers.get_id(connection, provider_uuid)
    query = (
        select(aggregates.c.uuid)
        .join_from(aggregates, provider_aggregates)
        .where(provider_aggregates.c.provider_id == provider_id)
        .order_by(aggregates.c.id)
    )
    return ProviderAggregates(generation, list(connection.scalars(query)))


def replace(
    connection: Connection, provider_uuid: str, uuids: Collection[str], generation: int | None
) -> int:
    """Replace the aggregates of a provider; return its generation.

    With a `generation`, the provider must be at that generation, which is incremented. With None, the
    generation is neither compared nor changed. Raise `NotFound` and `ConcurrentUpdate`.
    """
    provider = providers.lock_at(connection, provider_uuid, generation, providers.GENERATION_CHANGED)
    _set(connection, provider, uuids)
    return provider.generation if generation is None else providers.increment_generation(connection, provider)


def change(
    connection: Connection,
    provider_uuid: str,
    generation: int | None,
    *,
    add: Collection[str],
    remove: Collection[str],
) -> ProviderAggregates:
    """Add a provider at `generation` (None: at any) to aggregates, remove it from others; return them all.

    The generation is incremented. Raise `NotFound` and `ConcurrentUpdate`.
    """
    provider = providers.lock_at(connection, provider_uuid, generation, providers.GENERATION_CHANGED)
    current = get(connection, provider_uuid).uuids
    _set(connection, provider, {*current, *add}.difference(remove))
    providers.increment_generation(connection, provider)
    return get(connection, provider_uuid)


def _set(connection: Connection, provider: LockedProvider, uuids: Collection[str]) -> None:
    ids = get_or_create_ids(connection, uuids)
    connection.execute(
        delete(provider_aggregates).where(
            provider_aggregates.c.provider_id == provider.id,
            not_(is_any(provider_aggregates.c.aggregate_id, ids)),
        )
    )
    if ids:
        table = provider_aggregates.c
        rows = [(provider.id, provider.root_id, id) for id in ids]
        insert_missing(connection, [table.provider_id, table.root_id, table.aggregate_id], rows)
