"""The gunicorn worker: slow clients do not block it, and it loses no request when it stops.

Gunicorn's threaded worker occupies a thread for each request from its first byte to the last byte of the
response. This worker has many threads that may wait for slow clients, but only a few that run the application
at the same time, each of them only after the whole request has been read. A client that takes too long to
send a request is disconnected.
"""

import errno
import os
import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import RawIOBase
from threading import BoundedSemaphore, Lock
from typing import Any, BinaryIO, Protocol, cast

from gunicorn.http.errors import (
    InvalidHeader,
    InvalidResponseHeader,
    InvalidResponseHeaderName,
    ParseException,
    UnsupportedTransferCoding,
)
from gunicorn.workers.gthread import ThreadWorker

from placement_svc.config import Settings
from placement_svc.domain.errors import Unavailable
from placement_svc.http import environ as keys
from placement_svc.http import probes
from placement_svc.http.log_text import shortened
from placement_svc.server.clients import is_gone

BUFFER_THREADS = 200
"""Threads of a worker besides those that run the application: as many clients can be slow at a time."""

KEEPALIVE_THREADS = 50
"""Threads of a worker that may wait for a client's next request; the others remain for new requests."""

KEEPALIVE_POLL_MS = 50
"""Milliseconds that a thread waits for the next request of a client.

A client that sends one claim after another is then served by the same thread, without a round through the
worker's main loop for each request.
"""

LINGER_SECONDS = 2.0
"""Seconds that a client has to close a connection after the worker has announced its end."""

MAX_BODY_IN_MEMORY = 1024 * 1024
"""Bytes of a request body that are buffered in memory; a larger body is buffered in a file."""

CHUNK_SIZE = 64 * 1024

MIN_FREE_BYTES = 16 * 1024 * 1024
"""Bytes that buffered bodies leave free in the temporary directory.

The metrics are kept there too, in files mapped into memory: a worker that cannot write them is killed.
"""


class Application(Protocol):
    """The attributes that a worker reads from the program that started it.

    `concurrency` is the number of requests that a worker processes at the same time.
    """

    settings: Settings
    concurrency: int


class InsufficientStorage(RawIOBase):
    """A request body that could not be buffered: reading it raises `Unavailable`."""

    def readinto(self, _buffer: Any) -> int:
        """Raise `Unavailable`."""
        raise Unavailable("There is no room for a body of this size for the moment.")


