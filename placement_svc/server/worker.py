"""The gunicorn worker: slow clients do not block it, and it loses no request when it stops.

Gunicorn's threaded worker occupies a thread for each request from its first byte to the last byte of the
response. In this worker, the main thread collects requests (`reception`); a thread gets one that has arrived.
Only a few threads run the application at the same time, and short requests come first (`slots`). Threads may
also wait for large bodies (`bodies`), and for clients to accept a response. A client that takes too long to
send a request is disconnected.
"""

import errno
import mmap
import re
import signal
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from threading import BoundedSemaphore
from typing import Any, BinaryIO, Protocol, cast

from gunicorn.http.errors import InvalidHeader, UnsupportedTransferCoding
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, TConn, ThreadWorker

from placement_svc.config import Settings
from placement_svc.http import environ as keys
from placement_svc.http import probes
from placement_svc.http.log_text import for_log
from placement_svc.server.arrivals import Arrival, ChunkedBody, Limits
from placement_svc.server.bodies import CONTINUE, BodyOnDemand, ReadFailed, limit_chunks, read_body
from placement_svc.server.clients import gone_check
from placement_svc.server.listener import ignore_new_clients
from placement_svc.server.parse_errors import without_contents
from placement_svc.server.read_deadlines import ReadDeadlines
from placement_svc.server.reception import Reception, max_connections
from placement_svc.server.slots import READ_SLOTS, STANDBY_SLOTS, Slot, Slots

BUFFER_THREADS = 250
"""Threads of a worker that receive requests and send responses, besides those that run the application."""

MAX_BODY_READERS = 100
"""Threads of a worker that may wait for large bodies; for one more, the oldest connection is closed."""

PROBE_THREADS = 2
"""Threads of a worker that handle only probes, which therefore never wait for other requests."""

OTHER_THREADS = 5
"""Threads of a worker for its own work, approximately: its main thread, metrics, standbys, cancellation."""

KEEPALIVE_THREADS = 50
"""Threads of a worker that may wait for a client's next request; the others remain for new requests."""

KEEPALIVE_POLL = 0.05
"""Seconds that a thread waits for the next request of a client.

A client that sends one claim after another is then served by the same thread, without a round through the
worker's main loop for each request.
"""

HANDSHAKE_SECONDS = 0.1
"""Seconds that a stopping worker waits for connections that clients have begun to establish."""

CHECK_INTERVAL = 0.5
"""Seconds between two checks of all deadlines."""

STOP_SIGNALS = {signal.SIGTERM, signal.SIGQUIT}
"""The signals by which the master stops a worker."""

_PROBE = re.compile(rf"(?:GET|HEAD) (?:{probes.ALIVE}|{probes.READY})[ ?]".encode())


def max_threads(concurrency: int) -> int:
    """Return the most threads of a worker with this concurrency, for the test of the containers' limits."""
    return concurrency + BUFFER_THREADS + MAX_BODY_READERS + 1 + PROBE_THREADS + OTHER_THREADS


def _asks_to_close(req: Any) -> bool:
    """Return whether a client asks to close the connection, be it by one option of several."""
    values = (value for name, value in req.headers if name == "CONNECTION")
    return any(option.strip().lower() == "close" for value in values for option in value.split(","))


class Application(Protocol):
    """The attributes that a worker reads from the program that started it.

    `concurrency` is the number of requests that a worker processes at the same time. All processes share the
    byte of `stopping`: it is not 0 when the whole service stops.
    """

    settings: Settings
    concurrency: int
    stopping: mmap.mmap


