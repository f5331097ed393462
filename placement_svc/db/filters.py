"""Conditions on one provider, as SQL: what it has room for, which traits and aggregates it has.

They are built for every request, so they share a few aliases of the tables: making one anew costs more
than the rest of a condition. A condition is a subquery of its own, where an alias means what it says.
"""

from collections.abc import Collection

from sqlalchemy import ColumnElement, FromClause, and_, any_, exists, false, literal, or_
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Integer

from placement_svc.db.tables import provider_aggregates, provider_traits
from placement_svc.domain.inventory import MAX_INTEGER

ProviderId = ColumnElement[int]

_held = provider_traits.alias("held")
_joined = provider_aggregates.alias("joined")


def is_any(column: ColumnElement[int], ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that `column` is one of `ids`."""
    return column == any_(literal(sorted(ids), ARRAY(Integer)))


def fits(inventory: FromClause, resource_class_id: int, amount: int) -> ColumnElement[bool]:
    """Return the condition that `inventory` is of this class and can give `amount` of it right now.

    Served by the indexes on (root_id, resource_class_id) and on (resource_class_id, room).
    """
    if amount > MAX_INTEGER:
        return false()
    return and_(
        inventory.c.resource_class_id == resource_class_id,
        inventory.c.room >= amount,
        inventory.c.min_unit <= amount,
        # That nearly all steps are 1 the planner knows; of the remainder it would expect the worst.
        or_(inventory.c.step_size == 1, literal(amount) % inventory.c.step_size == 0),
    )


def has_any_trait(provider_id: ProviderId, trait_ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a provider has at least one of these traits itself."""
    return exists().where(_held.c.provider_id == provider_id, is_any(_held.c.trait_id, trait_ids))


def in_any_aggregate(provider_id: ProviderId, aggregate_ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a provider is itself in at least one of these aggregates."""
    return exists().where(_joined.c.provider_id == provider_id, is_any(_joined.c.aggregate_id, aggregate_ids))
