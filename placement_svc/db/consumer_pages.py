"""Pages of consumers, and consumers with their allocations (`docs/spec/extensions.md 6.1 to 6.3`).

The unique index on uuid has the order of the pages. With a filter, PostgreSQL reads this index or, if few
consumers match, only those.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, case, exists, func, or_, select

from placement_svc.db import names
from placement_svc.db.filters import is_any
from placement_svc.db.pages import Order, select_page, to_page
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
from placement_svc.domain.pages import Page, PageRequest, Position

_FIELDS = tuple(Consumer.__dataclass_fields__)


def _details(chosen: Select[Any]) -> Select[Any]:
    """Return the query for the fields of the consumers whose rows `chosen` returns."""
    row = chosen.subquery("chosen")
    # Every claim replaces all allocations of its consumer, so their time is that of the last claim.
    claimed_at = (
        select(func.max(allocations.c.created_at))
        .where(allocations.c.consumer_id == row.c.id)
        .scalar_subquery()
    )
    is_changed = or_(row.c.created_at.is_(None), claimed_at > row.c.created_at)
    return (
        select(
            row.c.id,
            row.c.uuid,
            row.c.generation,
            projects.c.external_id.label("project_id"),
            users.c.external_id.label("user_id"),
            func.coalesce(consumer_types.c.name, UNKNOWN_TYPE).label("consumer_type"),
            row.c.created_at,
            case((is_changed, claimed_at)).label("updated_at"),
        )
        .join_from(row, projects, projects.c.id == row.c.project_id)
        .join(users, users.c.id == row.c.user_id)
        .outerjoin(consumer_types, consumer_types.c.id == row.c.consumer_type_id)
        .order_by(row.c.uuid)
    )


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
    rows = connection.execute(_details(select_page(matching, Order(consumers.c.uuid), page))).all()
    found = to_page(rows, page.limit, [Position(row.uuid) for row in rows])
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


def _conditions(connection: Connection, wanted: ConsumerFilter) -> Iterator[ColumnElement[bool]]:
    table = consumers.c
    if wanted.project_id is not None:
        project = select(projects.c.id).where(projects.c.external_id == wanted.project_id)
        yield table.project_id == project.scalar_subquery()
    if wanted.user_id is not None:
        user = select(users.c.id).where(users.c.external_id == wanted.user_id)
        yield table.user_id == user.scalar_subquery()
    if wanted.consumer_type == UNKNOWN_TYPE:
        yield table.consumer_type_id.is_(None)
    elif wanted.consumer_type is not None:
        named = select(consumer_types.c.id).where(consumer_types.c.name == wanted.consumer_type)
        yield table.consumer_type_id == named.scalar_subquery()
    of_allocation = list(_allocation_conditions(connection, wanted))
    if of_allocation:
        yield exists().where(allocations.c.consumer_id == table.id, *of_allocation)


def _allocation_conditions(connection: Connection, wanted: ConsumerFilter) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions that one allocation of the consumer satisfies together."""
    if wanted.resource_provider is not None:
        named = select(resource_providers.c.id).where(resource_providers.c.uuid == wanted.resource_provider)
        yield allocations.c.provider_id == named.scalar_subquery()
    if wanted.in_tree is not None:
        root = select(resource_providers.c.root_id).where(resource_providers.c.uuid == wanted.in_tree)
        member = resource_providers.alias("member")
        yield allocations.c.provider_id.in_(
            select(member.c.id).where(member.c.root_id == root.scalar_subquery())
        )
    if wanted.resource_class is not None:
        message = "Invalid 'resource_class': No such resource class {}."
        class_ids = names.resource_class_ids(connection, [wanted.resource_class], message)
        yield allocations.c.resource_class_id == class_ids[wanted.resource_class]


def _allocations(connection: Connection, consumer_ids: Sequence[int]) -> Callable[[int], Mapping[str, Any]]:
    """Return a function that returns the allocations of one of these consumers, by provider."""
    query = (
        select(
            allocations.c.consumer_id,
            resource_providers.c.uuid,
            resource_providers.c.generation,
            resource_classes.c.name,
            allocations.c.used,
        )
        .join_from(allocations, resource_providers, resource_providers.c.id == allocations.c.provider_id)
        .join(resource_classes, resource_classes.c.id == allocations.c.resource_class_id)
        .where(is_any(allocations.c.consumer_id, consumer_ids))
        .order_by(allocations.c.consumer_id, allocations.c.provider_id, allocations.c.resource_class_id)
    )
    found: dict[int, dict[str, Any]] = {}
    for consumer_id, provider, generation, name, used in connection.execute(query):
        by_provider = found.setdefault(consumer_id, {})
        entry = by_provider.setdefault(provider, {"generation": generation, "resources": {}})
        entry["resources"][name] = used
    return lambda consumer_id: found.get(consumer_id, {})
