"""Transactions that wait for locks."""

from sqlalchemy import Engine, text

_WAITING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


def count_waiting(database: Engine) -> int:
    """Return how many backends of a database wait for a lock."""
    with database.connect() as connection:
        return int(connection.execute(_WAITING).scalar_one())
