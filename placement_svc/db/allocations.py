"""Allocations: what consumers hold, and the claims that replace it (`docs/spec/allocations.md 4 to 8`).

Every write locks in this order: consumers by uuid, providers by id, inventories by provider and class.
So requests queue up instead of ending each other, and what is checked is still so at the commit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select, text

from placement_svc.db import consumers, names, providers
from placement_svc.db.consumers import LockedConsumer
from placement_svc.db.engine import Database
from placement_svc.db.tables import (
    allocations,
    consumer_types,
    projects,
    resource_classes,
    resource_providers,
    users,
)
from placement_svc.db.tables import consumers as consumers_table
from placement_svc.domain.allocations import UNKNOWN_TYPE, Allocation, Claim, InventoryUsage, check
from placement_svc.domain.errors import Invalid, NotFound, OutcomeUnknown, Unavailable
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

_HOLDINGS = ("holders", "provider_uuids", "class_names", "amounts")

_PARAMETERS = """(
        %(consumer_uuids)s::text[], %(project_names)s::text[], %(user_names)s::text[],
        %(type_names)s::text[], %(compares_generations)s, %(known_generations)s::numeric[],
        %(holders)s::text[], %(provider_uuids)s::text[], %(class_names)s::text[],
        %(amounts)s::numeric[], NULL
    )
"""
# They tell what there was if they refuse; only the generations of the consumers if these are other ones.
_CLAIM = f"""
    CALL claim{_PARAMETERS}"""
_CLAIM_TOGETHER = f"""
    CALL claim_batch{_PARAMETERS}"""
_REMOVE = "SELECT delete_consumer(%(uuid)s)"
_TAKE_BACK = text("SELECT * FROM release_allocations(:consumer_ids, :provider_ids)")
_GIVE = select(func.insert_allocations(*map(bindparam, (*_HOLDINGS, "emptied", "raised"))))


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


def replace(database: Database, claims: Sequence[Claim], compares_generations: bool, problem: str) -> None:
    """Let each consumer hold what its claim says and nothing else: all of them, or none.

    With `compares_generations` a claim must know its consumer's generation. Raises
    `ConcurrentUpdate` if one does not, `Invalid` for an unknown provider or resource class (`problem`
    with its name for ``{}``), and `Conflict` for what the inventories cannot grant.

    PostgreSQL decides, in one statement, however much is claimed. What it refuses is not done, and it
    tells what there was: by that the reason is found here.
    """
    if compares_generations and len(claims) == 1 and _is_of_new_consumer(claims[0]):
        refused = _claim_in_line(database, claims[0])
    else:
        refused = _claim(database, claims, compares_generations)
    if refused is None:
        return
    if compares_generations:
        consumers.check_generations(claims, refused["generations"])
    check_providers(claims, refused["providers"])
    stocks = _stocks(refused["inventories"], refused["providers"])
    if not {resource_class for _, resource_class in stocks} >= set(classes_of(claims)):
        database.read(names.resource_class_ids, classes_of(claims), problem)
    check(claims, stocks)
    raise AssertionError(f"PostgreSQL refused a claim that can be granted: {refused}")


def _is_of_new_consumer(claim: Claim) -> bool:
    """Tell whether a claim is to be granted only if its consumer is new; it takes back nothing then."""
    return claim.generation is None and bool(claim.allocations)


def _claim_in_line(database: Database, claim: Claim) -> Any:
    """Claim for a new consumer, with others that wait for the same providers; return what refuses it.

    What such claims get together, each would get alone, whoever came first.
    """

    def claim_together(claims: Sequence[Claim]) -> bool:
        try:
            return _claim(database, claims, True, _CLAIM_TOGETHER) is None
        except Invalid:
            return False

    line = frozenset(claim.allocations)
    with database.claims.turn(line, claim.consumer_uuid, claim, claim_together) as is_granted:
        return None if is_granted else _claim(database, [claim], True)


def _claim(
    database: Database, claims: Sequence[Claim], compares_generations: bool, statement: str = _CLAIM
) -> Any:
    """Claim; return what there was if it is refused, None if it is granted.

    Raises `OutcomeUnknown` if that cannot be told. Who compares generations claims once more before that,
    as the same is not granted twice: if they have risen, it may have been by this.
    """
    values = {
        "compares_generations": compares_generations,
        "known_generations": [claim.generation for claim in claims],
        **consumers.owners(claims),
        **_holdings(claims),
    }
    try:
        return database.call(statement, values)
    except OutcomeUnknown as unknown:
        if not compares_generations:
            raise
        try:
            refused = database.call(statement, values)
        except Unavailable:
            raise unknown from None
        if refused is not None and "providers" not in refused:
            raise unknown from None
        return refused


def remove(database: Database, uuid: str) -> None:
    """Delete a consumer with all it holds; raises `NotFound` if that is nothing."""
    if not database.call(_REMOVE, {"uuid": uuid}):
        raise NotFound(f"No allocations for consumer '{uuid}'")


def emptied(claims: Iterable[Claim], locked: Mapping[str, LockedConsumer]) -> list[int]:
    """Return the ids of the consumers that are left with nothing."""
    return [locked[claim.consumer_uuid].id for claim in claims if not claim.allocations]


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
) -> dict[tuple[str, str], InventoryUsage]:
    """Delete what locked consumers hold; lock the inventories of its providers and of some locked ones.

    `provider_ids` are those of the latter by uuid. Return their inventories by provider uuid and
    resource class, as they were before: what is replaced of each is what the consumers held.
    """
    rows = connection.execute(
        _TAKE_BACK, {"consumer_ids": consumer_ids, "provider_ids": list(provider_ids.values())}
    )
    return _stocks(rows, provider_ids)


def _stocks(
    rows: Iterable[Sequence[Any]], provider_ids: Mapping[str, int]
) -> dict[tuple[str, str], InventoryUsage]:
    """Return what `release_allocations` tells of some providers."""
    uuids = {id: uuid for uuid, id in provider_ids.items()}
    return {
        (uuids[provider_id], resource_class): InventoryUsage(Inventory(*inventory), used, replaced)
        for provider_id, resource_class, *inventory, used, replaced in rows
        if provider_id in uuids
    }


def give(
    connection: Connection, claims: Sequence[Claim], emptied: Sequence[int], raised: Sequence[int]
) -> None:
    """Let locked consumers, of whom all was taken back, hold what checked `claims` say.

    Delete those that are left with nothing, and raise the generations of the providers `raised`.
    """
    connection.execute(_GIVE, {**_holdings(claims), "emptied": emptied, "raised": raised})


def _holdings(claims: Sequence[Claim]) -> dict[str, Any]:
    """Return what the consumers of `claims` are to hold, as parameters: lists that belong together."""
    rows = [
        (claim.consumer_uuid, provider, resource_class, amount)
        for claim in claims
        for provider, resources in claim.allocations.items()
        for resource_class, amount in resources.items()
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(_HOLDINGS)
    return dict(zip(_HOLDINGS, map(list, columns), strict=True))
