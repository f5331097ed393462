"""Lists of suppliers that several demands share: those with the same criteria have the same object."""

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def distinct_lists(lists: Iterable[T]) -> Collection[T]:
    """Return each list once; they are not compared, as they can be long."""
    return {id(each): each for each in lists}.values()


def change_each(lists: Collection[T], change: Callable[[T], U]) -> list[U]:
    """Return what `change` makes of each list; it is called once for a list that several demands share."""
    distinct = distinct_lists(lists)
    if len(distinct) == len(lists):
        return [change(each) for each in lists]
    changed = {id(each): change(each) for each in distinct}
    return [changed[id(each)] for each in lists]
