"""SQL of pages: the elements of a list behind a position, in the order of the list.

A page begins behind a value and not at an offset, so its cost does not depend on its position if an index
has the order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Numeric, Select, and_, false, literal, or_

from placement_svc.domain.pages import Page, PageRequest, Position, SortValue

T = TypeVar("T")


@dataclass(frozen=True)
class Order:
    """The order of a list: by `value`, where NULL comes last, then by `key`.

    `value` None: by `key` alone. With `is_key_nullable`, the element whose key is NULL is the last one of
    its value. `is_value_unique`: no two elements have the same value, and each has one.
    """

    key: ColumnElement[Any]
    value: ColumnElement[Any] | None = None
    descending: bool = False
    is_key_nullable: bool = False
    is_value_unique: bool = False


def select_page(query: Select[Any], order: Order, page: PageRequest) -> Select[Any]:
    """Return the query for the elements of a page, and one more if others follow."""
    if page.after is not None:
        query = query.where(_follows(order, page.after))
    query = query.order_by(*ordering(order))
    return query if page.limit is None else query.limit(page.limit + 1)


def ordering(order: Order) -> Iterator[ColumnElement[Any]]:
    """Yield what ORDER BY names. An index serves it only without NULLS LAST and a second column."""
    if order.value is not None:
        value = order.value.desc() if order.descending else order.value.asc()
        if order.is_value_unique:
            yield value
            return
        yield value.nulls_last()
    key = order.key.asc()
    yield key.nulls_last() if order.is_key_nullable else key


def _follows(order: Order, position: Position) -> ColumnElement[bool]:
    """Return the condition that an element follows a position."""
    later: ColumnElement[bool] = false() if position.key is None else order.key > position.key
    if order.is_key_nullable and position.key is not None:
        later = or_(later, order.key.is_(None))
    if order.value is None:
        return later
    if position.value is None:
        return and_(order.value.is_(None), later)
    value = _exact(position.value)
    beyond = order.value < value if order.descending else order.value > value
    if order.is_value_unique:
        return beyond
    return or_(beyond, and_(order.value == value, later), order.value.is_(None))


def _exact(value: SortValue) -> ColumnElement[Any]:
    # A sum can exceed a bigint.
    return literal(value, Numeric()) if isinstance(value, int) else literal(value)


def to_sort_value(value: Any) -> SortValue:
    """Return a value of the sort key as a position has it; PostgreSQL's sum of integers is a numeric."""
    return int(value) if isinstance(value, Decimal) else value


def to_page(rows: Sequence[T], limit: int | None, positions: Sequence[Position]) -> Page[T]:
    """Return the rows of `select_page` as a page; `positions` are those of the rows."""
    count = len(rows) if limit is None else min(len(rows), limit)
    return Page(rows[:count], positions[count - 1] if count else None, count < len(rows))
