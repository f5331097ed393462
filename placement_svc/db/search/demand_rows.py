"""Searches with many demands: the demands are rows of a table, so the statement does not grow with them.

With a subquery for each of 500 demands, planning takes PostgreSQL more than a minute. Few demands have
subqueries of their own, because PostgreSQL can then start from the rarest condition.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import (
    Boolean,
    ColumnElement,
    FromClause,
    Integer,
    Select,
    TableValuedAlias,
    Text,
    and_,
    any_,
    column,
    func,
    literal,
    not_,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from placement_svc.db.filters import (
    count_fitting,
    count_sets_with_aggregate,
    count_sets_with_trait,
    fits_units_or_added,
    gives_part,
    in_any_aggregate_of,
)
from placement_svc.db.search.criteria import ResolvedMembership, SupplierCriteria
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import inventories, provider_aggregates, resource_providers
from placement_svc.domain.inventory import MAX_INTEGER

MAX_SUBQUERY_DEMANDS = 16
"""The number of different demands up to which each has subqueries of its own."""

_integers = ARRAY(Integer)
_COLUMNS = (
    column("number", Integer),
    # The first resource class, from whose inventories the search starts; null in a resourceless group.
    column("class_id", Integer),
    column("amount", Integer),
    column("other_class_ids", _integers),
    column("other_amounts", _integers),
    column("required", _integers),
    column("trait_sets", _integers),
    column("trait_set_members", _integers),
    column("trait_set_count", Integer),
    column("forbidden_traits", _integers),
    column("aggregate_sets", _integers),
    column("aggregate_set_members", _integers),
    column("aggregate_set_count", Integer),
    column("forbidden_aggregates", _integers),
    column("in_tree", Integer),
    column("not_in_tree", _integers),
    column("is_unsuffixed", Boolean),
    column("sharing_aggregate_ids", _integers),
)
_ADDED_COLUMNS = (column("added_class_ids", _integers), column("added_provider_ids", _integers))
"""The columns that demands have if one of them has inventories of its own (`SupplierCriteria.added`)."""
_GIVES_PART_COLUMN = column("gives_part", Boolean)
"""The column that demands have if several providers of a tree may supply one of them."""

_tree_aggregates = shared(provider_aggregates.alias("tree_aggregates"))
_first = shared(inventories.alias("first_inventory"))
_supplier = shared(resource_providers.alias("supplier"))


def demand_rows(
    all_criteria: Mapping[int, SupplierCriteria],
    sharing_aggregate_ids: Mapping[int, Collection[int]] | None = None,
) -> FromClause:
    """Return demands as a table; its column `number` has the keys of `all_criteria`.

    `sharing_aggregate_ids` has the aggregates through which sharing providers supply them, by the same
    numbers.
    """
    shared_through = sharing_aggregate_ids or {}
    rows = [_row(number, each, shared_through.get(number, ())) for number, each in all_criteria.items()]
    recordset = func.jsonb_to_recordset(literal(orjson.dumps(rows).decode(), Text).cast(JSONB))
    columns: Sequence[Any] = _COLUMNS
    if any(each.added for each in all_criteria.values()):
        columns = [*columns, *_ADDED_COLUMNS]
    if any(each.whole for each in all_criteria.values()):
        columns = [*columns, _GIVES_PART_COLUMN]
    table = recordset.table_valued(*columns).render_derived(name="demand", with_types=True)
    return select(table).cte("demands").prefix_with("MATERIALIZED")


def _row(number: int, criteria: SupplierCriteria, sharing_aggregate_ids: Collection[int]) -> dict[str, Any]:
    # PostgreSQL could not read a larger amount, and no inventory can give it.
    resources = [(id_, amount if amount <= MAX_INTEGER else None) for id_, amount in criteria.resources]
    first_class, first_amount = resources[0] if resources else (None, None)
    return {
        "number": number,
        "class_id": first_class,
        "amount": first_amount,
        "other_class_ids": [id_ for id_, _ in resources[1:]],
        "other_amounts": [amount for _, amount in resources[1:]],
        "required": sorted(id_ for ids in criteria.required.any_of if len(ids) == 1 for id_ in ids),
        # Traits that are required singly are in `required`.
        **_set_columns("trait", criteria.required, min_size=2),
        "forbidden_traits": sorted(criteria.required.forbidden),
        **_set_columns("aggregate", criteria.member_of, min_size=0),
        "forbidden_aggregates": sorted(criteria.member_of.forbidden),
        "in_tree": criteria.in_tree,
        "not_in_tree": sorted(criteria.not_in_tree),
        "is_unsuffixed": criteria.is_unsuffixed,
        "gives_part": criteria.whole is not None,
        "sharing_aggregate_ids": sorted(sharing_aggregate_ids),
        "added_class_ids": [class_id for class_id, _ in criteria.added],
        "added_provider_ids": [provider_id for _, provider_id in criteria.added],
    }


def _set_columns(kind: str, membership: ResolvedMembership, *, min_size: int) -> dict[str, Any]:
    """Return the columns of the sets in `any_of` that have at least `min_size` members.

    A set without members is counted too, so no provider matches it.
    """
    sets = [ids for ids in dict.fromkeys(membership.any_of) if len(ids) >= min_size]
    return {
        f"{kind}_sets": [number for number, ids in enumerate(sets) for _ in ids],
        f"{kind}_set_members": [id_ for ids in sets for id_ in sorted(ids)],
        f"{kind}_set_count": len(sets),
    }


def has_all_suppliers(demands: FromClause, root_id: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that around a root every demand has a supplier; it ends at the first without."""
    served = (
        select(literal(1))
        .where(
            _tree_aggregates.c.root_id == root_id,
            _tree_aggregates.c.aggregate_id == any_(demands.c.sharing_aggregate_ids),
        )
        .correlate_except(_tree_aggregates)
    )
    has_supplier = or_(_suppliers_in_tree(demands, root_id).offset(0).exists(), served.offset(0).exists())
    without = select(literal(1)).select_from(demands).where(not_(has_supplier)).offset(0)
    return not_(without.correlate_except(demands).exists())


