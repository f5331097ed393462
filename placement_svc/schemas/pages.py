"""The query keys of pages: `limit`, `marker` and `sort_by` (`docs/spec/extensions.md 6.2`)."""

import base64
import re
from collections.abc import Mapping
from dataclasses import astuple
from datetime import datetime
from typing import Any

import orjson

from placement_svc.domain.errors import Invalid
from placement_svc.domain.pages import PageRequest, Position, SortKey, SortValue
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.schemas.base import Schema
from placement_svc.schemas.scalars import DASHED_UUID_KEY, String, matches
from placement_svc.schemas.violations import quote

MAX_LIMIT = 10_000
"""The largest number of elements in a page."""

AMOUNT = "usage"
"""The attribute of a sort key that names only a resource class."""

_SORT_KEY = re.compile(r"(?P<minus>-?)(?:(?P<attribute>[a-z_]+)(?::|$))?(?P<resource_class>[A-Z0-9_]*)")


_ENCODED = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"-?[0-9]{1,40}")
"""The alphabet of an encoded marker, and the amounts in it."""


class PageKeys(Schema):
    """The query keys that select a page."""

    limit = String(
        pattern=r"^[1-9][0-9]*$",
        hint=f"The limit is a whole number from 1 to {MAX_LIMIT:,}.",
        metadata={"description": f"The largest number of elements to return, at most {MAX_LIMIT:,}."},
    )
    marker = String(
        metadata={"description": "The element before the first one to return, from the `next` link."}
    )


def parse_page(query: Mapping[str, str], marker_pattern: str = "") -> PageRequest:
    """Return the page that a loaded query selects; raise `Invalid`.

    `marker_pattern` is the pattern of a marker in a list that is not sorted. A `DASHED_UUID_KEY` is stored in
    small letters, and may be in capitals in the query; uuids of consumers are stored as they were sent.
    """
    sort = _parse_sort(query["sort_by"]) if "sort_by" in query else None
    after = None
    if "marker" in query:
        marker = query["marker"]
        if sort is not None:
            after = _decode(marker, sort)
        elif matches(marker_pattern, marker):
            after = Position(marker.lower() if marker_pattern == DASHED_UUID_KEY else marker)
        else:
            raise _bad_marker(marker)
    return PageRequest(_parse_limit(query.get("limit")), after, sort)


def _parse_limit(text: str | None) -> int | None:
    if text is None:
        return None
    # Text of many digits is not converted: that is slow, and Python refuses more than 4,300 digits.
    if len(text) > len(str(MAX_LIMIT)) or int(text) > MAX_LIMIT:
        raise Invalid(f"{QUERY_ERROR}'limit' must be at most {MAX_LIMIT}. Got: {quote(text)}")
    return int(text)


def _parse_sort(text: str) -> SortKey:
    """Return the sort key in a `sort_by` that has matched the pattern of its schema."""
    match = _SORT_KEY.fullmatch(text)
    assert match is not None
    return SortKey(match["attribute"] or AMOUNT, match["resource_class"], match["minus"] == "-")


def write_marker(position: Position, sort: SortKey | None) -> str:
    """Return the marker of a position in a list that is sorted by `sort` (None: by key)."""
    if sort is None:
        assert position.key is not None
        return position.key
    # A sum can have more than 64 bits, which are no number for orjson.
    value = str(position.value) if isinstance(position.value, int) else position.value
    content = orjson.dumps([*astuple(sort), value, position.key])
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(marker: str, sort: SortKey) -> Position:
    """Return the position that `write_marker` has encoded; raise `Invalid` for any other text."""
    try:
        if not _ENCODED.fullmatch(marker):
            raise ValueError
        attribute, resource_class, descending, value, key = orjson.loads(
            base64.urlsafe_b64decode(marker + "=" * (-len(marker) % 4))
        )
        if (attribute, resource_class, descending) != astuple(sort):
            raise ValueError
        # The roots in the capacity for a request always have both.
        if sort.attribute == "fits" and None in (value, key):
            raise ValueError
        return Position(None if key is None else _text(key), _decode_value(value, sort))
    except (TypeError, ValueError):
        raise _bad_marker(marker) from None


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\x00" in value:
        raise ValueError
    return value


def _decode_value(value: Any, sort: SortKey) -> SortValue:
    if sort.attribute == "name":
        return _text(value)
    if value is None:
        return None
    if sort.attribute == "created_at":
        time = datetime.fromisoformat(_text(value))
        if time.tzinfo is None:
            raise ValueError
        return time
    if sort.attribute == "ratio":
        if not isinstance(value, float):
            raise ValueError
        return value
    if not _NUMBER.fullmatch(_text(value)):
        raise ValueError
    return int(value)


def _bad_marker(marker: str) -> Invalid:
    return Invalid(
        f"{QUERY_ERROR}Expected 'marker' to be the one in the 'next' link of the same request."
        f" Got: {quote(marker)}"
    )
