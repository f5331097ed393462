"""Sums over the inventories or the allocations of many providers (`docs/spec/extensions.md 6.4`).

All inventories that match are read for the sums, and again for each page of groups that are sorted by an
amount, wherever the page is. Roots in the order of their uuids need only the inventories of the page.
"""

from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    FromClause,
    Integer,
    Select,
    and_,
    case,
    cast,
    exists,
    func,
    join,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from placement_svc.db import names, providers
from placement_svc.db.aggregates import aggregate_ids
from placement_svc.db.filters import is_any
from placement_svc.db.pages import Order, select_page, to_page
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import (
    aggregates,
    allocations,
    consumer_types,
    consumers,
    inventories,
    projects,
    provider_aggregates,
    resource_classes,
    resource_providers,
    traits,
)
from placement_svc.domain.capacity import BY_CONSUMER, Amounts, CapacityGroup, Grouping
from placement_svc.domain.pages import Page, PageRequest, Position, SortKey
from placement_svc.domain.providers import ProviderFilter

_AMOUNTS = ("total", "reserved", "capacity", "used", "free", "max_free")
_roots = shared(resource_providers.alias("roots"))
_no_name: ColumnElement[str] = func.text("")

_KEYS: dict[Grouping, tuple[ColumnElement[int], ColumnElement[str]]] = {
    Grouping.ROOT: (_roots.c.id, _roots.c.uuid),
    Grouping.AGGREGATE: (aggregates.c.id, aggregates.c.uuid),
    Grouping.TRAIT: (traits.c.id, traits.c.name),
    Grouping.CONSUMER_TYPE: (consumer_types.c.id, consumer_types.c.name),
    Grouping.PROJECT_ID: (projects.c.id, projects.c.external_id.collate("C")),
}
"""The id and the key of the groups."""

Conditions = Sequence[ColumnElement[bool]]


def sums(connection: Connection, provider_filter: ProviderFilter) -> Amounts:
    """Return the amounts of all providers that match the filters; raise `Invalid` for unknown names."""
    conditions = providers.filter_conditions(connection, provider_filter)
    if conditions is None:
        return {}
    query = (
        select(resource_classes.c.name, *_sums(inventories))
        .join_from(inventories, resource_classes)
        .where(*_of_matching(inventories.c.provider_id, conditions))
        .group_by(resource_classes.c.id)
        .order_by(resource_classes.c.id)
    )
    rows = connection.execute(query)
    return {name: dict(zip(_AMOUNTS, map(int, values), strict=True)) for name, *values in rows}


def find_page(
    connection: Connection, provider_filter: ProviderFilter, grouping: Grouping, page: PageRequest
) -> Page[CapacityGroup]:
    """Return a page of the groups of the providers that match the filters; raise `Invalid` as `sums` does."""
    conditions = providers.filter_conditions(connection, provider_filter)
    if conditions is None:
        return Page([], None, False)
    if grouping is Grouping.ROOT and page.sort is None:
        keys = _roots_with_inventories(conditions)
        value = None
    else:
        keys, value = _all_keys(connection, grouping, conditions, page.sort)
    order = Order(
        _KEYS[grouping][1],
        value,
        page.sort is not None and page.sort.descending,
        is_key_nullable=grouping is not Grouping.ROOT,
    )
    rows = connection.execute(select_page(keys, order, page)).all()
    positions = [Position(row.key, None if value is None else _number(row.sort_value)) for row in rows]
    found = to_page(rows, page.limit, positions)
    amounts = amounts_of_groups(connection, grouping, conditions, [row.group_id for row in found.elements])
    groups = [CapacityGroup(row.key, row.name, amounts[row.group_id]) for row in found.elements]
    return Page(groups, found.last, found.has_more)


def of_aggregates(connection: Connection, uuids: Collection[str]) -> dict[str, Amounts]:
    """Return the amounts of the aggregates with these uuids, by uuid; those without inventories are absent.

    Two statements, whatever the number of aggregates. They read all inventories.
    """
    ids = aggregate_ids(connection, uuids)
    amounts = amounts_of_groups(connection, Grouping.AGGREGATE, [], list(ids.values()))
    return {uuid: amounts[id] for uuid, id in ids.items() if id in amounts}


def _number(value: Any) -> int | float | None:
    return int(value) if isinstance(value, Decimal) else value


def _of_matching(provider_id: ColumnElement[int], conditions: Conditions) -> list[ColumnElement[bool]]:
    """Return the condition that a provider matches the filters: none if there are no filters."""
    if not conditions:
        return []
    return [provider_id.in_(select(resource_providers.c.id).where(*conditions))]


def _sums(inventory: FromClause) -> list[ColumnElement[Any]]:
    """Return the sums of `_AMOUNTS` over inventories."""
    column = inventory.c
    multiple = column.max_allocatable.op("/")(column.step_size) * column.step_size
    grantable = case((multiple >= column.min_unit, multiple), else_=0)
    return [
        func.sum(column.total).label("total"),
        func.sum(column.reserved).label("reserved"),
        func.sum(column.capacity).label("capacity"),
        func.sum(column.used).label("used"),
        func.sum(func.greatest(column.capacity - column.used, 0)).label("free"),
        func.max(grantable).label("max_free"),
    ]


def _roots_with_inventories(conditions: Conditions) -> Select[Any]:
    """Return the query for the roots with an inventory that matches; the partial index has its order."""
    matching = exists().where(
        inventories.c.root_id == _roots.c.id, *_of_matching(inventories.c.provider_id, conditions)
    )
    return select(_roots.c.id.label("group_id"), _roots.c.uuid.label("key"), _roots.c.name).where(
        _roots.c.parent_id.is_(None), matching
    )


