"""The HTTP connections to Keystone, with limits for the time of a token check and the size of a response.

keystoneauth limits each wait for data only. This module needs the extra `keystone`.
"""

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from math import inf
from socket import socket
from typing import Any

import requests
import urllib3
from keystoneauth1.session import TCPKeepAliveAdapter

MAX_BODY_BYTES = 4 * 1024 * 1024
"""The largest response of Keystone, decompressed; a token with a long service catalog has some 100 KiB."""

_end: ContextVar[float] = ContextVar("end", default=inf)
"""The time (monotonic clock) at which the responses to requests of the current thread must be complete."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Let requests of this thread to Keystone fail with a timeout after so many seconds in total."""
    previous = _end.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _end.reset(previous)


def new_session() -> requests.Session:
    """Return a session whose requests heed `time_limit` and `MAX_BODY_BYTES`."""
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _LimitedAdapter())
    return session


def _remaining() -> float:
    """Return the seconds until the time limit; raise `TimeoutError` after it."""
    seconds = _end.get() - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the token check takes too long")
    return seconds


class _LimitedAdapter(TCPKeepAliveAdapter):
    """Sends requests and reads complete responses within the limits."""

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = partial(_new_connection, type(pool).ConnectionCls)
        return pool

    def send(  # type: ignore[override]
        self, request: requests.PreparedRequest, *, timeout: float, **options: Any
    ) -> requests.Response:
        try:
            timeout = min(timeout, _remaining())
        except TimeoutError as error:
            raise requests.Timeout(error, request=request) from error
        response = super().send(request, timeout=timeout, **options | {"stream": True})
        try:
            body = response.raw.read(MAX_BODY_BYTES + 1, decode_content=True)
        except urllib3.exceptions.HTTPError as error:
            raise requests.ConnectionError(error, request=request) from error
        if len(body) > MAX_BODY_BYTES:
            response.close()
            raise requests.RequestException(f"the response exceeds {MAX_BODY_BYTES} bytes", request=request)
        response.raw = io.BytesIO(body)
        return response


def _new_connection(connection_class: Callable[..., HTTPConnection], **options: Any) -> HTTPConnection:
    connection = connection_class(**options)
    connection.response_class = _LimitedResponse
    return connection


class _LimitedResponse(HTTPResponse):
    """A response whose header and body must arrive within the time limit."""

    def __init__(self, sock: socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_LimitedReader(sock, self.fp.detach()))


class _LimitedReader(io.RawIOBase):
    """Reads from a socket; no wait for data exceeds the time limit."""

    def __init__(self, sock: socket, file: io.RawIOBase) -> None:
        self._socket = sock
        self._timeout = sock.gettimeout() or inf
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(min(self._timeout, _remaining()))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