class Worker(ThreadWorker):  # type: ignore[misc]
    """Gunicorn's threaded worker, with buffered requests and a stop that loses none."""

    app: Application
    wsgi: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = self.app.settings
        self.request_slots = BoundedSemaphore(self.app.concurrency)
        self.read_deadlines: dict[socket.socket, float] = {}
        self.buffer_lock = Lock()
        self.keepalive_slots = BoundedSemaphore(KEEPALIVE_THREADS)
        self.stopping = False
        self.accept_until = 0.0

    def load_wsgi(self) -> None:
        """Load the application, and wrap it so that it gets buffered requests."""
        super().load_wsgi()
        self.application = self.wsgi
        self.wsgi = self._run_buffered

    def _run_buffered(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ[probes.STOPPING] = self.stopping
        environ[keys.IS_CLIENT_GONE] = partial(is_gone, environ["gunicorn.socket"])
        if environ["PATH_INFO"] in probes.PATHS:
            return cast(Iterable[bytes], self.application(environ, start_response))
        with self._buffered_body(environ) as environ["wsgi.input"]:
            self.read_deadlines.pop(environ["gunicorn.socket"], None)
            with self.request_slots:
                return cast(Iterable[bytes], self.application(environ, start_response))

    @contextmanager
    def _buffered_body(self, environ: dict[str, Any]) -> Iterator[BinaryIO]:
        """Yield the complete body, or only as much of it as shows that it exceeds `max_body`.

        The buffer is closed when the context ends, because the traceback of an error may refer to it for
        long.
        """
        length = environ.get("CONTENT_LENGTH")
        source: BinaryIO = environ["wsgi.input"]
        if length is not None and int(length) > self.settings.max_body:
            yield source
            return
        expected = self.settings.max_body + 1 if length is None else int(length)
        with tempfile.SpooledTemporaryFile(max_size=MAX_BODY_IN_MEMORY) as body:
            while body.tell() < expected and (chunk := source.read(min(CHUNK_SIZE, expected - body.tell()))):
                if not self._append(body, chunk):
                    body.close()
                    yield cast(BinaryIO, InsufficientStorage())
                    return
            if length is not None and body.tell() < expected:
                raise ConnectionResetError(errno.ECONNRESET, "The client disconnected within a request.")
            body.seek(0)
            yield cast(BinaryIO, body)

    def _append(self, body: tempfile.SpooledTemporaryFile[bytes], chunk: bytes) -> bool:
        """Append a chunk to a buffered body; return False if the temporary directory is too full for it."""
        if body.tell() + len(chunk) <= MAX_BODY_IN_MEMORY:
            body.write(chunk)
            return True
        with self.buffer_lock:
            file_system = os.statvfs(tempfile.gettempdir())
            if file_system.f_bavail * file_system.f_frsize < MIN_FREE_BYTES:
                return False
            body.write(chunk)
        return True

    def handle(self, conn: Any) -> Any:
        """Handle the consecutive requests of a connection, in one of the threads.

        Return whether the connection stays open, as gunicorn's method does.
        """
        keep_alive = self._handle_one(conn)
        while keep_alive is True and self.alive and self._next_request_arrives(conn):
            keep_alive = self._handle_one(conn)
        if keep_alive is False:
            # Gunicorn would do this in its main thread, which could not accept connections meanwhile.
            _linger(conn.sock)
        return keep_alive

    def _handle_one(self, conn: Any) -> Any:
        self.read_deadlines[conn.sock] = time.monotonic() + self.settings.client_timeout
        try:
            return super().handle(conn)
        finally:
            self.read_deadlines.pop(conn.sock, None)

    def _next_request_arrives(self, conn: Any) -> bool:
        """Return whether the next request of a client arrives within `KEEPALIVE_POLL_MS`."""
        if conn.parser.unreader.buf.getvalue():
            # The client sent it together with the previous request.
            return True
        if not self.keepalive_slots.acquire(blocking=False):
            return False
        try:
            poll = select.poll()
            poll.register(conn.sock, select.POLLIN)
            return bool(poll.poll(KEEPALIVE_POLL_MS))
        finally:
            self.keepalive_slots.release()

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Process a request; treat a client that does not read the response as disconnected.

        Raises `InvalidHeader` for a transfer coding other than chunked. Gunicorn accepts "gzip, chunked" but
        does not decompress the body.
        """
        codings = [value for name, value in req.headers if name == "TRANSFER-ENCODING"]
        if codings and [coding.lower() for coding in codings] != ["chunked"]:
            raise InvalidHeader("TRANSFER-ENCODING")
        conn.sock.settimeout(self.settings.client_timeout)
        try:
            return super().handle_request(req, conn)
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "The client does not read the response.") from None

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """Reject an invalid request, without its contents, which may be a secret."""
        if isinstance(exc, UnsupportedTransferCoding):
            # Gunicorn's status for it is 501.
            exc = InvalidHeader("TRANSFER-ENCODING")
        if hasattr(req, "uri"):
            req.uri = shortened(req.uri)
        super().handle_error(req, client, addr, _without_contents(exc))

    def notify(self) -> None:
        """Report to the master, once a second, that this worker is alive; then enforce the deadlines."""
        super().notify()
        now = time.monotonic()
        # dict.copy is atomic: other threads change the dictionary during the loop.
        for sock, deadline in self.read_deadlines.copy().items():
            if deadline < now:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        if self.stopping and self.accept_until <= now:
            super().handle_exit(None, None)

    def handle_exit(self, sig: Any, frame: Any) -> None:
        """Begin to stop on SIGTERM: at once, or after `drain` seconds, so that clients can switch servers."""
        if not self.stopping:
            self.stopping = True
            self.accept_until = time.monotonic() + self.settings.drain
        if not self.settings.drain:
            super().handle_exit(sig, frame)

    def handle_quit(self, sig: Any, frame: Any) -> None:
        """Stop at once on SIGQUIT.

        Gunicorn's threaded worker would shut down its thread pool here. That deadlocks if the signal arrives
        while the worker submits work to the pool.
        """
        super(ThreadWorker, self).handle_quit(sig, frame)

    def set_accept_enabled(self, enabled: bool) -> None:
        """Enable or disable accepting connections; a worker that stops first accepts all that are queued.

        Otherwise they would be reset, with requests already sent, when the last worker closes the socket.
        """
        super().set_accept_enabled(enabled)
        if enabled or self.alive:
            return
        for listener in self.sockets:
            accepted = -1
            while accepted < self.nr_conns:
                accepted = self.nr_conns
                self.accept(listener)
            listener.close()


def _without_contents(exc: Exception) -> Exception:
    """Remove the bytes of the client that a parse error of gunicorn quotes in its message."""
    # A response header comes from the application, and the error contains only its name.
    is_response = isinstance(exc, InvalidResponseHeader | InvalidResponseHeaderName)
    if isinstance(exc, ParseException) and not is_response:
        exc.args = ()
        for name, value in vars(exc).items():
            if isinstance(value, str | bytes | bytearray | tuple):
                setattr(exc, name, "(not shown)")
    return exc


def _linger(sock: socket.socket) -> None:
    """Close the sending side, and wait up to `LINGER_SECONDS` for the client to close the connection.

    If a connection with unread bytes were closed at once, the client could lose the end of the response.
    """
    deadline = time.monotonic() + LINGER_SECONDS
    with suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while (left := deadline - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv(CHUNK_SIZE):
                break
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RD)
