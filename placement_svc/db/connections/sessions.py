"""The sessions in the database: how many there are, and whether they may write."""

import time

from sqlalchemy import Connection, Engine, text

from placement_svc.db.errors import map_driver_errors
from placement_svc.domain.errors import Unavailable
from placement_svc.domain.wording import counted

END_SECONDS = 2.0
"""Seconds that PostgreSQL may still list a session whose client has disconnected."""

POLL_SECONDS = 0.1

# A URL with another application_name sets it for services and commands alike.
_COUNT_OTHERS = text("""
    SELECT count(*)
      FROM pg_stat_activity
     WHERE datname = current_database()
       AND application_name = current_setting('application_name')
       AND pid <> pg_backend_pid()
""")


def count_others(engine: Engine) -> int:
    """Return the number of sessions of services and other commands in the database of `engine`."""
    deadline = time.monotonic() + END_SECONDS
    while True:
        with map_driver_errors(), engine.connect() as connection:
            number: int = connection.scalar(_COUNT_OTHERS)
        if number == 0 or time.monotonic() > deadline:
            return number
        time.sleep(POLL_SECONDS)


def check_no_others(engine: Engine, name: str) -> None:
    """Raise `Unavailable` if services or other commands are connected to the database, which `name` names."""
    if connected := count_others(engine):
        raise Unavailable(
            f"Services or other commands are connected to {name} ({counted(connected, 'session')} with the"
            " application_name of placement-svc): stop them first, or use --force."
        )


_IS_READ_ONLY = text("""
    SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean
""")


def is_read_only(connection: Connection) -> bool:
    """Return whether the server accepts no writes: it is a standby, or it was made read-only."""
    return bool(connection.scalar(_IS_READ_ONLY))
