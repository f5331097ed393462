"""Plans without parallel workers."""

from sqlalchemy import Connection, text

_DISABLE = text("SET LOCAL max_parallel_workers_per_gather = 0")


def use_serial_plans(connection: Connection) -> None:
    """Let PostgreSQL use no parallel workers until the end of the transaction: one statement.

    The statements of explanations aggregate the inventories by provider, and join the providers. In a
    parallel plan, each worker aggregates all inventories, and the leader receives a row for each provider
    through a queue. That takes twice the processor time of a serial plan, and is not faster.

    An ordered search tests roots by uuid until it has enough. With two parallel workers, which had to start
    and tested more roots than needed, PostgreSQL found 31 of 250,000 hosts in 22 ms instead of 6.
    """
    connection.execute(_DISABLE)
