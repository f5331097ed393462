"""Allocations: what consumers hold, and the claims that replace it (`spec/allocations.md 4 to 8`).

Every write locks in this order: consumers by uuid, providers by id, inventories by provider and class.
So requests queue up instead of ending each other, and what is checked is still so at the commit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import Connection, Select, delete, func, insert, select, text

from placement_svc.db import consumers, names, providers
from placement_svc.db.consumers import LockedConsumer
from placement_svc.db.filters import is_any
from placement_svc.db.providers import LockedProvider
from placement_svc.db.tables import (
    allocations,
    consumer_types,
    projects,
    resource_classes,
    resource_providers,
    users,
)
from placement_svc.db.tables import consumers as consumers_table
from placement_svc.domain.allocations import UNKNOWN_TYPE, Allocation, Claim, Stock, check
from placement_svc.domain.errors import Invalid, NotFound
from placement_svc.domain.inventory import Inventory

_all = (
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

# Proportional to what the consumers hold and the providers have: all of it is found by primary keys.
_LOCK_STOCKS = text("""
    WITH held AS (
        -- What the claims replace. Its consumers are locked, so nobody changes it.
        SELECT provider_id, resource_class_id, sum(used) AS used
          FROM allocations
         WHERE consumer_id = ANY (CAST(:consumer_ids AS bigint[]))
         GROUP BY provider_id, resource_class_id
    ), changing AS (
        SELECT provider_id, resource_class_id FROM held
         UNION
        SELECT provider_id, resource_class_id
          FROM inventories
         WHERE provider_id = ANY (CAST(:provider_ids AS int[]))
    )
    SELECT provider.uuid, class.name, inventory.total, inventory.reserved, inventory.min_unit,
           inventory.max_unit, inventory.step_size, inventory.allocation_ratio, inventory.used,
           coalesce(held.used, 0) AS replaced
      FROM changing
      JOIN inventories AS inventory USING (provider_id, resource_class_id)
      JOIN resource_providers AS provider ON provider.id = provider_id
      JOIN resource_classes AS class ON class.id = resource_class_id
      LEFT JOIN held USING (provider_id, resource_class_id)
     ORDER BY provider_id, resource_class_id
       FOR NO KEY UPDATE OF inventory
