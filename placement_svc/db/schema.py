"""The schema of a database: which revision it has, and the way up and down."""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select

from placement_svc.db import names
from placement_svc.db.errors import translated

SCHEMA_LOCK = 8777
"""The advisory lock of the schema, for several services that start at once."""

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
    with translated(), engine.connect() as connection:
        return revision_of(connection)


def problem(revision: str | None) -> str | None:
    """Return why a schema of this revision will not do, None if it will.

    A revision that this code does not know is newer: the schema is upgraded before the services are,
    and works with those that are still running.
    """
    older = {script.revision for script in _history().walk_revisions()} - {newest()}
    if revision is not None and revision not in older:
        return None
    return f"The schema is at revision {revision or 'base'} of {newest()}: run `placement-svc db upgrade`."


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring a database up to `revision`, in one transaction; who comes second waits, and finds it done.

    With the newest one come the standard names: a service that is running already needs them there.
    """
    with translated(), engine.begin() as connection:
        connection.execute(select(func.pg_advisory_xact_lock(SCHEMA_LOCK)))
        command.upgrade(_config(connection), revision)
        if revision_of(connection) == newest():
            names.sync_standard(connection)


def downgrade(engine: Engine, revision: str) -> None:
    """Take a database back to `revision`, in one transaction."""
    with translated(), engine.begin() as connection:
        command.downgrade(_config(connection), revision)
