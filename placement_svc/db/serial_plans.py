"""Plans without parallel workers."""

from sqlalchemy import Connection, text

SERIAL_PLANS = "SET LOCAL max_parallel_workers_per_gather = 0"
"""The SQL after which PostgreSQL uses no parallel workers until the end of the transaction."""


def use_serial_plans(connection: Connection) -> None:
    """Let PostgreSQL use no parallel workers until the end of the transaction: one statement.

    Explanations and the capacity for a request aggregate the inventories by provider or root, and join the
    providers. In a parallel plan, each worker aggregates all inventories, and the leader receives a row for
    each provider through a queue. That takes twice the processor time of a serial plan, and is not faster.
    """
    connection.execute(text(SERIAL_PLANS))
