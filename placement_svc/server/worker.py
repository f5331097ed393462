"""The gunicorn worker: no slow client holds it up, and no request is lost when it stops.

Gunicorn gives a thread to each request from its first byte to the last byte of its answer. Here a
worker has many threads for clients to be slow in, but few take their turn to work at a request, once
all of it is there. Who takes too long to send it is cut off.
"""

import errno
import os
import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from threading import BoundedSemaphore, Lock
from typing import Any, BinaryIO, Protocol, cast

from gunicorn.http.errors import InvalidHeader, InvalidHeaderName
from gunicorn.workers.gthread import ThreadWorker

from placement_svc.config import Settings
from placement_svc.domain.errors import Unavailable
from placement_svc.http import probes

SLOW_CLIENTS = 200
"""Threads of a worker beside those that work: so many clients may be slow at the same time."""

STAY_THREADS = 50
"""Threads of a worker that may wait for the next request of a client, so many are there for others."""

STAY = 50
"""Milliseconds that a thread waits for it: who claims again and again need not be looked for each time."""

LINGER = 2.0
"""Seconds that a client has to close a connection of which it was told that it ends."""

IN_MEMORY = 1024 * 1024
"""Bytes of a body that are kept in memory; a larger one is in a file until its turn comes."""

PIECE = 64 * 1024

SPARE = 16 * 1024 * 1024
"""Bytes that bodies leave free where they are kept: a worker that has no room to count there is killed."""


class Application(Protocol):
    """What a worker asks of the program that started it."""

    settings: Settings
    turns: int


class NoRoom(RawIOBase):
    """A body that could not be kept: who reads it is told so."""

    def readinto(self, _buffer: Any) -> int:
        """Raise `Unavailable`."""
        raise Unavailable("There is no room for a body of this size for the moment.")


class Worker(ThreadWorker):  # type: ignore[misc]
    """A worker with threads, after gunicorn's own."""

    app: Application
    wsgi: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = self.app.settings
        self.turns = BoundedSemaphore(self.app.turns)
        self.reading: dict[socket.socket, float] = {}
        self.keeping = Lock()
        self.staying = BoundedSemaphore(STAY_THREADS)
        self.stopping = False
        self.last_accept = 0.0

    def load_wsgi(self) -> None:
        """Load the application, and let its requests take turns."""
        super().load_wsgi()
        self.answer = self.wsgi
        self.wsgi = self._take_turn

    def _take_turn(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ[probes.STOPPING] = self.stopping
        if environ["PATH_INFO"] in probes.PATHS:
            return cast(Iterable[bytes], self.answer(environ, start_response))
        with self._read(environ) as environ["wsgi.input"]:
            self.reading.pop(environ["gunicorn.socket"], None)
            with self.turns:
                return cast(Iterable[bytes], self.answer(environ, start_response))

    @contextmanager
    def _read(self, environ: dict[str, Any]) -> Iterator[BinaryIO]:
        """Give the body, read whole; of one that is too large so much as shows that it is.

        It is gone when the context ends: a refusal's traceback may refer to it for long.
        """
        length = environ.get("CONTENT_LENGTH")
        source: BinaryIO = environ["wsgi.input"]
        if length is not None and int(length) > self.settings.max_body:
            yield source
            return
        wanted = self.settings.max_body + 1 if length is None else int(length)
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as body:
            while body.tell() < wanted and (piece := source.read(min(PIECE, wanted - body.tell()))):
                if not self._keep(body, piece):
                    body.close()
                    yield cast(BinaryIO, NoRoom())
                    return
            if length is not None and body.tell() < wanted:
                raise ConnectionResetError(errno.ECONNRESET, "The client left in the middle of its request.")
            body.seek(0)
            yield cast(BinaryIO, body)

    def _keep(self, body: tempfile.SpooledTemporaryFile[bytes], piece: bytes) -> bool:
        """Add a piece to a body; return whether there was room for it."""
        if body.tell() + len(piece) <= IN_MEMORY:
            body.write(piece)
            return True
        with self.keeping:
            place = os.statvfs(tempfile.gettempdir())
            if place.f_bavail * place.f_frsize < SPARE:
                return False
            body.write(piece)
        return True

    def handle(self, conn: Any) -> Any:
        """Handle the requests that come one after the other, in one of the threads.

        Return whether the connection goes on.
        """
        goes_on = self._handle_one(conn)
        while goes_on is True and self.alive and self._stays(conn):
            goes_on = self._handle_one(conn)
        if goes_on is False:
            # Gunicorn's main thread would do so, and accept nobody meanwhile.
            _linger(conn.sock)
        return goes_on

    def _handle_one(self, conn: Any) -> Any:
        self.reading[conn.sock] = time.monotonic() + self.settings.client_timeout
        try:
            return super().handle(conn)
        finally:
            self.reading.pop(conn.sock, None)

    def _stays(self, conn: Any) -> bool:
        """Wait a moment for the next request of a client; return whether it has come."""
        if conn.parser.unreader.buf.getvalue():
            # It has come with the one before.
            return True
        if not self.staying.acquire(blocking=False):
            return False
        try:
            poll = select.poll()
            poll.register(conn.sock, select.POLLIN)
            return bool(poll.poll(STAY))
        finally:
            self.staying.release()

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer a request; a client that does not take its answer has left."""
        conn.sock.settimeout(self.settings.client_timeout)
        try:
            return super().handle_request(req, conn)
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "The client does not take its answer.") from None

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """Refuse what is no HTTP, without telling what stood in a header: it may be a secret."""
        if isinstance(exc, InvalidHeader | InvalidHeaderName):
            exc.hdr = "(not shown)"
        super().handle_error(req, client, addr, exc)

    def notify(self) -> None:
        """Tell the master that this worker is alive, which it does every second, and look at the clock."""
        super().notify()
        now = time.monotonic()
        # Copied in one step: while it is gone through, threads change it.
        for sock, deadline in self.reading.copy().items():
            if deadline < now:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        if self.stopping and self.last_accept <= now:
            super().handle_exit(None, None)

    def handle_exit(self, sig: Any, frame: Any) -> None:
        """Begin to stop, on SIGTERM: at once, or when there was time to look for another server."""
        if not self.stopping:
            self.stopping = True
            self.last_accept = time.monotonic() + self.settings.drain
        if not self.settings.drain:
            super().handle_exit(sig, frame)

    def handle_quit(self, sig: Any, frame: Any) -> None:
        """Stop at once, on SIGQUIT.

        Gunicorn's worker with threads would shut these down here, and wait for itself for ever if the
        signal has come while it gives one of them work.
        """
        super(ThreadWorker, self).handle_quit(sig, frame)

    def set_accept_enabled(self, enabled: bool) -> None:
        """Accept new connections or not; a worker that stops accepts those that wait, and no more come.

        Else they would be cut when the last worker closes the socket, with requests already sent.
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


def _linger(sock: socket.socket) -> None:
    """Say that nothing more will come, and wait a little for the client to close.

    Closed at once, a connection with unread bytes would take the end of the answer with it.
    """
    deadline = time.monotonic() + LINGER
    with suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while (left := deadline - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv(PIECE):
                break
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RD)
