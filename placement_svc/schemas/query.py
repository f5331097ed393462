"""Query strings (`docs/spec/http.md 12`)."""

from collections import Counter
from collections.abc import Iterable
from urllib.parse import parse_qsl

from placement_svc.domain.errors import Invalid

LEAD = "Invalid query string parameters: "


def parse_pairs(query_string: bytes) -> list[tuple[str, str]]:
    """Return the keys and values of a query string in their order.

    Raises `Invalid` for what is not UTF-8 and for a NUL, which no stored text can have.
    """
    try:
        query = query_string.decode().replace(";", "&")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise Invalid(f"{LEAD}keys and values must be UTF-8") from None
    if any("\x00" in text for pair in pairs for text in pair):
        raise Invalid(f"{LEAD}keys and values cannot contain NUL")
    return pairs


def check_lists(pairs: Iterable[tuple[str, str]], most: int) -> None:
    """Refuse a key with more than `most` items, its values taken together; raises `Invalid`."""
    items = Counter[str]()
    for key, value in pairs:
        items[key] += value.count(",") + 1
        if items[key] > most:
            raise Invalid(f"{LEAD}'{key}' lists more than {most} items")
