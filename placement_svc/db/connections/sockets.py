"""The sockets of database connections."""

import os
import select
import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from time import monotonic
from typing import Any

import psycopg2  # type: ignore[import-untyped]
from psycopg2.extensions import POLL_OK, POLL_READ  # type: ignore[import-untyped]


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
        _wait(connection, deadline)
        cursor = connection.cursor()
        cursor.execute(statement)
        _wait(connection, deadline)
        [value] = cursor.fetchone()
    return value


def _wait(connection: Any, deadline: float) -> None:
    """Wait until what an asynchronous connection does is done."""
    while (state := connection.poll()) != POLL_OK:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN if state == POLL_READ else select.POLLOUT)
        if not poll.poll(max(0.0, deadline - monotonic()) * 1000):
            raise psycopg2.OperationalError("The server has not responded in time")
