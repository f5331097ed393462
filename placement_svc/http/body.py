"""Request bodies (`docs/spec/http.md 7`)."""

from typing import Any

import orjson
from flask import request

from placement_svc.domain.errors import Invalid

MAX_VALUES = 1_000_000
"""The most values in a body. A value takes up to 30 times as much memory as its text, such as `[]`."""


def read_json() -> Any:
    """Return the JSON body of the current request; raise `Invalid` for other text or too many values."""
    body = request.get_data(cache=False)
    # A chunked body seems to end at the size limit. Only a further read raises the error 413.
    request.stream.read(1)
    # Each value follows one of these characters, except the values of an object, which follow their keys.
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Invalid(f"The body has more than {MAX_VALUES:,} values.")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"Malformed JSON: {error}") from None
