"""The facts that order candidates: free amounts, preferred traits and uuids of suppliers."""

import secrets
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, and_, bindparam, null, select

from placement_svc.db.filters import any_id, held_among, ids_text
from placement_svc.db.prepared import FixedStatement, each_fixed_row
from placement_svc.db.tables import inventories, resource_providers
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.memory import MemoryBudget
from placement_svc.domain.ordering import Ordering, SupplierFacts

UNDRAWN = "1"
"""The first character of the random texts; those of roots that are drawn one by one start with `0`."""

FACTS_SIZE = 400
"""Bytes of memory that the facts of a provider need, approximately."""


def read_facts(
    connection: Connection,
    ordering: Ordering,
    class_id: int | None,
    provider_ids: Iterable[int],
    deadline: Deadline,
    memory: MemoryBudget,
) -> SupplierFacts:
    """Return the facts of these providers, in one statement that reads them by their primary keys.

    If the order is random, ties are decided by random texts instead of uuids.
    """
    facts = SupplierFacts()
    values = {
        "class_id": class_id,
        "provider_ids": ids_text(provider_ids),
        "trait_ids": ids_text(ordering.preferred),
    }
    statement = _FACTS_WITH_TRAITS if ordering.preferred else _FACTS
    for id_, uuid, amount, trait_ids in deadline.checked(each_fixed_row(connection, statement, values)):
        memory.reserve(FACTS_SIZE)
        facts.uuids[id_] = f"{UNDRAWN}{secrets.token_hex(8)}" if ordering.is_random else uuid
        if amount is not None:
            facts.free[id_] = amount
        if trait_ids:
            facts.preferred[id_] = frozenset(trait_ids)
    return facts


def _select_facts(preferred_traits: ColumnElement[Any]) -> FixedStatement:
    provider, inventory = resource_providers.c, inventories.c
    is_of_class = and_(
        inventory.provider_id == provider.id,
        inventory.resource_class_id == bindparam("class_id", type_=Integer),
    )
    query = (
        select(provider.id, provider.uuid, inventory.capacity - inventory.used, preferred_traits)
        .select_from(resource_providers.outerjoin(inventories, is_of_class))
        .where(provider.id == any_id("provider_ids"))
    )
    return FixedStatement(query, {"class_id": "integer", "provider_ids": "text", "trait_ids": "text"})


_FACTS_WITH_TRAITS = _select_facts(held_among("trait_ids"))
_FACTS = _select_facts(null())
