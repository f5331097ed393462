"""Request bodies (`docs/spec/http.md 7`)."""

from typing import Any

import orjson
from flask import request

from placement_svc.domain.errors import Invalid


def read_json() -> Any:
    """Return the JSON body of the current request; raise `Invalid` if it is not JSON."""
    body = request.get_data(cache=False)
    # A chunked body seems to end at the size limit. Only a further read raises the error 413.
    request.stream.read(1)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"Malformed JSON: {error}") from None
