"""The schema of a database: which revision it has, and the way up and down."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import OperationalError

from placement_svc.db import names
from placement_svc.db.errors import DEADLOCK, LOCK_NOT_AVAILABLE, QUERY_CANCELED, map_driver_errors, sqlstate
from placement_svc.domain.errors import Unavailable

SCHEMA_LOCK = 8777
"""The advisory lock of the schema: who changes it holds the lock, and all others wait."""

LOCK_TIMEOUT = 5
"""Seconds that a migration waits for a lock on a table. Requests wait behind it, and give up later."""

STATEMENT_TIMEOUT = 60
"""Seconds that a statement of a migration may take. Requests that need its tables may fail meanwhile."""

_PACKAGE = Path(__file__).parents[1]
_INI = next(
    (ini for ini in (_PACKAGE / "alembic.ini", _PACKAGE.parent / "alembic.ini") if ini.exists()),
    _PACKAGE / "alembic.ini",
)
"""Beside the code in an installed package, above it in a checkout."""


def _config(connection: Connection) -> Config:
    config = Config(_INI)
    config.attributes["connection"] = connection
    return config


@cache
def _history() -> ScriptDirectory:
    return ScriptDirectory.from_config(Config(_INI))


def newest() -> str | None:
    """Return the revision that this code works with."""
    return _history().get_current_head()


def revision_of(connection: Connection) -> str | None:
    """Return the revision of a database, None for an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def current(engine: Engine) -> str | None:
    """Return the revision of a database, None for an empty one."""
    with map_driver_errors(), engine.connect() as connection:
        return revision_of(connection)


def problem(revision: str | None) -> str | None:
    """Return why a schema of this revision will not do, None if it will.

    A revision that this code does not know is newer: the schema is upgraded before the services are,
    and works with those that are still running.
    """
    if not knows(revision) or revision == newest():
        return None
    return f"The schema is at revision {revision or 'base'} of {newest()}: run `placement-svc db upgrade`."


def knows(revision: str | None) -> bool:
    """Tell whether this code knows a revision. One that it does not know is newer."""
    return revision is None or revision in {script.revision for script in _history().walk_revisions()}


def upgrade(
    engine: Engine,
    revision: str = "head",
    lock_timeout: float = LOCK_TIMEOUT,
    statement_timeout: float = STATEMENT_TIMEOUT,
) -> None:
    """Bring a database up to `revision`, in one transaction; who comes second waits, and finds it done.

    With the newest one come the standard names: a service that is running already needs them there.
    A schema that is newer than this code stays: who rolls back a release runs its `db upgrade` again.

    `lock_timeout` and `statement_timeout` are in seconds. Raises `Unavailable` when one of them is
    over; then nothing has changed.
    """
    with _changing(engine, lock_timeout, statement_timeout) as connection:
        if revision == "head" and not knows(revision_of(connection)):
            return
        command.upgrade(_config(connection), revision)
        if revision_of(connection) == newest():
            names.sync_standard(connection)


def downgrade(engine: Engine, revision: str) -> None:
    """Take a database back to `revision`, as `upgrade` takes it up."""
    with _changing(engine, LOCK_TIMEOUT, STATEMENT_TIMEOUT) as connection:
        command.downgrade(_config(connection), revision)


@contextmanager
def _changing(engine: Engine, lock_timeout: float, statement_timeout: float) -> Iterator[Connection]:
    """Give a transaction that alone changes the schema."""
    with map_driver_errors(), _given_up(lock_timeout, statement_timeout), engine.begin() as connection:
        # However long somebody else takes who does so: the timeouts bound that.
        _limit(connection, lock_timeout=0, statement_timeout=0)
        connection.execute(select(func.pg_advisory_xact_lock(SCHEMA_LOCK)))
        _limit(connection, lock_timeout=lock_timeout, statement_timeout=statement_timeout)
        yield connection


def _limit(connection: Connection, **seconds: float) -> None:
    """Set timeouts for the rest of a transaction; 0 is none."""
    for timeout, value in seconds.items():
        connection.execute(select(func.set_config(timeout, f"{round(value * 1000)}ms", True)))


@contextmanager
def _given_up(lock_timeout: float, statement_timeout: float) -> Iterator[None]:
    """Turn PostgreSQL's refusal to wait any longer into an `Unavailable` that says what to do."""
    try:
        yield
    except OperationalError as error:
        nothing = "Nothing has changed: the schema is as it was."
        if sqlstate(error) in (LOCK_NOT_AVAILABLE, DEADLOCK):
            raise Unavailable(
                f"The migration did not get a lock on a table in {lock_timeout:g} seconds, as somebody else"
                f" uses it. {nothing} Try again, or look into pg_stat_activity for who it is."
            ) from error
        if sqlstate(error) == QUERY_CANCELED:
            raise Unavailable(
                f"A statement of the migration took more than {statement_timeout:g} seconds. {nothing} Stop"
                " the services, and give it longer with --statement-timeout."
            ) from error
        raise
