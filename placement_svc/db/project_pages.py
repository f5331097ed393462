"""Pages of projects with their usages (`docs/spec/extensions.md 6.3`).

A page reads the ids of all projects: the index on them has the order of the database's collation, not that of
bytes. In the order of an amount, it also sums up all allocations of the class. Nothing stores the usages of
projects, as every claim would have to change them. The usages of the page come from the allocations of its
projects: by keys, or from a scan of all allocations if the page has a large part of them.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    Subquery,
    cast,
    exists,
    func,
    null,
    select,
)

from placement_svc.db import names
from placement_svc.db.pages import Order, ordering, select_page, to_page
from placement_svc.db.tables import allocations, consumers, projects, resource_classes
from placement_svc.domain.consumers import ProjectUsage
from placement_svc.domain.pages import Page, PageRequest, Position


def find_page(connection: Connection, project_id: str | None, page: PageRequest) -> Page[ProjectUsage]:
    """Return a page of the projects that have consumers, or of the project `project_id` alone.

    One statement, and one that looks up the class of the sort key. Raises `Invalid` for an unknown one.
    """
    query = _select_projects(project_id)
    amount: ColumnElement[Any] | None = None
    if page.sort is not None:
        used = _sum_by_project(names.sort_class_id(connection, page.sort))
        amount = cast(func.coalesce(used.c.amount, 0), BigInteger)
        query = query.outerjoin(used, used.c.project_id == projects.c.id)
    query = query.add_columns((null() if amount is None else amount).label("sort_value"))
    descending = page.sort is not None and page.sort.descending
    key = projects.c.external_id.collate("C")
    chosen = select_page(query, Order(key, amount, descending), page).cte("chosen")
    chosen_key = chosen.c.external_id.collate("C")
    order = Order(chosen_key, None if amount is None else chosen.c.sort_value, descending)
    rows = connection.execute(_with_usages(chosen, order)).all()
    by_project = [list(of_project) for _, of_project in groupby(rows, key=lambda row: row.id)]
    positions = [Position(row.external_id, row.sort_value) for row, *_ in by_project]
    found = to_page(by_project, page.limit, positions)
    return Page([_usage(of_project) for of_project in found.elements], found.last, found.has_more)


def _select_projects(project_id: str | None) -> Select[Any]:
    """Return the query for the projects that have consumers, or for `project_id` alone, with their number."""
    is_member = consumers.c.project_id == projects.c.id
    count = select(func.count()).select_from(consumers).where(is_member).scalar_subquery()
    query = select(projects.c.id, projects.c.external_id, count.label("consumers")).where(
        exists().where(is_member)
    )
    return query if project_id is None else query.where(projects.c.external_id == project_id)


def _sum_by_project(class_id: int) -> Subquery:
    """Return the query for the amounts of a class that projects use."""
    return (
        select(consumers.c.project_id, func.sum(allocations.c.used).label("amount"))
        .join_from(allocations, consumers)
        .where(allocations.c.resource_class_id == class_id)
        .group_by(consumers.c.project_id)
        .subquery()
    )


def _with_usages(chosen: CTE, order: Order) -> Select[Any]:
    """Return the query for these projects in this order, with a row for each class that the project uses."""
    usage = (
        select(
            consumers.c.project_id,
            allocations.c.resource_class_id,
            func.sum(allocations.c.used).label("used"),
        )
        .join_from(consumers, allocations)
        .where(consumers.c.project_id.in_(select(chosen.c.id)))
        .group_by(consumers.c.project_id, allocations.c.resource_class_id)
        .subquery("usage")
    )
    return (
        select(*chosen.c, resource_classes.c.name, usage.c.used)
        .join_from(chosen, usage, usage.c.project_id == chosen.c.id, isouter=True)
        .outerjoin(resource_classes, resource_classes.c.id == usage.c.resource_class_id)
        .order_by(*ordering(order), resource_classes.c.id)
    )


def _usage(rows: Sequence[Row[Any]]) -> ProjectUsage:
    """Return the project of these rows, one for each class; a project without usage has one row."""
    usages = {row.name: row.used for row in rows if row.name is not None}
    return ProjectUsage(rows[0].external_id, rows[0].consumers, usages)
