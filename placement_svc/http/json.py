"""JSON bodies of requests and responses, with orjson."""

import errno
import itertools
import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson
from flask import Response, g
from flask.json.provider import JSONProvider

from placement_svc.domain.errors import (
    ClientDisconnected,
    PlacementError,
    TooManyLongResponses,
)
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.fair_semaphore import FairSemaphore

log = logging.getLogger(__name__)


def dumps(value: Any) -> bytes:
    """Return `value` as JSON in UTF-8."""
    return orjson.dumps(value)


def integer(value: int) -> int | orjson.Fragment:
    """Return an integer so that `dumps` accepts it, also with more than 64 bits."""
    return value if -(2**63) <= value < 2**63 else orjson.Fragment(str(value))


def timestamp(time: datetime) -> str:
    """Return a time as text, in UTC whatever the time zone of PostgreSQL's sessions."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class OrjsonProvider(JSONProvider):
    """The JSON provider for `jsonify`, for dicts that views return, and for the test client."""

    def dumps(self, obj: Any, **kwargs: Any) -> str:
        """Return `obj` as JSON text."""
        return orjson.dumps(obj).decode()

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:
        """Return the value of the JSON text `s`."""
        return orjson.loads(s)

    def response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a response with `args` or `kwargs` as its JSON body."""
        return Response(dumps(self._prepare_response_obj(args, kwargs)), content_type="application/json")


STREAMING_THRESHOLD = 160
"""A response of fewer pieces is sent whole, with `Content-Length`; a longer one is streamed."""

MAX_STREAMED_RESPONSES = 8
"""How many responses a process streams at a time; each keeps its data in memory until the client read it."""

MAX_WAITING = 50
"""How many requests of a process may wait, each in a thread, because too many responses are streamed."""

_TOO_MANY = (
    f"There are {MAX_STREAMED_RESPONSES} long responses being sent already: ask for less, or with a limit."
)

_streamed_responses = FairSemaphore(MAX_STREAMED_RESPONSES, max_waiting=MAX_WAITING)


class StreamedResponse(Response):
    """A response whose body is generated while it is sent."""

    aborted = False
    """Whether the body ended early."""


def respond(pieces: Iterator[bytes]) -> Response:
    """Return a response with the JSON text that `pieces` make up.

    Raises `TooManyLongResponses` for a long response if the process already streams
    `MAX_STREAMED_RESPONSES`, unless one is reserved for the request.
    """
    start = list(itertools.islice(pieces, STREAMING_THRESHOLD))
    if len(start) < STREAMING_THRESHOLD:
        return Response(b"".join(start), content_type="application/json")
    if not g.pop("has_reserved_stream", False) and not _streamed_responses.acquire(0):
        raise TooManyLongResponses(_TOO_MANY)
    # An ExitStack releases only once, however often the response is closed.
    release_once = ExitStack()
    release_once.callback(_streamed_responses.release)
    response = StreamedResponse(content_type="application/json")
    response.response = itertools.chain(start, _until_error(pieces, response))
    response.call_on_close(release_once.close)
    return response


def respond_with_big_integers(body: Any) -> Response:
    """Return a response whose integers may have more than 64 bits, which orjson cannot write."""
    return Response(json.dumps(body), content_type="application/json")


@contextmanager
def reserved_stream(deadline: Deadline) -> Iterator[None]:
    """Wait until the process may stream one more response, which is that of `respond` in the block.

    Raises `Unavailable` at the deadline, or if too many requests wait so.
    """
    deadline.acquire(_streamed_responses, _TOO_MANY)
    g.has_reserved_stream = True
    try:
        yield
    finally:
        if g.pop("has_reserved_stream", False):
            _streamed_responses.release()


def _until_error(pieces: Iterator[bytes], response: StreamedResponse) -> Iterator[bytes]:
    """Yield the pieces; mark the response as aborted if an error ends them early.

    For an error other than a disconnected client, raise `ConnectionResetError`: the server then closes the
    connection without the last chunk of the body, so the client sees that the response is incomplete.
    """
    try:
        yield from pieces
    except ClientDisconnected:
        response.aborted = True
    except PlacementError as error:
        response.aborted = True
        log.warning("A response was aborted after its start: %s", error)
        raise ConnectionResetError(errno.ECONNRESET, "The response is incomplete.") from None
