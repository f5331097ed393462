"""The statistics that PostgreSQL collects of a database."""

from sqlalchemy import Connection, Engine, text

REPORT_SECONDS = 0.6
"""Seconds after which a session of PostgreSQL 14 reports what it has counted."""


def flush_statistics(connection: Connection) -> None:
    """Make PostgreSQL add up what this session has counted, at the end of its transaction."""
    if (connection.dialect.server_version_info or ()) >= (15,):
        connection.execute(text("SELECT pg_stat_force_next_flush()"))
    else:
        connection.execute(text("SELECT pg_sleep(:seconds)"), {"seconds": REPORT_SECONDS})


def count_deadlocks(engine: Engine) -> int:
    """Return how many deadlocks PostgreSQL has counted in this database."""
    query = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    with engine.connect() as connection:
        flush_statistics(connection)
        return int(connection.execute(query).scalar_one())
