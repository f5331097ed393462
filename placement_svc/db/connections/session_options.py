"""The options of every database session, and how they reach PostgreSQL behind a connection pooler."""

import math
from collections.abc import Collection, Mapping

from sqlalchemy import URL, Connection, text

MAX_IDLE_SECONDS = 60
"""Seconds for which a transaction may do nothing, unless it has asked for more."""

SESSION_OPTIONS: Mapping[str, str] = {
    # Compiling the short queries of this service takes longer than running them.
    "jit": "off",
    # A transaction that waited for a lock must see what was committed meanwhile, whatever the default
    # isolation level of the database.
    "default_transaction_isolation": "read committed",
    # No transaction may hold its locks indefinitely.
    "idle_in_transaction_session_timeout": f"{MAX_IDLE_SECONDS}s",
    # A statement ends soon after its worker was killed, or has shut down the connection to cancel it.
    "client_connection_check_interval": "100ms",
    # `terminations` must know whether PostgreSQL has logged something after a commit.
    "client_min_messages": "log",
}
"""Options whose values no setting changes."""


def session_options(lock_timeout: int, statement_timeout: int) -> dict[str, str]:
    """Return the options of a session by name; the timeouts are in seconds."""
    timeouts = {"lock_timeout": f"{lock_timeout}s", "statement_timeout": f"{statement_timeout}s"}
    return {**SESSION_OPTIONS, **timeouts}


def allow_idle(connection: Connection, seconds: float) -> None:
    """Let the current transaction be idle for that long, if that is longer than a session may be."""
    if seconds > MAX_IDLE_SECONDS:
        set_option = text("SELECT set_config('idle_in_transaction_session_timeout', :value, true)")
        connection.execute(set_option, {"value": f"{math.ceil(seconds)}s"})


def as_libpq_option(options: Mapping[str, str]) -> str:
    """Return options in the form of the libpq option `options`."""
    return " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in options.items())


_NOT_SET = text("""
    SELECT name FROM pg_settings
     WHERE name = ANY(:names) AND source IN ('default', 'configuration file')
     ORDER BY name
""")


def ignored_options(connection: Connection, names: Collection[str]) -> list[str]:
    """Return the options that neither the session nor its role sets: a pooler has dropped them."""
    return list(connection.scalars(_NOT_SET, {"names": list(names)}))


def role_statements(url: URL, options: Mapping[str, str]) -> list[str]:
    """Return the SQL statements that set options for the role and the database of a URL."""
    user = url.username or "placement"
    # Without a database, libpq takes that with the name of the user.
    role, database = ('"' + name.replace('"', '""') + '"' for name in (user, url.database or user))
    return [
        f"ALTER ROLE {role} IN DATABASE {database} SET {name} = '{value}';" for name, value in options.items()
    ]
