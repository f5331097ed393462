"""Upgrade and downgrade the schema of a database."""

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import OperationalError

from placement_svc.db import names
from placement_svc.db.connections.transactions import begin
from placement_svc.db.errors import (
    DEADLOCK,
    LOCK_NOT_AVAILABLE,
    QUERY_CANCELED,
    map_driver_errors,
    sqlstate,
)
from placement_svc.db.maintenance import lock_out_writers
from placement_svc.db.revisions import (
    HEAD,
    alembic_config,
    check_downgrade,
    check_upgrade,
    is_newer,
    newest,
    revision_of,
)
from placement_svc.domain.errors import Unavailable
from placement_svc.domain.wording import counted

SCHEMA_LOCK = 8777
"""The key of the advisory lock that a transaction holds while it changes the schema."""

LOCK_TIMEOUT = 5
"""Seconds that a migration waits for a lock on a table. Requests queue behind it; their timeout is longer."""

STATEMENT_TIMEOUT = 60
"""Seconds that a statement of a migration may take. Requests that need its tables may fail meanwhile."""


def upgrade(
    engine: Engine,
    revision: str = HEAD,
    lock_timeout: float = LOCK_TIMEOUT,
    statement_timeout: float = STATEMENT_TIMEOUT,
) -> None:
    """Upgrade a database to `revision` in one transaction.

    A second call at the same time waits for the first, and finds nothing left to do. An upgrade to the newest
    revision also adds the standard traits and resource classes, as services that already run need them. A
    schema that is newer than this code is left unchanged: after a rollback, the older release may run
    `db upgrade`.

    `lock_timeout` and `statement_timeout` are in seconds. Raise `Unavailable` if one of them expires, or if
    the schema cannot be upgraded to `revision` (`check_upgrade`); nothing has changed then. Raise
    `OutcomeUnknown` if the connection is lost during the commit.
    """
    with _exclusive_transaction(engine, lock_timeout, statement_timeout) as connection:
        before = revision_of(connection)
        if revision == HEAD and is_newer(before):
            return
        check_upgrade(before, revision)
        if before not in (None, newest()):
            lock_out_writers(connection)
        command.upgrade(_config(connection), revision)
        if revision_of(connection) == newest():
            names.sync_standard(connection)


def downgrade(engine: Engine, revision: str) -> None:
    """Downgrade a database to `revision` in one transaction, with the timeouts and errors of `upgrade`."""
    with _exclusive_transaction(engine, LOCK_TIMEOUT, STATEMENT_TIMEOUT) as connection:
        before = revision_of(connection)
        check_downgrade(before, revision)
        if before is not None:
            lock_out_writers(connection)
        command.downgrade(_config(connection), revision)


@contextmanager
def _exclusive_transaction(
    engine: Engine, lock_timeout: float, statement_timeout: float
) -> Iterator[Connection]:
    """Yield a connection in a transaction that holds the lock of the schema."""
    with map_driver_errors(), _map_timeouts(lock_timeout, statement_timeout), begin(engine) as connection:
        # Wait for another transaction that changes the schema without a limit: its own timeouts limit it.
        _set_timeouts(connection, lock_timeout=0, statement_timeout=0)
        connection.execute(select(func.pg_advisory_xact_lock(SCHEMA_LOCK)))
        _set_timeouts(connection, lock_timeout=lock_timeout, statement_timeout=statement_timeout)
        yield connection


def _set_timeouts(connection: Connection, **seconds: float) -> None:
    """Set timeouts in seconds for the rest of a transaction; 0 disables one."""
    for timeout, value in seconds.items():
        connection.execute(select(func.set_config(timeout, f"{round(value * 1000)}ms", True)))


@contextmanager
def _map_timeouts(lock_timeout: float, statement_timeout: float) -> Iterator[None]:
    """Turn an expired timeout of PostgreSQL into an `Unavailable` that says what to do."""
    try:
        yield
    except OperationalError as error:
        unchanged = "The schema is unchanged."
        if sqlstate(error) == DEADLOCK:
            raise Unavailable(
                f"The migration was in a deadlock with another session. {unchanged} Try again."
            ) from error
        if sqlstate(error) == LOCK_NOT_AVAILABLE:
            raise Unavailable(
                f"The migration did not get a lock on a table in {counted(lock_timeout, 'second')}, because"
                f" another session uses the table. {unchanged} Try again, or find the session in"
                " pg_stat_activity."
            ) from error
        if sqlstate(error) == QUERY_CANCELED:
            raise Unavailable(
                f"A statement of the migration took more than {counted(statement_timeout, 'second')}."
                f" {unchanged} Stop the services, and allow more time with --statement-timeout."
            ) from error
        raise


def _config(connection: Connection) -> Config:
    config = alembic_config()
    config.attributes["connection"] = connection
    return config
