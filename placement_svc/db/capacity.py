"""Sums over the inventories or the allocations of many providers (`docs/spec/extensions.md 6.4`).

All inventories that match are read for the sums, and again for each page of groups that are sorted by an
amount, wherever the page is. Otherwise, a page of roots, traits or aggregates needs only the inventories of
its groups; traits and aggregates also need to know which providers have an inventory.
"""

from collections.abc import Collection, Iterable, Sequence
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
    column,
    exists,
    false,
    func,
    join,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from placement_svc.db import names, providers
from placement_svc.db.aggregates import aggregate_ids
from placement_svc.db.filters import free_amount, is_any
from placement_svc.db.pages import Order, select_page, to_page, to_sort_value
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

WITHOUT_CAPACITY = 1e30
"""The ratio, for each unit that is used, of a group without capacity: above that of any with capacity."""

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
    positions = [Position(row.key, None if value is None else to_sort_value(row.sort_value)) for row in rows]
    found = to_page(rows, page.limit, positions)
    amounts = amounts_of_groups(connection, grouping, conditions, [row.group_id for row in found.elements])
    groups = [CapacityGroup(row.key, row.name, amounts[row.group_id]) for row in found.elements]
    return Page(groups, found.last, found.has_more)


def of_aggregates(connection: Connection, uuids: Collection[str]) -> dict[str, Amounts]:
    """Return the amounts of the aggregates with these uuids, by uuid; those without inventories are absent.

    Two statements, whatever the number of aggregates. They read the aggregates of all providers.
    """
    ids = aggregate_ids(connection, uuids)
    amounts = amounts_of_groups(connection, Grouping.AGGREGATE, [], list(ids.values()))
    return {uuid: amounts[id] for uuid, id in ids.items() if id in amounts}


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
        func.sum(func.greatest(free_amount(inventory), 0)).label("free"),
        func.max(grantable).label("max_free"),
    ]


