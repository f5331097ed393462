"""The providers that can supply a demand, as SQL (`docs/spec/candidates.md 3.2 to 3.4`)."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, FromClause, ScalarSelect, Select, and_, false, func, not_, or_, select
from sqlalchemy.sql.visitors import iterate

from placement_svc.db.filters import (
    MAX_SINGLE_CONDITIONS,
    fits_all,
    fits_any,
    fits_unused,
    gives_amount,
    has_traits,
    in_any_aggregate,
    in_each_aggregate_set,
    is_any,
)
from placement_svc.db.repeated import RepeatedCache
from placement_svc.db.search.criteria import MAX_JOINED_CLASSES, SupplierCriteria
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import inventories, resource_providers


@dataclass(frozen=True)
class SupplierQuery:
    """A query for the suppliers of a demand, and its two columns.

    `inventories` are those of the classes that are joined, in the order of the criteria.
    """

    query: Select[int, int]
    provider_id: ColumnElement[int]
    root_id: ColumnElement[int]
    inventories: Sequence[FromClause]

    def with_optimization_fence(self) -> "SupplierQuery":
        """Return the query with an `OFFSET 0`, so that PostgreSQL does not turn its `EXISTS` into a join."""
        return replace(self, query=self.query.offset(0))

    def ids_in_tree(self, root_id: ColumnElement[int]) -> ScalarSelect[int]:
        """Return the query for the ids of the suppliers in the tree of a root."""
        in_tree = self.query.with_only_columns(self.provider_id).where(self.root_id == root_id)
        return in_tree.scalar_subquery()


QUERY_CACHE_SIZE = 256

MAX_SUBQUERY_JOINS = 8
"""The most joins in the subqueries of one statement: planning time grows faster than their number."""

_inventories = [shared(inventories.alias(f"inventory_{number}")) for number in range(MAX_JOINED_CLASSES)]
_provider = shared(resource_providers.alias("supplier"))


def supplier_query(criteria: SupplierCriteria) -> SupplierQuery:
    """Return the query for the providers that match `criteria`.

    Cached because one search needs it several times, and schedulers repeat the requests for the same flavors;
    but not for criteria that hardly any other request has.
    """
    return _build_query(criteria) if criteria.is_uncommon else _cached_query(criteria)


def count_joins(all_criteria: Iterable[SupplierCriteria]) -> int:
    """Return the number of joins in a statement that has a subquery for each of these demands."""
    return sum(max(1, each.join_count) for each in all_criteria)


def can_be_subqueries(all_criteria: Collection[SupplierCriteria]) -> bool:
    """Return whether one statement can aggregate the inventories of the suppliers of each of these demands.

    Each demand is a subquery that joins the inventories of all its classes.
    """
    return count_joins(all_criteria) <= MAX_SUBQUERY_JOINS and all(
        1 <= len(each.resources) <= each.max_joined_classes for each in all_criteria
    )


def unused_supplier_query(criteria: SupplierCriteria) -> SupplierQuery:
    """Return the query for the providers that would match `criteria` if nothing were used.

    The criteria must pass `can_be_subqueries`, and their class must not be split.
    """
    amounts = [
        fits_unused(_inventories[number], class_id, amount)
        for number, (class_id, amount) in enumerate(criteria.resources)
    ]
    conditions = _provider_conditions(criteria, *_key_columns(len(amounts)))
    return _select_suppliers(len(amounts), [*amounts, *conditions])


def supplier_lists_query(
    all_criteria: Sequence[SupplierCriteria], root_id: ColumnElement[int]
) -> Select[*tuple[Any, ...]]:
    """Return the query for the suppliers in the tree of a root: for each demand an array of ids, or null.

    The demands are those of the unsuffixed group, so they differ only in their resource class. One pass over
    the inventories of the tree finds the suppliers of all: with 3 classes, this took three quarters of the
    time of a subquery for each. PostgreSQL looks up the aggregates of the root once, because `root_id` is not
    a column of the inventories.
    """
    criteria, inventory = all_criteria[0], _inventories[0]
    provider_id, own_root_id = _key_columns(1)
    requested = [(each, *resource) for each in all_criteria for resource in each.resources]
    arrays = [
        func.array_agg(provider_id).filter(
            gives_amount(inventory, class_id, amount, each.added_providers(class_id))
        )
        for each, class_id, amount in requested
    ]
    has_class = is_any(inventory.c.resource_class_id, [class_id for _, class_id, _ in requested])
    matching = _select_suppliers(1, [has_class, *_own_conditions(criteria, own_root_id)])
    return matching.query.with_only_columns(*arrays).where(
        own_root_id == root_id, *_member_of(criteria, provider_id, root_id)
    )


def _build_query(criteria: SupplierCriteria) -> SupplierQuery:
    count = criteria.max_joined_classes
    joined, others = criteria.resources[:count], criteria.resources[count:]
    conditions: list[ColumnElement[bool]] = [
        gives_amount(_inventories[number], class_id, amount, criteria.added_providers(class_id))
        for number, (class_id, amount) in enumerate(joined)
    ]
    provider_id, root_id = _key_columns(len(joined))
    if others:
        conditions.append(fits_all(provider_id, others, criteria.added))
    return _select_suppliers(
        len(joined), [*conditions, *_provider_conditions(criteria, provider_id, root_id)]
    )


_cached_query = RepeatedCache(_build_query, QUERY_CACHE_SIZE)


def _provider_conditions(
    criteria: SupplierCriteria, provider_id: ColumnElement[int], root_id: ColumnElement[int]
) -> Sequence[ColumnElement[bool]]:
    """Return the conditions on a provider besides those on its amounts."""
    return [*_own_conditions(criteria, root_id), *_member_of(criteria, provider_id, root_id)]


def _own_conditions(criteria: SupplierCriteria, root_id: ColumnElement[int]) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions on a provider's tree and on its own traits."""
    if criteria.in_tree is not None:
        yield root_id == criteria.in_tree
    if criteria.not_in_tree:
        yield not_(is_any(root_id, criteria.not_in_tree))
    for condition in has_traits(_provider, criteria.required.any_of, criteria.required.forbidden):
        # Most hosts have the same traits, and PostgreSQL underestimates how many have several frequent
        # traits. It makes no such estimate for COALESCE, and so does not start from these traits.
        yield condition if criteria.has_rare_traits else func.coalesce(condition, false())


