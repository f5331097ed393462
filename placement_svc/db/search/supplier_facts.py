"""The facts that order candidates: free amounts, preferred traits and uuids of suppliers."""

import random
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, and_, bindparam, null, select

from placement_svc.db.filters import any_id, free_amount, held_among, ids_text
from placement_svc.db.prepared import FixedStatement, fetch_rows
from placement_svc.db.tables import inventories, resource_providers
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.memory import MemoryBudget
from placement_svc.domain.ordering import Ordering, SupplierFacts

UNDRAWN = "1"
"""The first character of the random texts; those of roots that are drawn one by one start with `0`."""

TEXT_SIZE = 200
"""Bytes of memory that the random text of a provider needs, approximately."""

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

    If the order is random, `RandomTexts` decide ties instead of uuids, which are left out.
    """
    values = {
        "class_id": class_id,
        "provider_ids": ids_text(provider_ids),
        "trait_ids": ids_text(ordering.preferred),
    }
    statement = _FACTS_WITH_TRAITS if ordering.preferred else _FACTS
    rows = fetch_rows(connection, statement, values)
    memory.reserve(FACTS_SIZE * len(rows))
    deadline.check()
    free = {id_: amount for id_, _, amount, _ in rows if amount is not None}
    preferred = {id_: frozenset(trait_ids) for id_, _, _, trait_ids in rows if trait_ids}
    uuids = {} if ordering.is_random else {id_: uuid for id_, uuid, _, _ in rows}
    return SupplierFacts(free, preferred, uuids)


class RandomTexts(dict[int, str]):
    """A random text for each provider, which decides ties like a uuid; it is drawn at its first use."""

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory

    def __missing__(self, provider_id: int) -> str:
        self._memory.reserve(TEXT_SIZE)
        text = self[provider_id] = f"{UNDRAWN}{random.getrandbits(64):016x}"
        return text


def _select_facts(preferred_traits: ColumnElement[Any]) -> FixedStatement:
    provider, inventory = resource_providers.c, inventories.c
    is_of_class = and_(
        inventory.provider_id == provider.id,
        inventory.resource_class_id == bindparam("class_id", type_=Integer),
    )
    query = (
        select(provider.id, provider.uuid, free_amount(inventories), preferred_traits)
        .select_from(resource_providers.outerjoin(inventories, is_of_class))
        .where(provider.id == any_id("provider_ids"))
    )
    return FixedStatement(query, {"class_id": "integer", "provider_ids": "text", "trait_ids": "text"})


_FACTS_WITH_TRAITS = _select_facts(held_among("trait_ids"))
_FACTS = _select_facts(null())
