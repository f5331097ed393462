"""Transactions of the operator's commands: they may run for minutes, and some must exclude writers."""

from sqlalchemy import Connection, inspect, text

_DISABLE_TIMEOUTS = """
    SET LOCAL statement_timeout = 0;
    SET LOCAL lock_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0
"""

# The tables whose rows a writing request can lock first, in the order in which it locks them ("Lock order" in
# `docs/reliability.md`). So a writer waits for these table locks before it holds a lock that this transaction
# needs.
_OWNERS = ("projects", "users", "consumer_types")
_LOCKS = (
    (("placement_groups",), "EXCLUSIVE"),
    (_OWNERS, "SHARE ROW EXCLUSIVE"),
    (("consumers", "resource_providers"), "EXCLUSIVE"),
    (("resource_classes", "traits"), "SHARE ROW EXCLUSIVE"),
)


def disable_timeouts(connection: Connection) -> None:
    """Remove all time limits from the current transaction."""
    connection.execute(text(_DISABLE_TIMEOUTS))


def lock_out_writers(connection: Connection, *, and_readers_of_owners: bool = False) -> None:
    """Make all other writers wait until this transaction ends; readers continue.

    With `and_readers_of_owners`, requests that read projects, users or consumer types wait too. An older
    schema may lack some of the tables.
    """
    existing = set(inspect(connection).get_table_names())
    for tables, mode in _LOCKS:
        if and_readers_of_owners and tables == _OWNERS:
            mode = "ACCESS EXCLUSIVE"
        for table in filter(existing.__contains__, tables):
            connection.execute(text(f"LOCK TABLE {table} IN {mode} MODE"))
