"""The refusal of claims by PostgreSQL, and the reason that the client reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from placement_svc.db import allocations, names
from placement_svc.db.connections.engine import Database
from placement_svc.db.tables import resource_classes
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
) -> NoReturn:
    """Raise the first reason for which `claims` were refused.

    The order is: generation conflict (`ConcurrentUpdate`), unknown provider (`Invalid`), unknown resource
    class (`Invalid`, `unknown_class_message` with its name for ``{}``), then missing inventory, units and
    capacity (`Conflict`). PostgreSQL and `placement_svc.domain.allocations` apply the same rules; an
    `AssertionError` means that they differ.
    """
    if refusal.is_generation_conflict:
        check_generations(claims, refusal.generations)
    else:
        check_providers(claims, refusal.provider_ids)
        _check_resource_classes(database, claims, refusal.usages, unknown_class_message)
        check_inventories(claims, refusal.usages)
    raise AssertionError(f"PostgreSQL refused claims that the rules of this service grant: {refusal!s:.600}")


def _check_resource_classes(
    database: Database, claims: Sequence[Claim], usages: InventoryUsages, message: str
) -> None:
    """Raise `Invalid` for the first resource class that does not exist.

    Read from the database only if a claimed class has no inventory in `usages`, and so may not exist.
    """
    classes = resource_classes_of(claims)
    if {resource_class for _, resource_class in usages} >= set(classes):
        return
    existing = database.read(names.ids, resource_classes, classes)
    for name in classes:
        if name not in existing:
            raise Invalid(message.format(name))
