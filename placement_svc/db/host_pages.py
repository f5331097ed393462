"""Pages of hosts with the sums over their trees, and the numbers of objects in the cloud.

A page in the order of an amount reads all inventories of the class, as no index has that order.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Connection, Subquery, exists, func, or_, select

from placement_svc.db import names
from placement_svc.db.capacity import amounts_of_groups, usage_ratio
from placement_svc.db.filters import free_amount, is_any
from placement_svc.db.pages import Order, select_page, to_page, to_sort_value
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import (
    aggregates,
    consumers,
    inventories,
    projects,
    provider_aggregates,
    resource_providers,
)
from placement_svc.domain.capacity import Grouping
from placement_svc.domain.hosts import Host, HostFilter, ObjectCounts
from placement_svc.domain.pages import Page, PageRequest, Position, SortKey

roots = shared(resource_providers.alias("roots"))
_member = shared(resource_providers.alias("member"))


def count_objects(connection: Connection) -> ObjectCounts:
    """Return the numbers of objects; the statement reads an index of each table."""
    has_consumer = exists().where(consumers.c.project_id == projects.c.id)
    counts = (
        select(func.count()).where(roots.c.parent_id.is_(None)).scalar_subquery(),
        select(func.count()).select_from(resource_providers).scalar_subquery(),
        select(func.count()).select_from(consumers).scalar_subquery(),
        select(func.count()).select_from(projects).where(has_consumer).scalar_subquery(),
    )
    return ObjectCounts(*connection.execute(select(*counts)).one())


def count(connection: Connection, host_filter: HostFilter) -> int:
    """Return the number of hosts that match all filters; raise `Invalid` as `find_page` does."""
    query = select(func.count()).select_from(roots).where(*host_conditions(connection, host_filter))
    return connection.scalar(query) or 0


def find_page(connection: Connection, host_filter: HostFilter, page: PageRequest) -> Page[Host]:
    """Return a page of the hosts that match all filters.

    It is sorted by `name`, by the number of `providers`, or by the `used`, `free` or `ratio` of a class.
    Raises `Invalid` for an unknown name of a trait or resource class.
    """
    order, sums = _order(connection, page.sort)
    query = select(roots.c.id, roots.c.uuid, roots.c.name).where(*host_conditions(connection, host_filter))
    if sums is not None:
        query = query.outerjoin(sums, sums.c.root_id == roots.c.id)
    if order.value is not None:
        query = query.add_columns(order.value.label("sort_value"))
    rows = connection.execute(select_page(query, order, page)).all()
    positions = [
        Position(row.uuid, None if order.value is None else to_sort_value(row.sort_value)) for row in rows
    ]
    found = to_page(rows, page.limit, positions)
    ids = [row.id for row in found.elements]
    amounts = amounts_of_groups(connection, Grouping.ROOT, (), ids)
    sizes = _tree_sizes(ids)
    size_by_id = dict(connection.execute(select(sizes.c.root_id, sizes.c.size)).all())
    hosts = [Host(row.uuid, row.name, size_by_id[row.id], amounts.get(row.id, {})) for row in found.elements]
    return Page(hosts, found.last, found.has_more)


def _order(connection: Connection, sort: SortKey | None) -> tuple[Order, Subquery | None]:
    """Return the order, and the subquery by root that has the sort key."""
    if sort is None:
        return Order(roots.c.uuid), None
    if sort.attribute == "name":
        return Order(roots.c.uuid, roots.c.name, sort.descending, is_value_unique=True), None
    if sort.attribute == "providers":
        sizes = _tree_sizes()
        return Order(roots.c.uuid, sizes.c.size, sort.descending), sizes
    class_id = names.sort_class_id(connection, sort)
    sums = sums_by_root(class_id)
    values: dict[str, ColumnElement[Any]] = {
        "used": sums.c.used,
        "free": sums.c.free,
        "ratio": usage_ratio(sums.c.used, sums.c.capacity),
    }
    return Order(roots.c.uuid, values[sort.attribute], sort.descending), sums


def sums_by_root(class_id: int) -> Subquery:
    """Return the sums of one class by root."""
    column = inventories.c
    return (
        select(
            column.root_id,
            func.sum(column.used).label("used"),
            func.sum(column.capacity).label("capacity"),
            func.sum(func.greatest(free_amount(inventories), 0)).label("free"),
        )
        .where(column.resource_class_id == class_id)
        .group_by(column.root_id)
        .subquery("sums")
    )


def host_conditions(connection: Connection, host_filter: HostFilter) -> Iterator[ColumnElement[bool]]:
    """Yield the SQL conditions on `roots` for a filter; raise `Invalid` for an unknown trait or class."""
    yield roots.c.parent_id.is_(None)
    # A name may consist of blanks.
    if text := host_filter.text.strip() or host_filter.text:
        is_named = or_(func.strpos(_member.c.name, text) > 0, _member.c.uuid == text.lower())
        yield roots.c.id.in_(select(_member.c.root_id).where(is_named))
    if host_filter.trait:
        ids = names.trait_ids(connection, [host_filter.trait], "Invalid 'trait': No such trait(s): {}.")
        has_trait = _member.c.trait_ids.contains([ids[host_filter.trait]])
        yield roots.c.id.in_(select(_member.c.root_id).where(has_trait))
    if host_filter.aggregate:
        named = select(aggregates.c.id).where(aggregates.c.uuid == host_filter.aggregate).scalar_subquery()
        in_aggregate = select(provider_aggregates.c.root_id).where(
            provider_aggregates.c.aggregate_id == named
        )
        yield roots.c.id.in_(in_aggregate)
    if host_filter.resource_class:
        message = "Invalid 'resource_class': No such resource class {}."
        class_ids = names.resource_class_ids(connection, [host_filter.resource_class], message)
        of_class = inventories.c.resource_class_id == class_ids[host_filter.resource_class]
        yield roots.c.id.in_(select(inventories.c.root_id).where(of_class))


def _tree_sizes(root_ids: list[int] | None = None) -> Subquery:
    """Return the numbers of providers by root, of all roots or of `root_ids`."""
    query = select(resource_providers.c.root_id, func.count().label("size"))
    if root_ids is not None:
        query = query.where(is_any(resource_providers.c.root_id, root_ids))
    return query.group_by(resource_providers.c.root_id).subquery("sizes")