def supplier_id_lists(demands: FromClause, root_id: ColumnElement[int]) -> ColumnElement[str]:
    """Return the ids of the suppliers in the tree of a root as a text, such as `1,2;;3`: a list by demand."""
    ids = func.array(_suppliers_in_tree(demands, root_id).scalar_subquery(), type_=_integers)
    lists = func.string_agg(func.array_to_string(ids, ","), ";").aggregate_order_by(demands.c.number)
    return select(lists).select_from(demands).correlate_except(demands).scalar_subquery()


def parse_id_lists(text: str) -> list[tuple[int, ...]]:
    """Return the lists of a text of `supplier_id_lists`, each in ascending order and without duplicates."""
    return [tuple(sorted(set(map(int, ids.split(","))))) if ids else () for ids in text.split(";")]


def _suppliers_in_tree(demand: FromClause, root_id: ColumnElement[int]) -> Any:
    """Return the query for the ids of the providers in the tree of a root that can supply `demand`."""
    with_resources = _matching_with_resources(demand).where(_first.c.root_id == root_id)
    without_resources = _matching_without_resources(demand).where(_supplier.c.root_id == root_id)
    return with_resources.union_all(without_resources)


def is_supplier(demand: FromClause, provider_id: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a provider matches the criteria of `demand`."""
    with_resources = _matching_with_resources(demand).where(_supplier.c.id == provider_id)
    without_resources = _matching_without_resources(demand).where(_supplier.c.id == provider_id)
    return or_(with_resources.offset(0).exists(), without_resources.offset(0).exists())


def _matching_with_resources(demand: FromClause) -> Select[int]:
    """Return the query for the ids of the providers that match `demand`, if it has resources."""
    others = _unnest("requested", class_id=demand.c.other_class_ids, amount=demand.c.other_amounts)
    added = None
    if "added_class_ids" in demand.c:
        added = _unnest("added", class_id=demand.c.added_class_ids, provider_id=demand.c.added_provider_ids)
    fits_first = fits_units_or_added(_first, demand.c.amount, added)
    if "gives_part" in demand.c:
        fits_first = or_(fits_first, and_(demand.c.gives_part, gives_part(_first)))
    return (
        select(_first.c.provider_id)
        .join(_supplier, _supplier.c.id == _first.c.provider_id)
        .where(
            _first.c.resource_class_id == demand.c.class_id,
            fits_first,
            or_(
                _is_empty(demand.c.other_class_ids),
                count_fitting(_first.c.provider_id, others, added)
                == func.cardinality(demand.c.other_class_ids),
            ),
            *_conditions(demand),
        )
        .correlate_except(_first, _supplier)
    )


def _matching_without_resources(demand: FromClause) -> Select[int]:
    """Return the query for the ids of the providers that match `demand`, if it is resourceless."""
    return (
        select(_supplier.c.id)
        .where(demand.c.class_id.is_(None), *_conditions(demand))
        .correlate_except(_supplier)
    )


def _conditions(demand: FromClause) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions on `_supplier`, apart from the resources."""
    columns = demand.c
    trait_ids = _supplier.c.trait_ids
    yield or_(columns.in_tree.is_(None), _supplier.c.root_id == columns.in_tree)
    yield not_(_supplier.c.root_id == any_(columns.not_in_tree))
    yield or_(_is_empty(columns.required), trait_ids.contains(columns.required))
    yield or_(_is_empty(columns.forbidden_traits), not_(trait_ids.overlap(columns.forbidden_traits)))
    members = _unnest("trait_member", number=columns.trait_sets, id=columns.trait_set_members)
    yield or_(
        columns.trait_set_count == 0,
        count_sets_with_trait(trait_ids, members) == columns.trait_set_count,
    )
    members = _unnest("aggregate_member", number=columns.aggregate_sets, id=columns.aggregate_set_members)
    yield or_(
        columns.aggregate_set_count == 0,
        count_sets_with_aggregate(_supplier.c.id, members) == columns.aggregate_set_count,
        columns.is_unsuffixed
        & (count_sets_with_aggregate(_supplier.c.root_id, members) == columns.aggregate_set_count),
    )
    yield or_(
        _is_empty(columns.forbidden_aggregates),
        not_(in_any_aggregate_of(_supplier.c.id, columns.forbidden_aggregates)),
    )


def _is_empty(array: ColumnElement[Any]) -> ColumnElement[bool]:
    return func.cardinality(array) == 0


def _unnest(table: str, **arrays: ColumnElement[Any]) -> TableValuedAlias:
    """Return arrays of integers as the columns of a table for a FROM clause."""
    columns = (column(name, Integer) for name in arrays)
    return func.unnest(*arrays.values()).table_valued(*columns).render_derived(name=table)