def unsuffixed_supplier_query(
    all_criteria: Sequence[SupplierCriteria], any_of: Iterable[frozenset[int]]
) -> SupplierQuery:
    """Return the query for the providers that have a trait of each set in `any_of`.

    They fit at least one of the demands with `all_criteria`, which have one resource class each.
    """
    resources = [resource for criteria in all_criteria for resource in criteria.resources]
    if len(resources) > MAX_SINGLE_CONDITIONS:
        added = frozenset[tuple[int, int]]().union(*(criteria.added for criteria in all_criteria))
        fits_one = fits_any(_inventories[0], resources, added)
    else:
        fits_one = or_(
            *(
                gives_amount(_inventories[0], class_id, amount, criteria.added_providers(class_id))
                for criteria in all_criteria
                for class_id, amount in criteria.resources
            )
        )
    return _select_suppliers(1, [fits_one, *has_traits(_provider, list(any_of))])


def _select_suppliers(inventory_count: int, conditions: Sequence[ColumnElement[bool]]) -> SupplierQuery:
    """Return the query for the providers that meet all conditions.

    The conditions refer to the inventories `_inventories[0]` to `_inventories[inventory_count - 1]` of one
    provider and to the provider's own row, `_provider`. The latter is joined whenever a condition reads it,
    so that no condition can cause a cross join.
    """
    provider_id, root_id = _key_columns(inventory_count)
    if not inventory_count:
        query = select(provider_id.label("provider_id"), root_id)
        return SupplierQuery(query.where(*conditions), provider_id, root_id, ())
    query = select(provider_id, root_id)
    for number in range(1, inventory_count):
        inventory = _inventories[number]
        query = query.join(inventory, inventory.c.provider_id == provider_id)
    if any(map(_reads_provider_row, conditions)):
        # The root's id lets PostgreSQL read the providers of a tree before their inventories.
        query = query.join(_provider, and_(_provider.c.id == provider_id, _provider.c.root_id == root_id))
    return SupplierQuery(query.where(*conditions), provider_id, root_id, _inventories[:inventory_count])


def _key_columns(inventory_count: int) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return the columns of the provider's id and its root's id; the inventories have both."""
    if inventory_count:
        return _inventories[0].c.provider_id, _inventories[0].c.root_id
    return _provider.c.id, _provider.c.root_id


def _reads_provider_row(condition: ColumnElement[bool]) -> bool:
    return any(getattr(element, "table", None) is _provider for element in iterate(condition))


def _member_of(
    criteria: SupplierCriteria, provider_id: ColumnElement[int], root_id: ColumnElement[int]
) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions of `member_of`.

    In the unsuffixed group, the aggregates of a root count for its whole tree.
    """
    member_of = criteria.member_of
    if member_of.any_of:
        own = in_each_aggregate_set(provider_id, member_of.any_of)
        root = in_each_aggregate_set(root_id, member_of.any_of)
        yield or_(root, own) if criteria.is_unsuffixed else own
    if member_of.forbidden:
        # COALESCE keeps PostgreSQL from an anti-join, which can read all members again for each tree.
        yield func.coalesce(not_(in_any_aggregate(provider_id, member_of.forbidden)), false())
