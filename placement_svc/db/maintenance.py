"""Transactions of the operator's commands: they may run for minutes, and some must exclude writers."""

import logging
import time
from collections.abc import Sequence

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import OperationalError

from placement_svc.db.errors import LOCK_NOT_AVAILABLE, sqlstate

_DISABLE_TIMEOUTS = """
    SET LOCAL statement_timeout = 0;
    SET LOCAL lock_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0
"""

# The tables whose rows a writing request can lock first, in the order in which it locks them ("Lock order" in
# `docs/reliability.md`). So a writer waits for these table locks before it holds a lock that this transaction
# needs.
_OWNERS = ("projects", "users", "consumer_types")
_Locks = Sequence[tuple[Sequence[str], str]]
_LOCKS: _Locks = (
    (("placement_groups",), "EXCLUSIVE"),
    (_OWNERS, "SHARE ROW EXCLUSIVE"),
    (("consumers", "resource_providers"), "EXCLUSIVE"),
    (("resource_classes", "traits"), "SHARE ROW EXCLUSIVE"),
)

LOCK_TIMEOUT = "1s"
"""How long one attempt waits for a lock: all later requests that it excludes queue behind it."""

PAUSE_SECONDS = 2.0
"""Seconds between two attempts, in which these requests go on."""

log = logging.getLogger(__name__)


def disable_timeouts(connection: Connection) -> None:
    """Remove all time limits from the current transaction."""
    connection.execute(text(_DISABLE_TIMEOUTS))


def lock_out_writers(connection: Connection) -> None:
    """Make all other writers wait until this transaction ends; readers continue.

    Writers also wait while this transaction waits for others: let `lock_timeout` limit that. An older schema
    may lack some of the tables.
    """
    _lock(connection, _LOCKS)


def wait_to_lock_out_writers(connection: Connection, *, and_readers_of_owners: bool = False) -> None:
    """Do as `lock_out_writers`, but let requests continue while this transaction waits, which it logs.

    With `and_readers_of_owners`, requests that read projects, users or consumer types wait afterwards, too.
    """
    locks = _LOCKS
    if and_readers_of_owners:
        locks = [(tables, "ACCESS EXCLUSIVE" if tables == _OWNERS else mode) for tables, mode in _LOCKS]
    is_reported = False
    while not _try_lock(connection, locks):
        if not is_reported:
            log.warning("Waiting for other transactions to end. Requests continue meanwhile.")
            is_reported = True
        time.sleep(PAUSE_SECONDS)


def _try_lock(connection: Connection, locks: _Locks) -> bool:
    """Return whether the transaction has got all locks, each within `LOCK_TIMEOUT`; else it has got none."""
    try:
        with connection.begin_nested():
            connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
            _lock(connection, locks)
            connection.execute(text("SET LOCAL lock_timeout = 0"))
    except OperationalError as error:
        if sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
        return False
    return True


def _lock(connection: Connection, locks: _Locks) -> None:
    existing = set(inspect(connection).get_table_names())
    for tables, mode in locks:
        for table in filter(existing.__contains__, tables):
            connection.execute(text(f"LOCK TABLE {table} IN {mode} MODE"))
