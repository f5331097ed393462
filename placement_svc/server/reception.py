"""The connections on which a worker waits for a client; no thread waits with them.

Most requests arrive at once. A client that sends a part of a request, or nothing, costs a file descriptor
and the bytes that it has sent. Both are bounded: the connection that has waited longest is closed first. A
client that sends its requests normally has only just connected, so it is not the one.
"""

import resource
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from placement_svc.server.arrivals import CHUNK_SIZE, Arrival, Limits
from placement_svc.server.clients import has_sent

MAX_CONNECTIONS = 10_000
"""The most connections of a worker, if the limit of open files permits them."""

RESERVED_FILES = 512
"""File descriptors of a worker that are not for clients: the database, buffered bodies, and so on."""

MAX_RECEIVED_BYTES = 64 * 1024 * 1024
"""Bytes of requests that a worker keeps in memory until their responses have been sent."""

LINGER_SECONDS = 2.0
"""Seconds that a client has to close a connection after the worker has announced its end.

If a connection with unread bytes were closed at once, the client could lose the end of the response.
"""


def max_connections() -> int:
    """Return how many connections this process may have; raise its limit of open files if necessary."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + RESERVED_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(allowed - RESERVED_FILES, allowed // 2)


class Reception:
    """The connections on which a worker waits; only the main thread uses it.

    `on_request` is called with a connection and its next request. `on_end` is called with a
    connection that has ended.
    """

    def __init__(
        self,
        poller: selectors.BaseSelector,
        limits: Limits,
        client_timeout: float,
        *,
        on_request: Callable[[Any, Arrival], None],
        on_end: Callable[[Any], None],
    ) -> None:
        self._poller = poller
        self._limits = limits
        self._client_timeout = client_timeout
        self._on_request = on_request
        self._on_end = on_end
        self._arrivals: dict[Any, Arrival] = {}
        """The requests that are arriving, the oldest first."""
        self._closing: dict[Any, float] = {}
        """The connections that the client has to close, with the time until which it may do so."""
        self._in_process: dict[Any, int] = {}
        """The sizes of the requests that threads process."""
        self._received_bytes = 0

    def await_request(self, conn: Any, received: bytes = b"") -> None:
        """Wait for the next request of a connection, of which the bytes `received` are known already."""
        conn.sock.setblocking(False)
        arrival = Arrival(self._limits, time.monotonic() + self._client_timeout, bytearray(received))
        self._received_bytes += len(received)
        self._arrivals[conn] = arrival
        self._poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_readable, conn))
        if arrival.is_complete():
            self._pass_on(conn)
        else:
            # Most clients send a request as soon as they are connected.
            self._on_readable(conn, conn.sock)

    def _on_readable(self, conn: Any, sock: socket.socket) -> None:
        arrival = self._arrivals[conn]
        before = len(arrival.data)
        try:
            is_open = arrival.receive(sock)
        except BlockingIOError:
            return
        except OSError:
            is_open = False
        self._received_bytes += len(arrival.data) - before
        if not is_open:
            self._end(conn)
        elif arrival.is_complete():
            self._pass_on(conn)
        while self._received_bytes > MAX_RECEIVED_BYTES and self.close_oldest():
            pass

    def _pass_on(self, conn: Any) -> None:
        arrival = self._arrivals.pop(conn)
        self._poller.unregister(conn.sock)
        self._in_process[conn] = len(arrival.data)
        self._on_request(conn, arrival)

    def processed(self, conn: Any) -> None:
        """Forget the bytes of a request that a thread has processed."""
        self._received_bytes -= self._in_process.pop(conn)

    def close_gracefully(self, conn: Any) -> None:
        """Close the sending side of a connection, and wait up to `LINGER_SECONDS` for the client."""
        try:
            conn.sock.setblocking(False)
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._on_end(conn)
            return
        self._closing[conn] = time.monotonic() + LINGER_SECONDS
        self._poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_last_bytes, conn))

    def _on_last_bytes(self, conn: Any, sock: socket.socket) -> None:
        try:
            is_open = bool(sock.recv(CHUNK_SIZE))
        except BlockingIOError:
            return
        except OSError:
            is_open = False
        if not is_open:
            self._end(conn)

    def _end(self, conn: Any) -> None:
        """Close a connection on which the worker waits."""
        arrival = self._arrivals.pop(conn, None)
        if arrival is not None:
            self._received_bytes -= len(arrival.data)
        self._closing.pop(conn, None)
        self._poller.unregister(conn.sock)
        self._on_end(conn)

    def close_oldest(self) -> bool:
        """Close the connection that has waited longest; return False if none waits."""
        for waiting in (self._closing, self._arrivals):
            for conn in waiting:
                self._end(conn)
                return True
        return False

    def close_expired(self) -> None:
        """Close the connections whose time is over."""
        now = time.monotonic()
        expired = [conn for conn, arrival in self._arrivals.items() if arrival.deadline < now]
        expired += [conn for conn, deadline in self._closing.items() if deadline < now]
        for conn in expired:
            self._end(conn)

    def close_idle(self, idle: deque[Any], *, at_once: bool) -> None:
        """Close the connections whose keep-alive timeout is over; `idle` has them in the order of that time.

        A request that has just arrived, and that the poller has not reported yet, is not lost: its connection
        stays open, unless all are to be closed `at_once`.
        """
        now = time.monotonic()
        while idle and (at_once or idle[0].timeout <= now):
            conn = idle.popleft()
            if not at_once and has_sent(conn.sock):
                conn.set_timeout()
                idle.append(conn)
            else:
                self._poller.unregister(conn.sock)
                self._on_end(conn)

    def limit_silence(self, seconds: float) -> None:
        """Close connections without a byte of a request after `seconds`: the worker stops."""
        deadline = time.monotonic() + seconds
        for arrival in self._arrivals.values():
            if not arrival.data:
                arrival.deadline = min(arrival.deadline, deadline)
