"""The state of a client's connection."""

import select
import socket

_PEER_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
"""Events of a connection that its client has closed, whether or not unread bytes precede the end.

Outside Linux, `POLLRDHUP` is missing: only a reset is noticed.
"""


def is_gone(sock: socket.socket) -> bool:
    """Return whether the client has closed the connection, or its sending side; do not wait."""
    poll = select.poll()
    try:
        poll.register(sock, _PEER_CLOSED)
    except ValueError:
        # This server has closed the connection.
        return True
    return bool(poll.poll(0))


def has_sent(sock: socket.socket) -> bool:
    """Return whether there is something to read, or the end of the connection; do not wait."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
