"""Request bodies (`docs/spec/http.md 7`)."""

from typing import Any

import orjson
from flask import request

from placement_svc.domain.errors import Invalid


def read_json() -> Any:
    """Return what the body of the present request says; raises `Invalid` when it is not JSON."""
    body = request.get_data(cache=False)
    # A body in chunks seems to end at the limit; only who reads on is told that it is too large.
    request.stream.read(1)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"Malformed JSON: {error}") from None
