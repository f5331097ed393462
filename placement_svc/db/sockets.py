"""The sockets of database connections."""

import os
import socket
from contextlib import suppress
from typing import Any

import psycopg2  # type: ignore[import-untyped]


def shut_down(driver_connection: Any) -> None:
    """End a connection that another thread uses; that thread gets an error at once.

    PostgreSQL stops the statement when it notices, within `client_connection_check_interval`. psycopg2's
    `cancel` would be sooner, but it holds the interpreter lock until the server responds: with a frozen
    server, the whole process would stand still.
    """
    with suppress(OSError, psycopg2.Error), socket.socket(fileno=os.dup(driver_connection.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)
