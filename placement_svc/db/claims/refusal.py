"""The refusal of claims by PostgreSQL, and the reason that the client reads."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from placement_svc.db import allocations, names
from placement_svc.db.connections.engine import Database
from placement_svc.db.filters import is_any
from placement_svc.db.tables import inventories, resource_classes
from placement_svc.domain.allocations import (
    Claim,
    InventoryUsages,
    check_generations,
    check_inventories,
    check_providers,
    resource_classes_of,
)
from placement_svc.domain.errors import Invalid

# Keys of the JSON document with which the stored procedures refuse claims: `apply_claims.sql` describes it.
# After a generation conflict, it has only the key GENERATIONS; otherwise it has all three.
GENERATIONS = "generations"
PROVIDERS = "providers"
INVENTORIES = "inventories"


@dataclass(frozen=True)
class Refusal:
    """The stored data for which PostgreSQL refused some claims. Nothing of them was committed.

    `generations` has the stored generation of each consumer by uuid, None for a new consumer.
    `provider_ids` has, by uuid, the existing providers that the claims name, or from which the consumers to
    delete have allocations; `usages` has all inventories of these providers. After a generation
    conflict, PostgreSQL does not look at providers: both are empty.
    """

    generations: Mapping[str, int | None]
    is_generation_conflict: bool
    provider_ids: Mapping[str, int]
    usages: InventoryUsages

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Refusal":
        """Return the refusal that a stored procedure reports."""
        is_generation_conflict = document.keys() == {GENERATIONS}
        provider_ids = {} if is_generation_conflict else document[PROVIDERS]
        inventories = () if is_generation_conflict else document[INVENTORIES]
        return cls(
            generations=document[GENERATIONS],
            is_generation_conflict=is_generation_conflict,
            provider_ids=provider_ids,
            usages=allocations.inventory_usages(inventories, provider_ids),
        )


def raise_reason(
    database: Database, claims: Sequence[Claim], refusal: Refusal, unknown_class_message: str
) -> None:
    """Raise the first reason for which `claims` were refused; return if there is none.

    The order is: generation conflict (`ConcurrentUpdate`), unknown provider (`Invalid`), unknown resource
    class (`Invalid`, `unknown_class_message` with its name for ``{}``), then missing inventory, units and
    capacity (`Conflict`). PostgreSQL and `placement_svc.domain.allocations` apply the same rules. So there
    can only be no reason if a resource class was renamed between the refusal and the reading of the data for
    its reason.
    """
    if refusal.is_generation_conflict:
        check_generations(claims, refusal.generations)
        return
    check_providers(claims, refusal.provider_ids)
    if _are_missing(database, claims, refusal, unknown_class_message):
        check_inventories(claims, refusal.usages)


def _are_missing(database: Database, claims: Sequence[Claim], refusal: Refusal, message: str) -> bool:
    """Return whether all inventories that the refusal lacks are missing in one snapshot, too.

    Raise `Invalid` for the first resource class that does not exist in this snapshot.
    """
    claimed = {
        (provider, resource_class)
        for claim in claims
        for provider, resources in claim.allocations.items()
        for resource_class in resources
    }
    missing = claimed - refusal.usages.keys()
    if not missing:
        return True
    classes = resource_classes_of(claims)
    existing, stored = database.read(_read_classes_and_inventories, classes, refusal.provider_ids)
    for name in classes:
        if name not in existing:
            raise Invalid(message.format(name))
    return missing.isdisjoint(stored)


def _read_classes_and_inventories(
    connection: Connection, classes: Collection[str], provider_ids: Mapping[str, int]
) -> tuple[Collection[str], set[tuple[str, str]]]:
    """Return those of the classes that exist, and the inventories of these that the providers have."""
    class_ids = names.ids(connection, resource_classes, classes)
    query = select(inventories.c.provider_id, inventories.c.resource_class_id).where(
        is_any(inventories.c.provider_id, provider_ids.values()),
        is_any(inventories.c.resource_class_id, class_ids.values()),
    )
    uuids = {id_: uuid for uuid, id_ in provider_ids.items()}
    class_names = {id_: name for name, id_ in class_ids.items()}
    rows = connection.execute(query)
    return class_ids, {(uuids[provider_id], class_names[class_id]) for provider_id, class_id in rows}
