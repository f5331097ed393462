"""The map of all hosts: one resource class of each, in groups by aggregate or by trait."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Double, FromClause, Subquery, cast, func, literal, select
from sqlalchemy.dialects.postgresql import aggregate_order_by, distinct_on

from placement_svc.db import names
from placement_svc.db.capacity import usage_ratio
from placement_svc.db.connections.engine import driver_rows
from placement_svc.db.host_pages import host_conditions, roots
from placement_svc.db.tables import (
    aggregates,
    inventories,
    provider_aggregates,
    provider_traits,
    resource_classes,
)
from placement_svc.domain.hosts import HostFilter, HostMap, MapCell

NO_AGGREGATE = "no aggregate"

SEPARATOR = " + "

MAX_NAMES = 10
"""The most aggregates in the name of a group: each host may be in a thousand."""


def read_map(
    connection: Connection,
    host_filter: HostFilter,
    *,
    fill: str | None,
    by_aggregate: bool,
    by_trait: str | None,
    max_hosts: int,
) -> HostMap:
    """Return the map of the hosts that match the filters, at most `max_hosts` of them, by name.

    `fill` is the resource class to show; None shows the fullest class of each host. The groups are those of
    the hosts that are in the same aggregates, or those with and without the trait `by_trait`, which any of
    their providers may have. Raises `Invalid` for an unknown name of a trait or resource class. One
    statement, besides those for names.
    """
    # Without a filter, it takes less time to compute the amounts of all trees at once.
    of_each = host_filter != HostFilter()
    amounts = _by_root(_fullest() if fill is None else _of_class(connection, fill), of_each=of_each)
    group: ColumnElement[Any] = literal("")
    query = select(roots.c.uuid, roots.c.name, amounts.c.resource_class, amounts.c.used, amounts.c.capacity)
    source = roots.outerjoin(amounts, amounts.c.root_id == roots.c.id)
    if by_trait:
        message = "Invalid 'group_trait': No such trait(s): {}."
        id_ = names.trait_ids(connection, [by_trait], message)[by_trait]
        group = roots.c.id.in_(select(provider_traits.c.root_id).where(provider_traits.c.trait_id == id_))
    elif by_aggregate:
        sets = _by_root(_aggregate_sets(), of_each=of_each)
        source = source.outerjoin(sets, sets.c.root_id == roots.c.id)
        group = func.coalesce(sets.c.uuids, "")
    statement = (
        query.add_columns(group)
        .select_from(source)
        .where(*host_conditions(connection, host_filter))
        .order_by(roots.c.name)
        .limit(max_hosts + 1)
    )
    rows = driver_rows(connection, statement, {})
    return _to_map(rows[:max_hosts], by_trait, has_more=len(rows) > max_hosts)


def _by_root(values: Subquery, *, of_each: bool) -> FromClause:
    """Return `values`, which have a `root_id`; with `of_each`, they are computed for each root by itself.

    PostgreSQL often expects that a filter leaves one host, and would then compute all values again for each
    that it leaves: the map of 623 hosts in an aggregate, of 21,000, took 13 s. The OFFSET keeps it from that.
    """
    if not of_each:
        return values
    return select(values).where(values.c.root_id == roots.c.id).offset(0).lateral(f"{values.name}_of_root")


def _to_map(rows: list[tuple[Any, ...]], by_trait: str | None, *, has_more: bool) -> HostMap:
    """Return the map with the groups in the order of their names, and the hosts of each by name."""
    values = sorted({row[5] for row in rows}, reverse=by_trait is not None)
    number_by_value = {value: number for number, value in enumerate(values)}
    cells = [
        MapCell(uuid, name, number_by_value[value], resource_class, int(used or 0), int(capacity or 0))
        for uuid, name, resource_class, used, capacity, value in rows
    ]
    cells.sort(key=lambda cell: cell.group)
    if by_trait is not None:
        groups = [by_trait if has_trait else f"without {by_trait}" for has_trait in values]
    else:
        groups = [_shortened(value) or NO_AGGREGATE for value in values]
    return HostMap(groups, cells, has_more)


def _shortened(uuids: str) -> str:
    """Return the name of the group of hosts in these aggregates."""
    listed = uuids.split(SEPARATOR)
    more = [f"{len(listed) - MAX_NAMES:,} more"] if len(listed) > MAX_NAMES else []
    return SEPARATOR.join([*listed[:MAX_NAMES], *more])


# A sum of bigints is a numeric, whose arithmetic takes most of the time of a map. A double is exact to 2^53.
_used = func.sum(cast(inventories.c.used, Double)).label("used")
_capacity = func.sum(cast(inventories.c.capacity, Double)).label("capacity")


def _of_class(connection: Connection, name: str) -> Subquery:
    """Return the sums of one class by root."""
    message = "Invalid 'fill': No such resource class {}."
    class_id = names.resource_class_ids(connection, [name], message)[name]
    return (
        select(inventories.c.root_id, literal(name).label("resource_class"), _used, _capacity)
        .where(inventories.c.resource_class_id == class_id)
        .group_by(inventories.c.root_id)
        .subquery("amounts")
    )


def _fullest() -> Subquery:
    """Return the sums of the class of each root with the greatest ratio of used to capacity."""
    column = inventories.c
    sums = (
        select(column.root_id, column.resource_class_id, _used, _capacity)
        .group_by(column.root_id, column.resource_class_id)
        .subquery("sums")
    )
    ratio = usage_ratio(sums.c.used, sums.c.capacity)
    fullest = (
        select(sums)
        .ext(distinct_on(sums.c.root_id))
        .order_by(sums.c.root_id, ratio.desc().nulls_last(), sums.c.resource_class_id)
        .subquery("fullest")
    )
    return (
        select(
            fullest.c.root_id,
            resource_classes.c.name.label("resource_class"),
            fullest.c.used,
            fullest.c.capacity,
        )
        .join_from(fullest, resource_classes, resource_classes.c.id == fullest.c.resource_class_id)
        .subquery("amounts")
    )


def _aggregate_sets() -> Subquery:
    """Return the uuids of each root's own aggregates as one text."""
    uuids = func.string_agg(aggregates.c.uuid, aggregate_order_by(literal(SEPARATOR), aggregates.c.uuid))
    return (
        select(provider_aggregates.c.root_id, uuids.label("uuids"))
        .join_from(provider_aggregates, aggregates)
        .where(provider_aggregates.c.provider_id == provider_aggregates.c.root_id)
        .group_by(provider_aggregates.c.root_id)
        .subquery("sets")
    )
