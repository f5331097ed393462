"""The state of a client's connection."""

import select
import socket

_PEER_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
"""Events of a connection that its client has closed, whether or not unread bytes precede the end.

Outside Linux, `POLLRDHUP` is missing: only a reset is noticed.
"""


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
