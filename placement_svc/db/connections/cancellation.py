"""Cancel the SQL statements of a request whose deadline has passed or whose client has disconnected."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Condition, Lock, Thread
from time import sleep
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import PoolProxiedConnection

from placement_svc.db.connections.sockets import shut_down
from placement_svc.domain.execution.deadline import Deadline

INTERVAL = 0.1
"""Seconds between two checks of the running reads."""

IS_CANCELED = "placement_svc.is_canceled"
"""The key in the `info` of a connection that this module has shut down."""

_deadline: ContextVar[Deadline | None] = ContextVar("_deadline", default=None)


def set_deadline(deadline: Deadline | None) -> None:
    """Set the deadline of all later reads in this thread; None: they have none."""
    _deadline.set(deadline)


@dataclass(eq=False)
class _RunningRead:
    """A transaction that is to be canceled when its deadline has passed."""

    deadline: Deadline
    connection: PoolProxiedConnection
    driver_connection: Any
    """The connection of psycopg2; `connection` has none any more once SQLAlchemy has found it lost."""

    lock: Lock = field(default_factory=Lock)
    """Held to shut down the connection, so that this does not happen after the end of the transaction."""
    has_ended: bool = False
    is_canceled: bool = False

    def cancel_if_over(self) -> None:
        """Shut down the connection if the deadline has passed or the client has disconnected."""
        with self.lock:
            if not self.has_ended and not self.is_canceled and self.deadline.is_over():
                self.is_canceled = True
                self.connection.info[IS_CANCELED] = True
                shut_down(self.driver_connection)

    def end(self) -> None:
        """Leave the connection alone from now on."""
        with self.lock:
            self.has_ended = True


class _Watchdog:
    """One thread per process that cancels reads; it starts with the first read."""

    def __init__(self) -> None:
        self._reads: set[_RunningRead] = set()
        self._changed = Condition()
        self._thread: Thread | None = None

    def add(self, read: _RunningRead) -> None:
        with self._changed:
            self._reads.add(read)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="statement-watchdog", daemon=True)
                self._thread.start()
            if len(self._reads) == 1:
                self._changed.notify()

    def remove(self, read: _RunningRead) -> None:
        with self._changed:
            self._reads.discard(read)
        read.end()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._reads)
                reads = list(self._reads)
            for read in reads:
                read.cancel_if_over()
            sleep(INTERVAL)


_watchdog = _Watchdog()


def _forget_threads() -> None:
    """Start anew in a forked process, which has none of its parent's threads."""
    global _watchdog
    _watchdog = _Watchdog()


os.register_at_fork(after_in_child=_forget_threads)


@contextmanager
def canceled_at_deadline(connection: Connection) -> Iterator[None]:
    """Cancel the statements of the block when the deadline of the current request passes.

    Raises `Unavailable` if it has passed, and `ClientDisconnected` if the client has disconnected.
    """
    deadline = _deadline.get()
    if deadline is None:
        yield
        return
    deadline.check()
    watchdog = _watchdog
    pooled = connection.connection
    read = _RunningRead(deadline, pooled, pooled.driver_connection)
    watchdog.add(read)
    try:
        yield
    except OperationalError:
        watchdog.remove(read)
        if read.is_canceled:
            deadline.raise_if_over()
        raise
    finally:
        watchdog.remove(read)
        if read.is_canceled:
            connection.invalidate()
