"""The wording of texts: numbers with nouns, and bounded quotations.

Errors show the beginning of what a client sent, however much that is.
"""

from collections.abc import Callable, Collection, Iterable
from heapq import nsmallest
from itertools import islice

MICROVERSION_HEADER = "OpenStack-API-Version"
"""The header with which a request selects a microversion."""

MAX_LISTING = 1000
"""The most characters of the names that an error lists."""

MAX_NAMES = 100
"""The most names that an error lists."""


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as "1 host" or "1,000 hosts"; `plural` is not the noun and an s."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun if number == 1 else plural or f'{noun}s'}"


def shorten(text: str, length: int) -> str:
    """Return `text`, or its first `length` characters and how many more it has."""
    if len(text) <= length:
        return text
    return f"{text[:length]}… and {len(text) - length:,} more characters"


def _shorten_name(name: str) -> str:
    return shorten(name, MAX_LISTING)


def list_names(names: Collection[str]) -> str:
    """Return `names` separated by commas: as many as fit, and how many more there are."""
    return _list(map(_shorten_name, names), len(names))


def list_sorted_names(names: Collection[str], show: Callable[[str], str] = _shorten_name) -> str:
    """Return the first of `names` in their order, as `list_names` does; `show` returns the text of a name.

    Linear in the number of names: it does not sort those that are not shown.
    """
    return _list(map(show, nsmallest(MAX_NAMES, names)), len(names))


def _list(texts: Iterable[str], count: int) -> str:
    shown: list[str] = []
    length = 0
    for text in islice(texts, MAX_NAMES):
        length += len(text) + len(", ")
        if shown and length > MAX_LISTING:
            break
        shown.append(text)
    listing = ", ".join(shown)
    return listing if len(shown) == count else f"{listing}, … and {count - len(shown):,} more"