def _all_keys(
    connection: Connection, grouping: Grouping, conditions: Conditions, sort: SortKey | None
) -> tuple[Select[Any], ColumnElement[Any] | None]:
    """Return the query for all groups, and what they are sorted by."""
    groups = _groups(grouping, conditions).subquery("groups")
    columns: list[ColumnElement[Any]] = [groups.c.group_id]
    if sort is not None:
        message = "Invalid 'sort_by': No such resource class {}."
        class_id = names.resource_class_ids(connection, [sort.resource_class], message)[sort.resource_class]
        if sort.attribute == "ratio":
            amount = cast(groups.c.used, Double) / func.nullif(cast(groups.c.capacity, Double), 0)
        else:
            amount = groups.c[sort.attribute]
        columns.append(func.max(case((groups.c.resource_class_id == class_id, amount))).label("sort_value"))
    keys = select(*columns).group_by(groups.c.group_id).subquery("keys")
    id, key = _KEYS[grouping]
    name = _roots.c.name if grouping is Grouping.ROOT else _no_name
    query = select(keys.c.group_id, key.label("key"), name.label("name")).join_from(
        keys, id.table, id == keys.c.group_id, isouter=True
    )
    if sort is None:
        return query, None
    return query.add_columns(keys.c.sort_value), keys.c.sort_value


def _groups(grouping: Grouping, conditions: Conditions, only: Iterable[int] | None = None) -> Select[Any]:
    """Return the query for the sums of each group and class; `only` has the ids of the groups, or is None."""
    if grouping in BY_CONSUMER:
        return _consumer_groups(grouping, conditions)
    if grouping is Grouping.ROOT:
        root_id = inventories.c.root_id
        restricted = [] if only is None else [is_any(root_id, only)]
        return (
            select(root_id.label("group_id"), inventories.c.resource_class_id, *_sums(inventories))
            .where(*_of_matching(inventories.c.provider_id, conditions), *restricted)
            .group_by(root_id, inventories.c.resource_class_id)
        )
    return _set_groups(grouping, conditions)


def _consumer_groups(grouping: Grouping, conditions: Conditions) -> Select[Any]:
    is_type = grouping is Grouping.CONSUMER_TYPE
    group_id = consumers.c.consumer_type_id if is_type else consumers.c.project_id
    return (
        select(
            group_id.label("group_id"),
            allocations.c.resource_class_id,
            func.sum(allocations.c.used).label("used"),
        )
        .join_from(allocations, consumers)
        .where(*_of_matching(allocations.c.provider_id, conditions))
        .group_by(group_id, allocations.c.resource_class_id)
    )


def _set_groups(grouping: Grouping, conditions: Conditions) -> Select[Any]:
    """Return the sums by trait or aggregate, where a provider has its own and those of its root.

    Thousands of hosts have the same hundred traits: their inventories are summed up before the traits are
    listed one by one. The aggregates of all providers are read at once, and not for each inventory.
    """
    table = resource_providers.c
    held = (
        select(
            provider_aggregates.c.provider_id,
            func.array_agg(
                aggregate_order_by(provider_aggregates.c.aggregate_id, provider_aggregates.c.aggregate_id)
            ).label("ids"),
        )
        .group_by(provider_aggregates.c.provider_id)
        .subquery()
    )
    own, of_root = held.alias("own"), held.alias("of_root")
    joined = join(inventories, resource_providers, table.id == inventories.c.provider_id).join(
        _roots, _roots.c.id == table.root_id
    )
    if grouping is Grouping.TRAIT:
        ids: ColumnElement[Any] = func.array_cat(table.trait_ids, _roots.c.trait_ids)
    else:
        ids = func.array_cat(own.c.ids, of_root.c.ids)
        joined = joined.outerjoin(own, own.c.provider_id == table.id).outerjoin(
            of_root, and_(of_root.c.provider_id == table.root_id, table.parent_id.is_not(None))
        )
    held_ids = cast(ids, ARRAY(Integer)).label("held_ids")
    sets = (
        select(held_ids, inventories.c.resource_class_id, *_sums(inventories))
        .select_from(joined)
        .where(*conditions)
        .group_by("held_ids", inventories.c.resource_class_id)
        .subquery("sets")
    )
    each_id = func.unnest(sets.c.held_ids, type_=Integer).label("id")
    each = select(each_id).distinct().correlate(sets).lateral("each")
    return (
        select(
            each.c.id.label("group_id"),
            sets.c.resource_class_id,
            *(func.sum(sets.c[name]).label(name) for name in _AMOUNTS[:-1]),
            func.max(sets.c.max_free).label("max_free"),
        )
        .join_from(sets, each, true(), isouter=True)
        .group_by(each.c.id, sets.c.resource_class_id)
    )


def amounts_of_groups(
    connection: Connection, grouping: Grouping, conditions: Conditions, ids: Sequence[int | None]
) -> dict[int | None, dict[str, dict[str, int]]]:
    """Return the amounts of the groups with these ids."""
    if not ids:
        return {}
    known = [id for id in ids if id is not None]
    groups = _groups(grouping, conditions, known).subquery("groups")
    fields = ("used",) if grouping in BY_CONSUMER else _AMOUNTS
    is_listed = is_any(groups.c.group_id, known)
    query = (
        select(groups.c.group_id, resource_classes.c.name, *(groups.c[field] for field in fields))
        .join_from(groups, resource_classes, resource_classes.c.id == groups.c.resource_class_id)
        .where(is_listed if None not in ids else or_(is_listed, groups.c.group_id.is_(None)))
        .order_by(resource_classes.c.id)
    )
    found: dict[int | None, dict[str, dict[str, int]]] = {}
    for group_id, name, *values in connection.execute(query):
        found.setdefault(group_id, {})[name] = dict(zip(fields, map(int, values), strict=True))
    return found