class Worker(ThreadWorker):  # type: ignore[misc]
    """Gunicorn's threaded worker, with buffered requests and a stop that loses none."""

    app: Application
    wsgi: Any
    reception: Reception

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = self.app.settings
        self.limits = Limits.of(self.cfg, self.settings.max_body)
        # If the pool is large enough, each short slot finds a free database connection, and so does a request
        # with a large body, which counts as long only when its first long slot has ended.
        standby_slots = STANDBY_SLOTS if self.settings.read_url else 0
        max_long = max(1, self.settings.pool_size - self.app.concurrency - READ_SLOTS - standby_slots - 1)
        self.slots = Slots(self.app.concurrency, max_long, reads=READ_SLOTS, standby_reads=standby_slots)
        self.slot_by_socket: dict[socket.socket, Slot] = {}
        self.read_deadlines = ReadDeadlines(self.settings.client_timeout)
        self.keepalive_threads = BoundedSemaphore(KEEPALIVE_THREADS)
        self.probe_pool = ThreadPoolExecutor(PROBE_THREADS)
        # One more than may wait for a body, so that the next one can end the oldest.
        self.body_pool = ThreadPoolExecutor(MAX_BODY_READERS + 1)
        self.next_check = 0.0
        self.stopping = False
        self.accept_until = 0.0

    def init_signals(self) -> None:
        """Handle signals, beginning with those that the master has sent since the start of this worker."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def load_wsgi(self) -> None:
        """Load the application, and wrap it so that it gets buffered requests."""
        super().load_wsgi()
        self.application = self.wsgi
        self.wsgi = self._run_application

    def run(self) -> None:
        """Run until the master stops the worker, then until the requests in flight are processed."""
        self.worker_connections = max_connections()
        self.max_keepalived = self.worker_connections // 2
        self.reception = Reception(
            self.poller,
            self.limits,
            self.settings.client_timeout,
            on_request=self._on_request,
            on_end=self._on_end,
        )
        super().run()
        if recorder := self.application.extensions.get("empty_answers"):
            recorder.stop()

    # The following methods run in the main thread, as callbacks of the poller.

    def accept(self, listener: socket.socket) -> bool:
        """Accept a connection, and wait for its first request; return False if there is none."""
        try:
            sock, address = listener.accept()
        except TimeoutError:
            return False
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return self.reception.close_oldest()
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED):
                raise
            return False
        # Gunicorn sets it on the listening socket, but a client may connect before gunicorn has started.
        # Without it, each response of two packets takes 40 ms more: the second one waits until the client
        # acknowledges the first.
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.nr_conns += 1
        if self.nr_conns >= self.worker_connections:
            self.reception.close_oldest()
        self.reception.await_request(TConn(self.cfg, sock, address, listener.getsockname()))
        return True

    def on_client_socket_readable(self, conn: Any, client: socket.socket) -> None:
        """Wait for the whole next request of a connection on which a client has begun to send it."""
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        self.reception.await_request(conn)

    def _on_request(self, conn: Any, request: Arrival) -> None:
        """Let a thread process a request that has arrived."""
        conn.init()
        conn.parser.unreader.unread(bytes(request.data))
        pool: Executor = self.tpool
        handle = self.handle
        if request.is_body_on_demand:
            pool = self.body_pool
        elif _PROBE.match(request.data):
            pool, handle = self.probe_pool, self._handle_one
        future = pool.submit(handle, conn)
        future.add_done_callback(lambda done: self.method_queue.defer(self.finish_request, conn, done))

    def finish_request(self, conn: Any, fs: Any) -> None:
        """Wait for the next request of a connection, or for its end."""
        self.reception.processed(conn)
        if fs.cancelled() or fs.exception() or not fs.result():
            self.reception.close_gracefully(conn)
        elif received := conn.parser.unreader.take_buffered():
            self.reception.await_request(conn, received)
        else:
            super().finish_request(conn, fs)

    def _on_end(self, conn: Any) -> None:
        self.nr_conns -= 1
        conn.close()

    # The following methods run in the threads.

    def handle(self, conn: Any) -> Any:
        """Handle a request, and those that follow it immediately on the same connection.

        Return whether the connection stays open, as gunicorn's method does.
        """
        keep_alive = self._handle_one(conn)
        while keep_alive is True and self.alive and self._next_request_arrives(conn):
            keep_alive = self._handle_one(conn)
        return keep_alive

    def _handle_one(self, conn: Any) -> Any:
        self.read_deadlines.begin(conn.sock)
        try:
            return super().handle(conn)
        finally:
            self.read_deadlines.end(conn.sock)

    def _next_request_arrives(self, conn: Any) -> bool:
        """Return whether the whole next request of a client arrives within `KEEPALIVE_POLL` seconds."""
        unreader = conn.parser.unreader
        end = time.monotonic() + KEEPALIVE_POLL
        arrival = Arrival(self.limits, end, bytearray(unreader.take_buffered()))
        try:
            if arrival.is_complete():
                return True
            if not self.keepalive_threads.acquire(blocking=False):
                return False
            try:
                return arrival.receive_all(conn.sock)
            finally:
                self.keepalive_threads.release()
        finally:
            unreader.unread(bytes(arrival.data))

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Process a request; treat a client that does not read the response as disconnected.

        Raises `InvalidHeader` for a transfer coding other than chunked. Gunicorn accepts "gzip, chunked" but
        does not decompress the body.
        """
        # There is no other protocol to change to, and Werkzeug has no routes for websockets.
        req.headers = [header for header in req.headers if header[0] != "UPGRADE"]
        req.must_close = _asks_to_close(req)
        codings = [value for name, value in req.headers if name == "TRANSFER-ENCODING"]
        if codings and [coding.lower() for coding in codings] != ["chunked"]:
            raise InvalidHeader("TRANSFER-ENCODING")
        conn.sock.settimeout(self.settings.client_timeout)
        self.slot_by_socket[conn.sock] = self.slots.of_request(req.method, req.uri)
        source = req.body
        if codings:
            limit_chunks(source)
        try:
            with self._body(req, conn, is_chunked=bool(codings)) as req.body:
                return super().handle_request(req, conn)
        except (TimeoutError, ReadFailed) as failed:
            error = failed.error if isinstance(failed, ReadFailed) else failed
            if isinstance(error, TimeoutError):
                error = ConnectionResetError(errno.ECONNRESET, "The client takes too long.")
            raise error from None
        finally:
            del self.slot_by_socket[conn.sock]
            req.body = source

    def _body(self, req: Any, conn: Any, *, is_chunked: bool) -> BinaryIO:
        """Return the body of a request: in memory if it is small, else one that is read on demand.

        The connection ends after the response unless the body is read completely.
        """
        length = next((int(value) for name, value in req.headers if name == "CONTENT-LENGTH"), 0)
        is_expected = req._expected_100_continue
        # Gunicorn would ask for the body before the caller is authenticated.
        req._expected_100_continue = False
        has_arrived = length <= self.limits.body
        if is_chunked:
            received = conn.parser.unreader.buf.getvalue()
            has_arrived = ChunkedBody(0).is_complete(received) is True
        if has_arrived and not is_expected:
            body, _ = read_body(req.body, None if is_chunked else length, self.settings.max_body)
            return body
        req.must_close = True
        source = req.body
        slot = self.slot_by_socket[conn.sock]

        def read() -> BinaryIO:
            # The application runs no other code while it waits for the body.
            slot.pause()
            try:
                self._start_reading(conn.sock)
                if is_expected:
                    conn.sock.sendall(CONTINUE)
                body, is_whole = read_body(source, None if is_chunked else length, self.settings.max_body)
            finally:
                self.read_deadlines.end(conn.sock)
                slot.resume(is_long=is_chunked or length > self.limits.body)
            req.must_close = not is_whole or _asks_to_close(req)
            return body

        return cast(BinaryIO, BodyOnDemand(read))

    def _start_reading(self, sock: socket.socket) -> None:
        """Set the deadline for a body; disconnect the oldest client if too many send a large body."""
        self.read_deadlines.begin(sock)
        if len(self.read_deadlines) > MAX_BODY_READERS:
            self.read_deadlines.disconnect_oldest()

    def _run_application(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        environ[probes.STOPPING] = self.stopping
        environ[keys.IS_CLIENT_GONE] = gone_check(environ["gunicorn.socket"])
        self.read_deadlines.end(environ["gunicorn.socket"])
        if environ["PATH_INFO"] in probes.PATHS:
            return cast(Iterable[bytes], self.application(environ, start_response))
        slot = self.slot_by_socket[environ["gunicorn.socket"]]
        environ[keys.SLOT] = slot
        with slot:
            response: Iterable[bytes] = self.application(environ, start_response)
        return slot.pieces(response)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """Reject an invalid request, without its contents, which may be a secret."""
        if isinstance(exc, UnsupportedTransferCoding):
            # Gunicorn's status for it is 501.
            exc = InvalidHeader("TRANSFER-ENCODING")
        if hasattr(req, "uri"):
            req.uri = for_log(req.uri)
        super().handle_error(req, client, addr, without_contents(exc))

    def notify(self) -> None:
        """Report to the master that this worker is alive, and enforce the deadlines."""
        now = time.monotonic()
        if now < self.next_check:
            return
        self.next_check = now + CHECK_INTERVAL
        super().notify()
        self.read_deadlines.disconnect_expired()
        if self.stopping and self.accept_until <= now:
            super().handle_exit(None, None)

    def murder_keepalived(self, force: bool = False) -> None:
        """Close the connections that are idle for too long, or all that are idle."""
        self.reception.close_idle(self.keepalived_conns, at_once=force)

    def murder_pending(self) -> None:
        """Close the connections whose clients have taken too long."""
        self.reception.close_expired()

    def is_parent_alive(self) -> bool:
        """Return whether the master still runs; otherwise stop, and close each connection after its response.

        Gunicorn would only leave its loop, and the threads would go on with clients that send all the time.
        """
        if super().is_parent_alive():
            return True
        self.alive = False
        return False

    def handle_exit(self, sig: Any, frame: Any) -> None:
        """Begin to stop on SIGTERM: at once, or after `drain` seconds, so that clients can switch servers.

        After a reload, other workers of this service have replaced this one, and clients need not switch.
        """
        if self.app.stopping[0] and not self.stopping:
            self.stopping = True
            self.accept_until = time.monotonic() + self.settings.drain
        if not (self.stopping and self.settings.drain):
            super().handle_exit(sig, frame)

    def handle_quit(self, sig: Any, frame: Any) -> None:
        """Stop at once on SIGQUIT.

        Gunicorn's threaded worker would shut down its thread pool here. That deadlocks if the signal arrives
        while the worker submits work to the pool.
        """
        super(ThreadWorker, self).handle_quit(sig, frame)

    def set_accept_enabled(self, enabled: bool) -> None:
        """Enable or disable accepting connections; when the service stops, first accept all that are queued.

        Otherwise they would be reset, with requests already sent, when the last worker closes the socket.
        """
        super().set_accept_enabled(enabled)
        if enabled or self.alive:
            return
        for listener in self.sockets:
            if self.app.stopping[0]:
                ignore_new_clients(listener)
                listener.settimeout(HANDSHAKE_SECONDS)
                while self.accept(listener):
                    pass
            listener.close()
        self.reception.limit_silence(STOP_KEEPALIVE_LINGER)
