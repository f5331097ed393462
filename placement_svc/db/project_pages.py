"""Pages of projects with their usages (`docs/spec/extensions.md 6.3`).

A page reads the ids of all projects: the index on them has the order of the database's collation, not that of
bytes. In the order of an amount, it also sums up all allocations of the class. Nothing stores the usages of
projects, as every claim would have to change them.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, cast, exists, func, select

from placement_svc.db import names
from placement_svc.db.filters import is_any
from placement_svc.db.pages import Order, select_page, to_page
from placement_svc.db.tables import allocations, consumers, projects, resource_classes
from placement_svc.domain.consumers import ProjectUsage
from placement_svc.domain.pages import Page, PageRequest, Position


def find_page(connection: Connection, project_id: str | None, page: PageRequest) -> Page[ProjectUsage]:
    """Return a page of the projects that have consumers, or of the project `project_id` alone.

    Raises `Invalid` for an unknown resource class.
    """
    key = projects.c.external_id.collate("C")
    amount: ColumnElement[Any] | None = None
    query = select(projects.c.id, projects.c.external_id).where(
        exists().where(consumers.c.project_id == projects.c.id)
    )
    if project_id is not None:
        query = query.where(projects.c.external_id == project_id)
    if page.sort is not None:
        message = "Invalid 'sort_by': No such resource class {}."
        name = page.sort.resource_class
        class_id = names.resource_class_ids(connection, [name], message)[name]
        used = (
            select(consumers.c.project_id, func.sum(allocations.c.used).label("amount"))
            .join_from(allocations, consumers)
            .where(allocations.c.resource_class_id == class_id)
            .group_by(consumers.c.project_id)
            .subquery()
        )
        amount = cast(func.coalesce(used.c.amount, 0), BigInteger)
        query = query.outerjoin(used, used.c.project_id == projects.c.id).add_columns(
            amount.label("sort_value")
        )
    order = Order(key, amount, page.sort is not None and page.sort.descending)
    rows = connection.execute(select_page(query, order, page)).all()
    positions = [Position(row.external_id, None if amount is None else row.sort_value) for row in rows]
    found = to_page(rows, page.limit, positions)
    return Page(_with_usages(connection, found.elements), found.last, found.has_more)


def _with_usages(connection: Connection, rows: Sequence[Any]) -> list[ProjectUsage]:
    """Return the projects of these rows, from all their consumers and allocations."""
    ids = [row.id for row in rows]
    counts = (
        select(consumers.c.project_id, func.count())
        .where(is_any(consumers.c.project_id, ids))
        .group_by(consumers.c.project_id)
    )
    count_by_id: dict[int, int] = dict(connection.execute(counts).all())
    sums = (
        select(consumers.c.project_id, resource_classes.c.name, func.sum(allocations.c.used))
        .join_from(allocations, consumers)
        .join(resource_classes, resource_classes.c.id == allocations.c.resource_class_id)
        .where(is_any(consumers.c.project_id, ids))
        .group_by(consumers.c.project_id, resource_classes.c.id)
        .order_by(resource_classes.c.id)
    )
    usages: dict[int, dict[str, int]] = {}
    for id, name, used in connection.execute(sums):
        usages.setdefault(id, {})[name] = used
    return [ProjectUsage(row.external_id, count_by_id[row.id], usages.get(row.id, {})) for row in rows]
