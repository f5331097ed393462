"""The schema of a database: read its revision, upgrade it and downgrade it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import OperationalError, ProgrammingError

from placement_svc.db import names
from placement_svc.db.connections.transactions import begin
from placement_svc.db.errors import (
    DEADLOCK,
    LOCK_NOT_AVAILABLE,
    QUERY_CANCELED,
    UNDEFINED,
    map_driver_errors,
    sqlstate,
)
from placement_svc.db.maintenance import lock_out_writers
from placement_svc.domain.errors import Unavailable
from placement_svc.domain.wording import counted

SCHEMA_LOCK = 8777
"""The key of the advisory lock that a transaction holds while it changes the schema."""

LOCK_TIMEOUT = 5
"""Seconds that a migration waits for a lock on a table. Requests queue behind it; their timeout is longer."""

STATEMENT_TIMEOUT = 60
"""Seconds that a statement of a migration may take. Requests that need its tables may fail meanwhile."""

BEFORE_BASELINE = frozenset(f"000{number}" for number in range(1, 7))
"""Revisions that existed before the baseline and have no migration any more; 0007 is now the baseline's."""

LAST_BEFORE_BASELINE = "c8c4448"
"""The last commit that has those migrations."""

BASE = "base"
"""The name of the revision of an empty database."""

HEAD = "head"
"""The name of the newest revision."""

_PACKAGE = Path(__file__).parents[1]
_INI = next(
    (ini for ini in (_PACKAGE / "alembic.ini", _PACKAGE.parent / "alembic.ini") if ini.exists()),
    _PACKAGE / "alembic.ini",
)
"""The configuration of Alembic: in the package if it is installed, above it in a checkout."""


def _config(connection: Connection) -> Config:
    config = Config(_INI)
    config.attributes["connection"] = connection
    return config


@cache
def _history() -> ScriptDirectory:
    return ScriptDirectory.from_config(Config(_INI))


def newest() -> str | None:
    """Return the newest revision of this code, which it is written for."""
    return _history().get_current_head()


def revision_of(connection: Connection) -> str | None:
    """Return the revision of a database, None for an empty one; raise `Unavailable` if it has several."""
    heads = MigrationContext.configure(connection).get_current_heads()
    if len(heads) > 1:
        raise Unavailable(
            f"The table alembic_version has the revisions {', '.join(sorted(heads))}, and must have one:"
            " restore a backup, or delete the others if you know that the schema does not have them."
        )
    return heads[0] if heads else None


def current(engine: Engine) -> str | None:
    """Return the revision of a database, None for an empty one; raise `Unavailable` if it has several."""
    with map_driver_errors(), engine.connect() as connection:
        return revision_of(connection)


def mismatch(revision: str | None) -> str | None:
    """Return why this code cannot use a schema at this revision, None if it can.

    It can use a newer schema: the schema is upgraded before the services, and a migration keeps the release
    before it working.
    """
    if revision in BEFORE_BASELINE:
        return (
            f"The schema is at revision {revision}, and this version can upgrade it only from 0007 on: run"
            f" `placement-svc db upgrade` of commit {LAST_BEFORE_BASELINE} first, then that of this version."
        )
    if revision == newest() or is_newer(revision):
        return None
    return f"The schema is at revision {revision or BASE} of {newest()}: run `placement-svc db upgrade`."


@contextmanager
def map_outdated_schema(engine: Engine) -> Iterator[None]:
    """Raise `Unavailable` if the block names a table, column or function that an outdated schema lacks.

    If the schema is up to date, or the database has none, the error of the driver passes.
    """
    try:
        yield
    except ProgrammingError as error:
        if sqlstate(error) in UNDEFINED:
            revision = current(engine)
            problem = mismatch(revision)
            if revision is not None and problem is not None:
                raise Unavailable(problem) from error
        raise


def is_newer(revision: str | None) -> bool:
    """Return whether a revision is newer than this code, which is to say unknown to it."""
    known = {script.revision for script in _history().walk_revisions()}
    return revision is not None and revision not in known | BEFORE_BASELINE


def check_downgrade(current: str | None, revision: str) -> None:
    """Raise `Unavailable` unless a schema at the revision `current` can be downgraded to `revision`."""
    known = _known(current, "downgrade")
    older = known[: known.index(current or BASE) + 1]
    if revision not in older and not _is_step("-", revision, len(older) - 1):
        raise _unreachable(current, "downgraded", revision, older)


def check_upgrade(current: str | None, revision: str) -> None:
    """Raise `Unavailable` unless a schema at the revision `current` can be upgraded to `revision`.

    An older revision is accepted, and nothing is upgraded then.
    """
    if revision == HEAD:
        return
    known = _known(current, "upgrade")
    newer = known[known.index(current or BASE) + 1 :]
    if revision not in known[1:] and not _is_step("+", revision, len(newer)):
        raise _unreachable(current, "upgraded", revision, [HEAD, *newer])


def _known(current: str | None, verb: str) -> list[str]:
    """Return all revisions from the base on; raise `Unavailable` if `current` is not one of them."""
    known = [BASE, *reversed([script.revision for script in _history().walk_revisions()])]
    if current in BEFORE_BASELINE:
        raise Unavailable(str(mismatch(current)))
    if current is not None and current not in known:
        raise Unavailable(
            f"The schema is at revision {current}, which is newer than this version of placement-svc:"
            f" {verb} it with the version that has created it."
        )
    return known


def _is_step(sign: str, revision: str, count: int) -> bool:
    """Return whether `revision` is a number of steps in the direction of `sign`, and at most `count`."""
    steps = revision.removeprefix(sign)
    return revision.startswith(sign) and steps.isdecimal() and 0 < int(steps) <= count


def _unreachable(current: str | None, participle: str, revision: str, targets: Sequence[str]) -> Unavailable:
    """Return the error for a revision that cannot be reached; `targets` can."""
    name, *revisions = targets
    if revisions:
        name += f", or a revision from {revisions[0]} to {revisions[-1]}"
    return Unavailable(
        f"The schema is at revision {current or BASE} and cannot be {participle} to {revision!r}:"
        f" name {name}."
    )


def check_upgradable(connection: Connection) -> None:
    """Raise `Unavailable` if the schema is at a revision from before the baseline that has no migration."""
    revision = revision_of(connection)
    if revision in BEFORE_BASELINE:
        raise Unavailable(str(mismatch(revision)))


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
