"""Conditions on one provider, as SQL: what it has room for, which traits and aggregates it has.

They are built for every request, so they share a few aliases of the tables: making one anew costs more
than the rest of a condition. A condition is a subquery of its own, where an alias means what it says.
"""

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Boolean, ColumnElement, FromClause, and_, any_, exists, false, func, literal, not_
from sqlalchemy.dialects.postgresql import ARRAY

from placement_svc.db.tables import provider_aggregates
from placement_svc.domain.inventory import MAX_INTEGER

_joined = provider_aggregates.alias("joined")


def is_any(column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Return the condition that `column` is one of `values`, which are one parameter however many."""
    return column == any_(literal(sorted(values), ARRAY(column.type)))


def fits(inventory: FromClause, resource_class_id: int, amount: int) -> ColumnElement[bool]:
    """Return the condition that `inventory` is of this class and can give `amount` of it right now.

    Served by the indexes on (root_id, resource_class_id) and on (resource_class_id, max_allocatable).
    """
    if amount > MAX_INTEGER:
        return false()
    return and_(
        inventory.c.resource_class_id == resource_class_id,
        # max_allocatable is max_unit or, if that is less, the free capacity; PostgreSQL inlines the function,
        # so the condition on it can use the index.
        func.fits_units(
            amount,
            inventory.c.min_unit,
            inventory.c.max_allocatable,
            inventory.c.step_size,
            type_=Boolean,
        ),
    )


def has_traits(
    provider: FromClause, required: Collection[Collection[int]], forbidden: Collection[int] = ()
) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions that `provider` itself has one trait of each clause and none of the forbidden.

    They are asked of the provider's own row, all at once, however many traits there are.
    """
    held = provider.c.trait_ids
    alone = [trait_id for clause in required if len(clause) == 1 for trait_id in clause]
    if alone:
        yield held.contains(sorted(alone))
    for clause in required:
        if len(clause) > 1:
            yield held.overlap(sorted(clause))
    if forbidden:
        yield not_(held.overlap(sorted(forbidden)))


def in_any_aggregate(provider_id: ColumnElement[int], aggregate_ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a provider is itself in at least one of these aggregates."""
    return exists().where(_joined.c.provider_id == provider_id, is_any(_joined.c.aggregate_id, aggregate_ids))
