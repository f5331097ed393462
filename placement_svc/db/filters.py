"""SQL conditions on one resource provider: its inventories, traits and aggregates.

They are built for every request, so the aliases of tables are shared: creating an alias costs more than the
rest of a condition. Sharing is safe because each condition that uses an alias is a subquery of its own.
"""

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Boolean, ColumnElement, FromClause, and_, any_, exists, false, func, literal, not_
from sqlalchemy.dialects.postgresql import ARRAY

from placement_svc.db.tables import provider_aggregates
from placement_svc.domain.inventory import MAX_INTEGER

_member_of = provider_aggregates.alias("member_of")


def is_any(column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    """Return the condition that `column` is one of `values`, which are sent as one array parameter."""
    return column == any_(literal(sorted(values), ARRAY(column.type)))


def fits(inventory: FromClause, resource_class_id: int, amount: int) -> ColumnElement[bool]:
    """Return the condition that `inventory` is of this class and a new allocation can get `amount` of it.

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
    provider: FromClause, any_of: Collection[Collection[int]], forbidden: Collection[int] = ()
) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions that `provider` has a trait of each set in `any_of` and none of `forbidden`.

    They read the provider's own row, and all traits that are required singly make one condition.
    """
    trait_ids = provider.c.trait_ids
    single = [trait_id for ids in any_of if len(ids) == 1 for trait_id in ids]
    if single:
        yield trait_ids.contains(sorted(single))
    for ids in any_of:
        if len(ids) > 1:
            yield trait_ids.overlap(sorted(ids))
    if forbidden:
        yield not_(trait_ids.overlap(sorted(forbidden)))


def in_any_aggregate(provider_id: ColumnElement[int], aggregate_ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a provider is itself a member of at least one of these aggregates."""
    return exists().where(
        _member_of.c.provider_id == provider_id, is_any(_member_of.c.aggregate_id, aggregate_ids)
    )
