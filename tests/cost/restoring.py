"""Undo the changes of a write, so that every request finds the cloud as it was loaded."""

from sqlalchemy import Connection, text

from placement_svc.db import tables

CHANGED = (
    tables.resource_providers,
    tables.provider_traits,
    tables.provider_aggregates,
    tables.inventories,
    tables.consumers,
    tables.allocations,
    tables.placement_groups,
    tables.placement_group_aggregates,
    tables.placement_group_members,
)
"""The tables that writes change. The names that they add remain."""


def save(connection: Connection) -> None:
    """Copy the rows of all tables to the schema `saved`."""
    connection.execute(text("CREATE SCHEMA saved"))
    for table in CHANGED:
        connection.execute(text(f"CREATE TABLE saved.{table.name} AS TABLE {table.name}"))
        connection.execute(text(f"ANALYZE saved.{table.name}"))


def restore(connection: Connection) -> None:
    """Replace the rows that differ from those saved, without firing triggers."""
    connection.execute(text("SET LOCAL session_replication_role = replica"))
    for table in CHANGED:
        columns = ", ".join(column.name for column in table.columns if column.computed is None)
        connection.execute(
            text(
                f"DELETE FROM {table.name} AS now"
                f" WHERE NOT EXISTS (SELECT FROM saved.{table.name} AS old WHERE old = now)"
            )
        )
        connection.execute(
            text(
                f"INSERT INTO {table.name} ({columns})"
                f" SELECT {columns} FROM saved.{table.name} EXCEPT SELECT {columns} FROM {table.name}"
            )
        )
