"""Pages of a list: its order, and the position at which a page begins (`docs/spec/extensions.md 6.2`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

T = TypeVar("T")

SortValue = str | int | float | datetime | None
"""A value that a list is sorted by; None if the element has no such value."""


@dataclass(frozen=True)
class SortKey:
    """The value that a list is sorted by: an attribute, or an amount of a resource class."""

    attribute: str
    resource_class: str = ""
    descending: bool = False


@dataclass(frozen=True)
class Position:
    """The position of an element in the order of its list.

    `key` is the uuid, the id or the name of the element, None for the group of what belongs to none. `value`
    is None, too, if the list is sorted by key.
    """

    key: str | None
    value: SortValue = None


@dataclass(frozen=True)
class PageRequest:
    """The part of a list that a client requests.

    `limit` is the largest number of elements (None: all of them), `after` the position of the element
    before the first one (None: from the beginning). Without `sort`, the order is that of the keys.
    """

    limit: int | None = None
    after: Position | None = None
    sort: SortKey | None = None


@dataclass(frozen=True)
class Page(Generic[T]):
    """Elements of a list in their order, and the position of the last one.

    `has_more` says whether any follow.
    """

    elements: Sequence[T]
    last: Position | None
    has_more: bool
