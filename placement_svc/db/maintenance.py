"""Transactions of the operator's commands: they may take long, and some need the data for themselves."""

from sqlalchemy import Connection, text

_TAKE_TIME = """
    SET LOCAL statement_timeout = 0;
    SET LOCAL lock_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0
"""

# Every request that writes first locks rows of consumers or, if it has none, of resource providers; or it
# writes names and nothing else. So it waits for these locks before it holds anything that their owner needs.
_LOCK_OUT_WRITERS = """
    LOCK TABLE consumers, resource_providers IN EXCLUSIVE MODE;
    LOCK TABLE resource_classes, traits IN SHARE ROW EXCLUSIVE MODE
"""


def disable_timeouts(connection: Connection) -> None:
    """Let this transaction run, and wait for its client, as long as it takes."""
    connection.execute(text(_TAKE_TIME))


def lock_out_writers(connection: Connection) -> None:
    """Let nobody else change anything until this transaction ends; everybody can read on."""
    connection.execute(text(_LOCK_OUT_WRITERS))
