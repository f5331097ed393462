"""The times until which clients may send what threads wait for."""

import socket
import time
from contextlib import suppress


class ReadDeadlines:
    """The clients for which threads wait, in the order in which they began to; each has `seconds` to send.

    All methods may be called from any thread.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadlines: dict[socket.socket, float] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def begin(self, sock: socket.socket) -> None:
        """Begin to wait for a client."""
        self._deadlines[sock] = time.monotonic() + self._seconds

    def end(self, sock: socket.socket) -> None:
        """Note that no thread waits for a client any more."""
        self._deadlines.pop(sock, None)

    def disconnect_oldest(self) -> None:
        """Disconnect the client for which a thread has waited longest."""
        # dict.copy is atomic: other threads change the dictionary.
        _disconnect(next(iter(self._deadlines.copy())))

    def disconnect_expired(self) -> None:
        """Disconnect the clients that have taken too long."""
        now = time.monotonic()
        # dict.copy is atomic: other threads change the dictionary during the loop.
        for sock, deadline in self._deadlines.copy().items():
            if deadline < now:
                _disconnect(sock)


def _disconnect(sock: socket.socket) -> None:
    """Let the thread that waits for a client read the end of the connection."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
