"""JSON of requests and answers, by orjson."""

import itertools
from collections.abc import Iterator
from typing import Any

import orjson
from flask import Response
from flask.json.provider import JSONProvider


def dumps(value: Any) -> bytes:
    """Return `value` as JSON in UTF-8."""
    return orjson.dumps(value)


class OrjsonProvider(JSONProvider):
    """What Flask uses for `jsonify`, for dicts that views return, and in its test client."""

    def dumps(self, obj: Any, **kwargs: Any) -> str:
        """Return `obj` as JSON text."""
        return orjson.dumps(obj).decode()

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:
        """Return what the JSON text `s` says."""
        return orjson.loads(s)

    def response(self, *args: Any, **kwargs: Any) -> Response:
        """Return an answer whose body is the JSON of `args` or `kwargs`."""
        return Response(dumps(self._prepare_response_obj(args, kwargs)), content_type="application/json")


PIECES_AT_ONCE = 1000
"""How many pieces of a long answer are sent together."""


def respond(pieces: Iterator[bytes]) -> Response:
    """Return an answer with the JSON text that `pieces` make; a long one is sent as it is made."""
    start = list(itertools.islice(pieces, PIECES_AT_ONCE))
    if len(start) < PIECES_AT_ONCE:
        return Response(b"".join(start), content_type="application/json")
    batches = iter(lambda: b"".join(itertools.islice(pieces, PIECES_AT_ONCE)), b"")
    return Response(itertools.chain([b"".join(start)], batches), content_type="application/json")
