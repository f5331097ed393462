"""Allocations: what consumers hold, and the claims that replace it (`spec/allocations.md 4 to 8`).

Every write locks in this order: consumers by uuid, providers by id, inventories by provider and class.
So requests queue up instead of ending each other, and what is checked is still so at the commit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import Connection, Select, delete, func, select, text

from placement_svc.db import consumers, names, providers
from placement_svc.db.consumers import LockedConsumer
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

_LOCK_PROVIDERS = text("""
    SELECT id, uuid
      FROM resource_providers
     WHERE id IN (SELECT id FROM resource_providers WHERE uuid = ANY (CAST(:uuids AS text[]))
                   UNION
                  SELECT provider_id
                    FROM allocations
                   WHERE consumer_id = ANY (CAST(:emptied AS bigint[])))
     ORDER BY id
       FOR NO KEY UPDATE
""")

# Proportional to what the consumers hold and the providers have: all of it is found by primary keys.
# The inventories are locked before the trigger on allocations lowers what is used of them, at the end.
_TAKE_BACK = text("""
    WITH taken AS (
        DELETE FROM allocations
         WHERE consumer_id = ANY (CAST(:consumer_ids AS bigint[]))
        RETURNING provider_id, resource_class_id, used
    )
    SELECT inventory.provider_id, class.name, class.id, inventory.total, inventory.reserved,
           inventory.min_unit, inventory.max_unit, inventory.step_size, inventory.allocation_ratio,
           inventory.used,
           (SELECT coalesce(sum(taken.used), 0)
              FROM taken
             WHERE taken.provider_id = inventory.provider_id
               AND taken.resource_class_id = inventory.resource_class_id) AS replaced
      FROM inventories AS inventory
      JOIN resource_classes AS class ON class.id = inventory.resource_class_id
     WHERE inventory.provider_id = ANY (
               CAST(:provider_ids AS int[]) || ARRAY(SELECT provider_id FROM taken)
           )
     ORDER BY inventory.provider_id, inventory.resource_class_id
       FOR NO KEY UPDATE OF inventory
""")

# Generations rise here, not where their rows are locked: a statement that locks a row and changes it looks
# for it twice from its one snapshot, and can meet somebody in between who waits for it.
_GIVE = text("""
    WITH gone AS (
        DELETE FROM consumers WHERE id = ANY (CAST(:emptied AS bigint[]))
    ), raised AS (
        UPDATE resource_providers
           SET generation = generation + 1, updated_at = now()
         WHERE id = ANY (CAST(:raised AS int[]))
    )
    INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)
    SELECT *
      FROM unnest(
               CAST(:consumer_ids AS bigint[]), CAST(:provider_ids AS int[]),
               CAST(:class_ids AS int[]), CAST(:amounts AS int[])
           )
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

    Four statements, however much is claimed, so six round trips with the begin and the commit.
    """
    locked = consumers.lock_and_raise(connection, claims)
    if compares_generations:
        consumers.check_generations(claims, locked)
    provider_ids = _lock_providers(connection, claims, locked)
    check_providers(claims, provider_ids)
    stocks, class_ids = take_back(connection, [consumer.id for consumer in locked.values()], provider_ids)
    if not class_ids.keys() >= set(classes_of(claims)):
        names.resource_class_ids(connection, classes_of(claims), problem)
    check(claims, stocks)
    give(connection, claims, locked, provider_ids, class_ids, list(provider_ids.values()))


def remove(connection: Connection, uuid: str) -> None:
    """Delete a consumer with all it holds; raises `NotFound` if that is nothing."""
    query = select(consumers_table.c.id).where(consumers_table.c.uuid == uuid).with_for_update()
    ids = connection.scalars(query).all()
    if not ids:
        raise NotFound(f"No allocations for consumer '{uuid}'")
    take_back(connection, ids, {})
    connection.execute(delete(consumers_table).where(is_any(consumers_table.c.id, ids)))


def emptied(claims: Iterable[Claim], locked: Mapping[str, LockedConsumer]) -> list[int]:
    """Return the ids of the consumers that are left with nothing."""
    return [locked[claim.consumer_uuid].id for claim in claims if not claim.allocations]


def _lock_providers(
    connection: Connection, claims: Sequence[Claim], locked: Mapping[str, LockedConsumer]
) -> dict[str, int]:
    """Lock the providers whose generations `claims` raise against all other writers; return their ids.

    They are all that the claims name and all that their emptied consumers hold, but none that a
    consumer only moves away from (`spec/allocations.md 5`, generations).
    """
    named = {provider for claim in claims for provider in claim.allocations}
    rows = connection.execute(_LOCK_PROVIDERS, {"uuids": list(named), "emptied": emptied(claims, locked)})
    return {uuid: id for id, uuid in rows}


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


def take_back(
    connection: Connection, consumer_ids: Sequence[int], provider_ids: Mapping[str, int]
) -> tuple[dict[tuple[str, str], Stock], dict[str, int]]:
    """Delete what locked consumers hold; lock the inventories of its providers and of some locked ones.

    `provider_ids` are those of the latter by uuid. Return their inventories by provider uuid and
    resource class, as they were before: what is replaced of each is what the consumers held. And
    return the ids of the resource classes.
    """
    uuids = {id: uuid for uuid, id in provider_ids.items()}
    rows = connection.execute(
        _TAKE_BACK, {"consumer_ids": consumer_ids, "provider_ids": list(provider_ids.values())}
    )
    stocks, class_ids = {}, {}
    for provider_id, resource_class, class_id, *inventory, used, replaced in rows:
        if provider_id in uuids:
            stocks[uuids[provider_id], resource_class] = Stock(Inventory(*inventory), used, replaced)
            class_ids[resource_class] = class_id
    return stocks, class_ids


def give(
    connection: Connection,
    claims: Sequence[Claim],
    locked: Mapping[str, LockedConsumer],
    provider_ids: Mapping[str, int],
    class_ids: Mapping[str, int],
    raised: Sequence[int],
) -> None:
    """Let locked consumers, of whom all was taken back, hold what checked `claims` say.

    Delete those that are left with nothing, and raise the generations of the providers `raised`.
    """
    rows = [
        (locked[claim.consumer_uuid].id, provider_ids[provider], class_ids[resource_class], amount)
        for claim in claims
        for provider, resources in claim.allocations.items()
        for resource_class, amount in resources.items()
    ]
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    arrays = zip(("consumer_ids", "provider_ids", "class_ids", "amounts"), map(list, columns), strict=True)
    connection.execute(_GIVE, {"emptied": emptied(claims, locked), "raised": raised, **dict(arrays)})
