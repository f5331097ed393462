"""Find out whether a transaction was rolled back when PostgreSQL ended its session, as at a switchover."""

from typing import Any

_TERMINATION = "terminating connection due to administrator command"
"""The message of the error with which PostgreSQL ends a session, in English."""

IS_ROLLED_BACK = "is_rolled_back"
"""The attribute of a driver error after which nothing of the transaction is committed."""


def forget_notices(driver_connection: Any) -> None:
    """Forget what PostgreSQL has sent, so that `is_rolled_back` is about the next statement."""
    driver_connection.notices.clear()


def is_rolled_back(driver_connection: Any) -> bool:
    """Return whether PostgreSQL has ended a session, and certainly before the commit of the last statement.

    PostgreSQL sends an error and closes the connection. psycopg2 raises only the loss, without a code; libpq
    has the messages of both. The error alone is not sufficient. A backend that is told to stop during a
    commit notices it afterwards if it writes to its log, such as the duration of the statement. But it sends
    what it logs to the client first (`client_min_messages`), and it sends a warning and no error if the
    commit waits for a synchronous standby. An error whose context names PL/pgSQL comes before the commit,
    whatever was logged.
    """
    message = driver_connection.info.error_message or ""
    return "PL/pgSQL" in message or (_TERMINATION in message and not driver_connection.notices)
