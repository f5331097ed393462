"""JSON of requests and answers, by orjson."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from threading import BoundedSemaphore
from typing import Any

import orjson
from flask import Response
from flask.json.provider import JSONProvider

from placement_svc.domain.errors import Unavailable


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


WHOLE = 160
"""An answer of fewer pieces is sent whole, with its length; a longer one as it is made."""

LONG_ANSWERS = 8
"""How many long answers a process sends at a time: each holds what it is made of until its client has it."""

_long_answers = BoundedSemaphore(LONG_ANSWERS)


def respond(pieces: Iterator[bytes]) -> Response:
    """Return an answer with the JSON text that `pieces` make.

    Raises `Unavailable` for a long one when too many of them are on their way.
    """
    start = list(itertools.islice(pieces, WHOLE))
    if len(start) < WHOLE:
        return Response(b"".join(start), content_type="application/json")
    if not _long_answers.acquire(blocking=False):
        raise Unavailable(
            f"There are {LONG_ANSWERS} long answers on their way already: ask for less, or with a limit."
        )
    ends = ExitStack()
    ends.callback(_long_answers.release)
    answer = Response(itertools.chain(start, pieces), content_type="application/json")
    answer.call_on_close(ends.close)
    return answer
