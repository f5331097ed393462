"""The state of a client's connection."""

import select
import socket
import time
from collections.abc import Callable

_PEER_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
"""Events of a connection that its client has closed, whether or not unread bytes precede the end.

Outside Linux, `POLLRDHUP` is missing: only a reset is noticed.
"""

GRACE_SECONDS = 0.5
"""Seconds from the start of a request for which its client does not count as gone.

A client such as ``nc -N`` closes its sending side behind the request, and still reads the response. Most
requests are completed by then.
"""


def gone_check(sock: socket.socket) -> Callable[[], bool]:
    """Return a function that returns whether `is_gone`, and False for the first `GRACE_SECONDS`."""
    end_of_grace = time.monotonic() + GRACE_SECONDS
    return lambda: time.monotonic() >= end_of_grace and is_gone(sock)


def is_gone(sock: socket.socket) -> bool:
    """Return whether the client has closed the connection, or its sending side; do not wait."""
    try:
        return _has_event(sock, _PEER_CLOSED)
    except ValueError:
        # This server has closed the connection.
        return True


def has_sent(sock: socket.socket) -> bool:
    """Return whether there is something to read, or the end of the connection; do not wait."""
    return _has_event(sock, select.POLLIN)


def _has_event(sock: socket.socket, events: int) -> bool:
    poll = select.poll()
    poll.register(sock, events)
    return bool(poll.poll(0))
