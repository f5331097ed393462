"""JSON of requests and answers, by orjson."""

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