def usage_ratio(used: ColumnElement[Any], capacity: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the part of the capacity that is used; null without capacity and usage.

    Usage without any capacity has a ratio above all others. It is finite, as markers are JSON.
    """
    used, capacity = cast(used, Double), cast(capacity, Double)
    return case((capacity > 0, used / capacity), (used > 0, used * WITHOUT_CAPACITY))


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
    if sort is None and grouping in (Grouping.AGGREGATE, Grouping.TRAIT):
        groups = _set_group_ids(grouping, conditions).subquery("groups")
    else:
        groups = _groups(grouping, conditions).subquery("groups")
    columns: list[ColumnElement[Any]] = [groups.c.group_id]
    if sort is not None:
        class_id = names.sort_class_id(connection, sort)
        if sort.attribute == "ratio":
            amount = usage_ratio(groups.c.used, groups.c.capacity)
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


def _groups(
    grouping: Grouping, conditions: Conditions, only: Collection[int | None] | None = None
) -> Select[Any]:
    """Return the query for the sums of each group and class.

    `only` has the ids of the groups that are needed, or is None; the groupings by consumer ignore it.
    """
    if grouping in BY_CONSUMER:
        return _consumer_groups(grouping, conditions)
    if grouping is Grouping.ROOT:
        root_id = inventories.c.root_id
        restricted = [] if only is None else [is_any(root_id, _known(only))]
        return (
            select(root_id.label("group_id"), inventories.c.resource_class_id, *_sums(inventories))
            .where(*_of_matching(inventories.c.provider_id, conditions), *restricted)
            .group_by(root_id, inventories.c.resource_class_id)
        )
    return _set_groups(grouping, conditions, only)


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


def _set_groups(
    grouping: Grouping, conditions: Conditions, only: Collection[int | None] | None
) -> Select[Any]:
    """Return the sums by trait or aggregate, where a provider has its own and those of its root.

    Thousands of hosts have the same hundred traits: their inventories are summed up before the traits are
    listed one by one. The inventories are grouped by the number of the set and not by its array, of which
    PostgreSQL would sort a copy for each inventory.
    """
    sets = _provider_sets(grouping, conditions, only).cte("sets")
    members = select(sets.c.set_id, func.unnest(sets.c.provider_ids).label("provider_id")).subquery("members")
    sums = (
        select(members.c.set_id, inventories.c.resource_class_id, *_sums(inventories))
        .join_from(members, inventories, inventories.c.provider_id == members.c.provider_id)
        .group_by(members.c.set_id, inventories.c.resource_class_id)
        .subquery("sums")
    )
    # The OFFSET, an optimization fence, keeps PostgreSQL from listing the ids of a set for each of its sums.
    each = _each_id(sets, only).offset(0).subquery("each")
    return (
        select(
            each.c.id.label("group_id"),
            sums.c.resource_class_id,
            *(func.sum(sums.c[name]).label(name) for name in _AMOUNTS[:-1]),
            func.max(sums.c.max_free).label("max_free"),
        )
        .join_from(sums, each, each.c.set_id == sums.c.set_id)
        .group_by(each.c.id, sums.c.resource_class_id)
    )


def _set_group_ids(grouping: Grouping, conditions: Conditions) -> Select[Any]:
    """Return the ids of the groups of `_set_groups`, with duplicates, without reading amounts."""
    has_inventory = exists().where(inventories.c.provider_id == resource_providers.c.id)
    sets = _provider_sets(grouping, [*conditions, has_inventory], None).subquery("sets")
    each = _each_id(sets, None).subquery("each")
    return select(each.c.id.label("group_id"))


def _provider_sets(
    grouping: Grouping, conditions: Conditions, only: Collection[int | None] | None
) -> Select[*tuple[Any, ...]]:
    """Return the query for the sets of traits or aggregates of matching providers, each with its providers.

    The number of a set is the lowest id of its providers. `only` omits providers without any of these ids;
    None stands for providers that have none at all. The aggregates of all providers are read at once, and not
    for each provider.
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
    joined = join(resource_providers, _roots, _roots.c.id == table.root_id)
    if grouping is Grouping.TRAIT:
        ids: ColumnElement[Any] = func.array_cat(table.trait_ids, _roots.c.trait_ids)
    else:
        ids = func.array_cat(own.c.ids, of_root.c.ids)
        joined = joined.outerjoin(own, own.c.provider_id == table.id).outerjoin(
            of_root, and_(of_root.c.provider_id == table.root_id, table.parent_id.is_not(None))
        )
    held_ids = cast(ids, ARRAY(Integer))
    query: Select[*tuple[Any, ...]] = (
        select(
            func.min(table.id).label("set_id"),
            held_ids.label("held_ids"),
            func.array_agg(table.id, type_=ARRAY(Integer)).label("provider_ids"),
        )
        .select_from(joined)
        .where(*conditions)
        .group_by("held_ids")
    )
    if only is None:
        return query
    # PostgreSQL expects the overlap of 1 % of the providers. It makes no such estimate for COALESCE.
    is_listed = func.coalesce(held_ids.overlap(_known(only)), false())
    has_none = func.coalesce(func.cardinality(held_ids), 0) == 0
    return query.where(or_(is_listed, has_none) if None in only else is_listed)


def _each_id(sets: FromClause, only: Collection[int | None] | None) -> Select[Any]:
    """Return the query for each id in each set of `_provider_sets`; the id of an empty set is null.

    `only` omits all other ids.
    """
    held = func.unnest(sets.c.held_ids).table_valued(column("id", Integer)).render_derived(name="held")
    ids = select(held.c.id).distinct().correlate(sets)
    if only is not None:
        ids = ids.where(is_any(held.c.id, _known(only)))
    each = ids.lateral("ids")
    return select(sets.c.set_id, each.c.id).join_from(sets, each, true(), isouter=True)


def _known(ids: Iterable[int | None]) -> list[int]:
    """Return the ids without None, which stands for the group of what belongs to none."""
    return [id for id in ids if id is not None]


def amounts_of_groups(
    connection: Connection, grouping: Grouping, conditions: Conditions, ids: Sequence[int | None]
) -> dict[int | None, dict[str, dict[str, int]]]:
    """Return the amounts of the groups with these ids."""
    if not ids:
        return {}
    groups = _groups(grouping, conditions, ids).subquery("groups")
    fields = ("used",) if grouping in BY_CONSUMER else _AMOUNTS
    is_listed = is_any(groups.c.group_id, _known(ids))
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
