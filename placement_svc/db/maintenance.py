"""Transactions of the operator's commands: they may run for minutes, and some must exclude writers."""

from sqlalchemy import Connection, text

_DISABLE_TIMEOUTS = """
    SET LOCAL statement_timeout = 0;
    SET LOCAL lock_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0
"""

# The first row locks of a writing request are on placement_groups, on consumers or, if it has neither, on
# resource_providers. A request that writes none of them changes only traits or resource classes. So every
# writer waits for these table locks before it holds a lock that this transaction needs.
_LOCK_OUT_WRITERS = """
    LOCK TABLE placement_groups, consumers, resource_providers IN EXCLUSIVE MODE;
    LOCK TABLE resource_classes, traits IN SHARE ROW EXCLUSIVE MODE
"""


def disable_timeouts(connection: Connection) -> None:
    """Remove all time limits from the current transaction."""
    connection.execute(text(_DISABLE_TIMEOUTS))


def lock_out_writers(connection: Connection) -> None:
    """Make all other writers wait until this transaction ends; readers continue."""
    connection.execute(text(_LOCK_OUT_WRITERS))
