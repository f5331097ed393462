"""Interrupt the SQL statement of a command by a signal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg2.extensions import set_wait_callback  # type: ignore[import-untyped]
from sqlalchemy import Engine, event

from placement_svc.db.connections.sockets import wait


@contextmanager
def interruptible(engine: Engine) -> Iterator[None]:
    """Let signal handlers run during the statements of an engine that is created for the block.

    Otherwise they run only when the statement ends: the driver waits for the server in C. If a handler
    raises, the driver closes the connection, and PostgreSQL cancels the statement when it notices
    (`client_connection_check_interval`). Applies to all connections of the process.
    """

    # With a callback, the driver would ignore `connect_timeout`.
    def connecting(*_: Any) -> None:
        set_wait_callback(None)

    def connected(*_: Any) -> None:
        set_wait_callback(wait)

    event.listen(engine, "do_connect", connecting, insert=True)
    event.listen(engine, "connect", connected)
    try:
        yield
    finally:
        set_wait_callback(None)