""")


def of_consumer(connection: Connection, uuid: str) -> list[Allocation]:
    """Return what a consumer holds; nothing for a consumer that does not exist."""
    return _find(connection, _all.where(consumers_table.c.uuid == uuid))


def of_provider(connection: Connection, uuid: str) -> tuple[int, list[Allocation]]:
    """Return the generation of a provider, and what is held of it; raises `NotFound`."""
    try:
        provider_id, generation = providers.get_id(connection, uuid)
    except NotFound as error:
        raise NotFound(f"Resource provider '{uuid}' not found: {error}") from None
    return generation, _find(connection, _all.where(allocations.c.provider_id == provider_id))


def _find(connection: Connection, query: Select[tuple[object, ...]]) -> list[Allocation]:
    return [Allocation(**row._mapping) for row in connection.execute(query)]


def replace(
    connection: Connection, claims: Sequence[Claim], compares_generations: bool, problem: str
) -> None:
    """Let each consumer hold what its claim says and nothing else: all of them, or none.

    With `compares_generations` a claim must know its consumer's generation. Raises
    `ConcurrentUpdate` if one does not, `Invalid` for an unknown provider or resource class (`problem`
    with its name for ``{}``), and `Conflict` for what the inventories cannot grant.
    """
    locked = consumers.lock_and_raise(connection, claims)
    if compares_generations:
        consumers.check_generations(claims, locked)
    named = lock_providers(connection, providers_of(connection, claims, locked))
    check_providers(claims, named)
    class_ids = names.resource_class_ids(connection, classes_of(claims), problem)
    stocks = lock_stocks(
        connection,
        [consumer.id for consumer in locked.values()],
        [provider.id for provider in named.values()],
    )
    check(claims, stocks)
    store(connection, claims, locked, named, class_ids)
    providers.raise_generation(connection, [provider.id for provider in named.values()])


def remove(connection: Connection, uuid: str) -> None:
    """Delete a consumer with all it holds; raises `NotFound` if that is nothing."""
    query = select(consumers_table.c.id).where(consumers_table.c.uuid == uuid).with_for_update()
    ids = connection.scalars(query).all()
    if not lock_stocks(connection, ids, []):
        raise NotFound(f"No allocations for consumer '{uuid}'")
    _delete_of(connection, ids)
    consumers.remove(connection, ids)


def providers_of(
    connection: Connection, claims: Sequence[Claim], locked: Mapping[str, LockedConsumer]
) -> set[str]:
    """Return the uuids of the providers whose generation a write of `claims` raises.

    They are all that the claims name and all that their emptied consumers hold, but none that a
    consumer only moves away from (`spec/allocations.md 5`, generations).
    """
    named = {provider for claim in claims for provider in claim.allocations}
    emptied = [locked[claim.consumer_uuid].id for claim in claims if not claim.allocations]
    if not emptied:
        return named
    held = (
        select(resource_providers.c.uuid)
        .join(allocations, allocations.c.provider_id == resource_providers.c.id)
        .where(is_any(allocations.c.consumer_id, emptied))
    )
    return named.union(connection.scalars(held))


def lock_providers(connection: Connection, uuids: Iterable[str]) -> dict[str, LockedProvider]:
    """Lock providers against all other writers, and return those that exist by uuid."""
    provider = resource_providers.c
    query = (
        select(provider.id, provider.root_id, provider.uuid, provider.generation)
        .where(is_any(provider.uuid, uuids))
        .order_by(provider.id)
        .with_for_update(key_share=True)
    )
    return {row.uuid: LockedProvider(**row._mapping) for row in connection.execute(query)}


def check_providers(claims: Iterable[Claim], found: Collection[str]) -> None:
    """Refuse claims on providers that are not among the uuids `found`; raises `Invalid`."""
    for claim in claims:
        for provider in claim.allocations:
            if provider not in found:
                raise Invalid(f"Allocation for resource provider '{provider}' that does not exist.")


def classes_of(claims: Iterable[Claim]) -> list[str]:
    """Return the resource classes that `claims` name, each once."""
    resources = (resources for claim in claims for resources in claim.allocations.values())
    return list(dict.fromkeys(resource_class for amounts in resources for resource_class in amounts))


def lock_stocks(
    connection: Connection, consumer_ids: Sequence[int], provider_ids: Sequence[int]
) -> dict[tuple[str, str], Stock]:
    """Lock all inventories of some locked providers, and those of others that locked consumers hold.

    Return them by provider uuid and resource class; what the consumers hold is what will be replaced.
    """
    rows = connection.execute(_LOCK_STOCKS, {"consumer_ids": consumer_ids, "provider_ids": provider_ids})
    return {
        (uuid, resource_class): Stock(Inventory(*inventory), used, replaced)
        for uuid, resource_class, *inventory, used, replaced in rows
    }


def store(
    connection: Connection,
    claims: Sequence[Claim],
    locked: Mapping[str, LockedConsumer],
    named: Mapping[str, LockedProvider],
    class_ids: Mapping[str, int],
) -> None:
    """Replace what the locked consumers hold by what checked `claims` say; delete those left with nothing."""
    present = [consumer.id for consumer in locked.values() if consumer.generation is not None]
    if present:
        _delete_of(connection, present)
    rows = [
        {
            "consumer_id": locked[claim.consumer_uuid].id,
            "provider_id": named[provider].id,
            "resource_class_id": class_ids[resource_class],
            "used": amount,
        }
        for claim in claims
        for provider, resources in claim.allocations.items()
        for resource_class, amount in resources.items()
    ]
    if rows:
        connection.execute(insert(allocations), rows)
    emptied = [locked[claim.consumer_uuid].id for claim in claims if not claim.allocations]
    if emptied:
        consumers.remove(connection, emptied)


def _delete_of(connection: Connection, consumer_ids: Sequence[int]) -> None:
    connection.execute(delete(allocations).where(is_any(allocations.c.consumer_id, consumer_ids)))
