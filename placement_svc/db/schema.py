"""The schema of a database: which revision it has, and the way up and down."""

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


def newest() -> str | None:
    """Return the revision that this code works with."""
    return ScriptDirectory.from_config(Config(_INI)).get_current_head()


def current(engine: Engine) -> str | None:
    """Return the revision of a database, None for an empty one."""
    with translated(), engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring a database up to `revision`, in one transaction; who comes second waits, and finds it done.

    With the newest one come the standard names: a service that is running already needs them there.
    """
    with translated(), engine.begin() as connection:
        connection.execute(select(func.pg_advisory_xact_lock(SCHEMA_LOCK)))
        command.upgrade(_config(connection), revision)
        if MigrationContext.configure(connection).get_current_revision() == newest():
            names.sync_standard(connection)


def downgrade(engine: Engine, revision: str) -> None:
    """Take a database back to `revision`, in one transaction."""
    with translated(), engine.begin() as connection:
        command.downgrade(_config(connection), revision)
