"""Request bodies (`docs/spec/http.md 7`)."""

from math import inf
from typing import Any

import orjson
from flask import request
from werkzeug.exceptions import RequestEntityTooLarge

from placement_svc.domain.errors import Invalid
from placement_svc.domain.execution.memory import MEGABYTE

MIN_MEMORY = 64 * 1024 * 1024
"""The memory in bytes that even a small body may take; a large one may take four times its size."""

BYTES_PER_CHARACTER = {b"{": 300, b"[": 130, b",": 64, b":": 80, b'"': 16}
"""The memory that a value takes at most, divided among the characters that it needs in JSON.

An object costs more than the parser needs, because its validation makes another one.
`tests/http/test_body_memory.py` measures the result.
"""

FIELDS = [
    f'"{name}":'.encode()
    for name in (
        "allocation_ratio",
        "allocations",
        "consumer_generation",
        "consumer_type",
        "inventories",
        "max_unit",
        "min_unit",
        "project_id",
        "reserved",
        "resource_provider_generation",
        "resources",
        "step_size",
        "total",
        "user_id",
    )
]
FIELD_SAVING = 64
"""The memory that these names do not take: the parser creates each name only once."""


def read_json() -> Any:
    """Return the JSON body of the current request; raise `Invalid` for other text or too many values."""
    body = _read_body()
    needed, allowed = estimate_memory(body), max(MIN_MEMORY, 4 * len(body))
    if needed > allowed:
        raise Invalid(
            f"The body has too many values: it would take {needed // MEGABYTE:,} MB of memory, and at most"
            f" {allowed // MEGABYTE:,} MB are allowed. Divide it into several requests."
        )
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"Malformed JSON: {error}") from None


def _read_body() -> bytes:
    """Return the body of the current request; raise `RequestEntityTooLarge` if it is larger than allowed."""
    length, limit = request.content_length or 0, request.max_content_length or inf
    if length <= limit:
        body = request.get_data(cache=False)
        # Werkzeug cuts a chunked body at the limit.
        if length or len(body) < limit or not request.environ["wsgi.input"].read(1):
            return body
    raise RequestEntityTooLarge(f"It may have at most {limit:,} bytes.")


def estimate_memory(body: bytes) -> int:
    """Return how many bytes of memory the body, its parsed form and its validated form take at most.

    Characters in strings are counted as if they were outside. One wide character makes Python store a string
    with 4 bytes per character. The parser copies the body.
    """
    is_narrow = body.isascii() and rb"\u" not in body
    text = (2 if is_narrow else 6) * len(body)
    values = sum(body.count(character) * size for character, size in BYTES_PER_CHARACTER.items())
    return text + values - FIELD_SAVING * sum(map(body.count, FIELDS))
