"""The sockets of database connections."""

import os
import select
import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from math import inf
from time import monotonic
from typing import Any

import psycopg2  # type: ignore[import-untyped]
from psycopg2.extensions import POLL_OK, POLL_READ  # type: ignore[import-untyped]

SIGNAL_INTERVAL = 0.25
"""Seconds after which `wait` lets signal handlers run: the kernel may have interrupted another thread."""


def shut_down(driver_connection: Any) -> None:
    """End a connection that another thread uses; that thread gets an error at once.

    PostgreSQL stops the statement when it notices, within `client_connection_check_interval`. psycopg2's
    `cancel` would be sooner, but it holds the interpreter lock until the server responds: with a frozen
    server, the whole process would stand still.
    """
    with suppress(OSError, psycopg2.Error), socket.socket(fileno=os.dup(driver_connection.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)


def fetch_value(arguments: Mapping[str, Any], statement: str, timeout: float) -> Any:
    """Return the single value of a statement on a new connection to a server that may freeze at any time.

    Raises `psycopg2.Error`, also if the value does not arrive within `timeout` seconds.
    """
    deadline = monotonic() + timeout
    with closing(psycopg2.connect(**arguments, async_=True)) as connection:
        wait(connection, deadline)
        cursor = connection.cursor()
        cursor.execute(statement)
        wait(connection, deadline)
        [value] = cursor.fetchone()
    return value


def wait(connection: Any, deadline: float = inf) -> None:
    """Wait until what a connection does without blocking is done; signal handlers of Python run meanwhile.

    Raises `psycopg2.OperationalError` when the monotonic clock reaches `deadline`.
    """
    while (state := connection.poll()) != POLL_OK:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN if state == POLL_READ else select.POLLOUT)
        while not poll.poll(1000 * min(SIGNAL_INTERVAL, max(0.0, deadline - monotonic()))):
            if monotonic() >= deadline:
                raise psycopg2.OperationalError("The server has not responded in time")
