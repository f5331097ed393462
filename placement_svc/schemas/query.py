"""Query strings (`docs/spec/http.md 12`)."""

from collections import Counter
from collections.abc import Sequence
from urllib.parse import parse_qsl

from placement_svc.domain.errors import Invalid
from placement_svc.domain.wording import QUERY_ERROR, counted

Pairs = Sequence[tuple[str, str]]
"""The keys and values of a query string, in their order."""


def parse_pairs(query_string: bytes) -> list[tuple[str, str]]:
    """Return the keys and values of a query string, in their order.

    Raise `Invalid` for bytes that are not UTF-8, and for NUL, which PostgreSQL cannot store.
    """
    try:
        query = query_string.decode().replace(";", "&")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise Invalid(f"{QUERY_ERROR}keys and values must be UTF-8") from None
    if any("\x00" in text for pair in pairs for text in pair):
        raise Invalid(f"{QUERY_ERROR}keys and values cannot contain NUL")
    return pairs


def values_of(pairs: Pairs, key: str) -> list[str]:
    """Return all values of a key, in their order."""
    return [value for each, value in pairs if each == key]


LIMITED_BY_SCHEMA = frozenset(["ignore_consumer"])
"""Keys whose own number of items is specified, with its own error (`docs/spec/extensions.md 2.7`)."""


def check_lists(pairs: Pairs, max_items: int) -> None:
    """Raise `Invalid` if all values of one key together list more than `max_items` items."""
    items = Counter[str]()
    for key, value in pairs:
        if key in LIMITED_BY_SCHEMA:
            continue
        items[key] += value.count(",") + 1
        if items[key] > max_items:
            raise Invalid(f"{QUERY_ERROR}'{key}' lists more than {counted(max_items, 'item')}")
