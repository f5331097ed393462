"""JSON bodies of requests and responses, with orjson."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from threading import BoundedSemaphore
from typing import Any

import orjson
from flask import Response
from flask.json.provider import JSONProvider

from placement_svc.domain.errors import ClientDisconnected, Unavailable


def dumps(value: Any) -> bytes:
    """Return `value` as JSON in UTF-8."""
    return orjson.dumps(value)


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
"""A response of fewer chunks is sent whole, with `Content-Length`; a longer one is streamed."""

MAX_STREAMED_RESPONSES = 8
"""How many responses a process streams at a time; each keeps its data in memory until the client read it."""

_streamed_responses = BoundedSemaphore(MAX_STREAMED_RESPONSES)


def respond(chunks: Iterator[bytes]) -> Response:
    """Return a response with the JSON text that `chunks` make up.

    Raises `Unavailable` for a long response if the process already streams `MAX_STREAMED_RESPONSES`.
    """
    start = list(itertools.islice(chunks, STREAMING_THRESHOLD))
    if len(start) < STREAMING_THRESHOLD:
        return Response(b"".join(start), content_type="application/json")
    if not _streamed_responses.acquire(blocking=False):
        raise Unavailable(
            f"There are {MAX_STREAMED_RESPONSES} long answers on their way already: ask for less, or with a"
            " limit."
        )
    # An ExitStack releases only once, however often the response is closed.
    release_once = ExitStack()
    release_once.callback(_streamed_responses.release)
    text = itertools.chain(start, _until_disconnected(chunks))
    response = Response(text, content_type="application/json")
    response.call_on_close(release_once.close)
    return response


def _until_disconnected(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks; end without an error when the client has disconnected."""
    with suppress(ClientDisconnected):
        yield from chunks
