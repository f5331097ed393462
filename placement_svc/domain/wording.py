"""The wording of texts: numbers with nouns, and bounded quotations.

Errors show the beginning of what a client sent, however much that is.
"""

import re
from collections.abc import Callable, Collection, Iterable
from heapq import nsmallest
from itertools import islice

QUERY_ERROR = "Invalid query string parameters: "
"""The beginning of an error about a query string."""

MAX_REASON_LENGTH = 1000
"""The most characters of an error that a page or a command shows."""

MAX_LISTING = 1000
"""The most characters of the names that an error lists."""

MAX_NAMES = 100
"""The most names that an error lists."""


_KEY = re.compile(r"Failed validating '\w+' in schema\['properties'\]\['(\w+)'\]")
"""The beginning of the schema that a validation error quotes; its group is the key of the query."""

_SCHEMA = re.compile(r"Failed validating '\w+' in schema")
"""The beginning of the schema that a validation error quotes."""

_PATTERN = re.compile(r" does not match '\^.*", re.DOTALL)
"""The pattern in the reason of a validation error."""

_KEY_PATTERNS = re.compile(r" do(es)? not match any of the regexes: '\^.*", re.DOTALL)
"""The patterns of keys in the reason of a validation error; the group says whether it has one key."""


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as "1 host" or "1,000 hosts"; `plural` is not the noun and an s."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {noun if number == 1 else plural or f'{noun}s'}"


def shorten(text: str, length: int) -> str:
    """Return `text`, or its first `length` characters and how many more it has."""
    if len(text) <= length:
        return text
    return f"{text[:length]}… and {len(text) - length:,} more characters"


def without_schema(text: str) -> str:
    """Return the text of an error without the schema and the instance that a validation error quotes.

    If the error ends with a hint, this replaces the pattern that the value does not match.
    """
    schema = _SCHEMA.search(text)
    if not schema:
        return text.strip()
    reason = text[: schema.start()].strip()
    # The instance ends with a quotation mark, a bracket, a digit or an ellipsis.
    hint = text.rpartition("  ")[2].strip()
    if not hint.endswith(".") or hint.endswith("..."):
        return reason
    reason = _KEY_PATTERNS.sub(lambda match: f" {'is' if match[1] else 'are'} not known", reason)
    return f"{_PATTERN.sub('', reason)}. {hint}"


def without_rule(reason: str) -> str:
    """Return what is wrong with a request, with which key, and what would be right, without any schema."""
    key = _KEY.search(reason)
    text = without_schema(reason)
    return text.replace(QUERY_ERROR, f"Invalid '{key[1]}': ", 1) if key else text


def short_reason(reason: str) -> str:
    """Return the text of an error as a page or a command shows it."""
    return shorten(without_rule(reason), MAX_REASON_LENGTH)


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
