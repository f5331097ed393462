"""The facts that order candidates: free amounts, preferred traits and uuids of suppliers."""

import secrets
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    and_,
    any_,
    cast,
    func,
    literal,
    null,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY

from placement_svc.db.engine import each_driver_row
from placement_svc.db.filters import int_array, is_any
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
    provider, inventory = resource_providers.c, inventories.c
    free: ColumnElement[Any] = cast(null(), BigInteger)
    source: Any = resource_providers
    if class_id is not None:
        is_of_class = and_(inventory.provider_id == provider.id, inventory.resource_class_id == class_id)
        source = source.outerjoin(inventories, is_of_class)
        free = inventory.capacity - inventory.used
    # The subquery hides from the planner how many ids there are: it would make an estimate for each.
    is_wanted = provider.id == any_(cast(select(int_array(provider_ids)).scalar_subquery(), ARRAY(Integer)))
    query = (
        select(provider.id, provider.uuid, free, _preferred_traits(ordering))
        .select_from(source)
        .where(is_wanted)
    )
    for id_, uuid, amount, trait_ids in deadline.checked(each_driver_row(connection, query, {})):
        memory.reserve(FACTS_SIZE)
        facts.uuids[id_] = f"{UNDRAWN}{secrets.token_hex(8)}" if ordering.is_random else uuid
        if amount is not None:
            facts.free[id_] = amount
        if trait_ids:
            facts.preferred[id_] = frozenset(trait_ids)
    return facts


def _preferred_traits(ordering: Ordering) -> ColumnElement[Any]:
    """Return the preferred traits that a provider has: a host has a hundred others."""
    if not ordering.preferred:
        return cast(literal("{}"), ARRAY(Integer))
    held = func.unnest(resource_providers.c.trait_ids, type_=Integer).column_valued("held")
    return func.array(select(held).where(is_any(held, ordering.preferred)).scalar_subquery())
