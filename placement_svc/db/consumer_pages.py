"""Pages of consumers, and consumers with their allocations (`docs/spec/extensions.md 6.1 to 6.3`).

The unique index on uuid has the order of the pages. With a filter, PostgreSQL reads this index or, if few
consumers match, only those. What else a page shows is found by keys, with subqueries and OFFSET 0: for joins
with 1,000 rows, PostgreSQL reads all projects, users and providers.

A page in the order of creation reads all consumers that match: an index would make each claim write to it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, case, exists, func, or_, select, true

from placement_svc.db import names
from placement_svc.db.filters import is_any
from placement_svc.db.pages import Order, ordering, select_page, to_page
from placement_svc.db.tables import (
    allocations,
    consumer_types,
    consumers,
    projects,
    resource_classes,
    resource_providers,
    users,
)
from placement_svc.domain.allocations import UNKNOWN_TYPE
from placement_svc.domain.consumers import Consumer, ConsumerDetails, ConsumerFilter
from placement_svc.domain.errors import NotFound
from placement_svc.domain.pages import Page, PageRequest, Position, SortKey

_FIELDS = tuple(Consumer.__dataclass_fields__)


def _details(chosen: Select[Any], sort: SortKey | None = None) -> Select[Any]:
    """Return the query for the fields of the consumers that `chosen` returns, in the order of `sort`."""
    row = chosen.subquery("chosen")
    # Every claim replaces all allocations of its consumer, so their time is that of the last claim.
    claimed_at = (
        select(func.max(allocations.c.created_at))
        .where(allocations.c.consumer_id == row.c.id)
        .scalar_subquery()
    )
    is_changed = or_(row.c.created_at.is_(None), claimed_at > row.c.created_at)
    type_name = _text_of(consumer_types.c.name, row.c.consumer_type_id)
    return select(
        row.c.id,
        row.c.uuid,
        row.c.generation,
        _text_of(projects.c.external_id, row.c.project_id).label("project_id"),
        _text_of(users.c.external_id, row.c.user_id).label("user_id"),
        func.coalesce(type_name, UNKNOWN_TYPE).label("consumer_type"),
        row.c.created_at,
        case((is_changed, claimed_at)).label("updated_at"),
    ).order_by(*ordering(_order(row.c, sort)))


def _order(columns: Any, sort: SortKey | None) -> Order:
    if sort is None:
        return Order(columns.uuid)
    return Order(columns.uuid, columns.created_at, sort.descending)


def _text_of(column: Column[str], id: ColumnElement[int]) -> ColumnElement[str]:
    """Return the value of a column in the row of its table with this id."""
    return select(column).where(column.table.c.id == id).scalar_subquery()


def get(connection: Connection, uuid: str) -> Consumer:
    """Return a consumer; raise `NotFound`."""
    row = connection.execute(_details(select(consumers).where(consumers.c.uuid == uuid))).one_or_none()
    if row is None:
        raise not_found(uuid)
    return _consumer(row)


def not_found(uuid: str) -> NotFound:
    """Return the error for a consumer that does not exist, or that the caller may not see."""
    return NotFound(f"No consumer with uuid {uuid} found")


def _consumer(row: Row[Any]) -> Consumer:
    return Consumer(*(getattr(row, name) for name in _FIELDS))


def find_page(
    connection: Connection, consumer_filter: ConsumerFilter, page: PageRequest, *, with_allocations: bool
) -> Page[ConsumerDetails]:
    """Return a page of the consumers that match all filters.

    Raises `Invalid` for an unknown resource class.
    """
    matching = select(consumers).where(*_conditions(connection, consumer_filter))
    chosen = select_page(matching, _order(consumers.c, page.sort), page)
    rows = connection.execute(_details(chosen, page.sort)).all()
    positions = [Position(row.uuid, row.created_at if page.sort else None) for row in rows]
    found = to_page(rows, page.limit, positions)
    allocated: Callable[[int], Any] = lambda _: None  # noqa: E731
    if with_allocations:
        allocated = _allocations(connection, [row.id for row in found.elements])
    details = [ConsumerDetails(_consumer(row), allocated(row.id)) for row in found.elements]
    return Page(details, found.last, found.has_more)


def find(connection: Connection, uuids: Sequence[str]) -> list[ConsumerDetails]:
    """Return those of the consumers that exist, with their allocations."""
    rows = connection.execute(_details(select(consumers).where(is_any(consumers.c.uuid, uuids)))).all()
    allocated = _allocations(connection, [row.id for row in rows])
    return [ConsumerDetails(_consumer(row), allocated(row.id)) for row in rows]


def _conditions(connection: Connection, consumer_filter: ConsumerFilter) -> Iterator[ColumnElement[bool]]:
    table = consumers.c
    if consumer_filter.project_id is not None:
        project = select(projects.c.id).where(projects.c.external_id == consumer_filter.project_id)
        yield table.project_id == project.scalar_subquery()
    if consumer_filter.user_id is not None:
        user = select(users.c.id).where(users.c.external_id == consumer_filter.user_id)
        yield table.user_id == user.scalar_subquery()
    if consumer_filter.consumer_type == UNKNOWN_TYPE:
        yield table.consumer_type_id.is_(None)
    elif consumer_filter.consumer_type is not None:
        named = select(consumer_types.c.id).where(consumer_types.c.name == consumer_filter.consumer_type)
        yield table.consumer_type_id == named.scalar_subquery()
    of_allocation = list(_allocation_conditions(connection, consumer_filter))
    if of_allocation:
        yield exists().where(allocations.c.consumer_id == table.id, *of_allocation)


def _allocation_conditions(
    connection: Connection, consumer_filter: ConsumerFilter
) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions that one allocation of the consumer satisfies together."""
    if consumer_filter.resource_provider is not None:
        named = select(resource_providers.c.id).where(
            resource_providers.c.uuid == consumer_filter.resource_provider
        )
        yield allocations.c.provider_id == named.scalar_subquery()
    if consumer_filter.in_tree is not None:
        root = select(resource_providers.c.root_id).where(
            resource_providers.c.uuid == consumer_filter.in_tree
        )
        member = resource_providers.alias("member")
        yield allocations.c.provider_id.in_(
            select(member.c.id).where(member.c.root_id == root.scalar_subquery())
        )
    if consumer_filter.resource_class is not None:
        message = "Invalid 'resource_class': No such resource class {}."
        class_ids = names.resource_class_ids(connection, [consumer_filter.resource_class], message)
        yield allocations.c.resource_class_id == class_ids[consumer_filter.resource_class]


def _allocations(connection: Connection, consumer_ids: Sequence[int]) -> Callable[[int], Mapping[str, Any]]:
    """Return a function that returns the allocations of one of these consumers, by provider."""
    provider = (
        select(resource_providers.c.uuid, resource_providers.c.generation)
        .where(resource_providers.c.id == allocations.c.provider_id)
        .offset(0)
        .lateral("provider")
    )
    query = (
        select(
            allocations.c.consumer_id,
            provider.c.uuid,
            provider.c.generation,
            resource_classes.c.name,
            allocations.c.used,
        )
        .join_from(allocations, provider, true())
        .join(resource_classes, resource_classes.c.id == allocations.c.resource_class_id)
        .where(is_any(allocations.c.consumer_id, consumer_ids))
        .order_by(allocations.c.consumer_id, allocations.c.provider_id, allocations.c.resource_class_id)
    )
    found: dict[int, dict[str, Any]] = {}
    for consumer_id, provider, generation, name, used in connection.execute(query).all():
        by_provider = found.setdefault(consumer_id, {})
        entry = by_provider.setdefault(provider, {"generation": generation, "resources": {}})
        entry["resources"][name] = used
    return lambda consumer_id: found.get(consumer_id, {})
