"""The names of traits and of resource classes, and the ids they are stored as."""

from collections.abc import Collection, Iterable

import os_resource_classes
import os_traits
from sqlalchemy import Connection, Table, func, select
from sqlalchemy.dialects.postgresql import insert

from placement_svc.db.filters import is_any
from placement_svc.db.tables import FIRST_CUSTOM_ID, resource_classes, traits
from placement_svc.domain.errors import Invalid

SYNC_LOCK = 8778
"""The advisory lock that workers which start at once take in turn."""


def sync_standard(connection: Connection) -> None:
    """Store the standard names that are not there yet, and touch nothing else."""
    connection.execute(select(func.pg_advisory_xact_lock(SYNC_LOCK)))
    _add_missing(connection, resource_classes, os_resource_classes.STANDARDS)
    _add_missing(connection, traits, sorted(os_traits.get_traits()))


def _add_missing(connection: Connection, table: Table, standard: Iterable[str]) -> None:
    known = select(table.c.id, table.c.name).where(table.c.id < FIRST_CUSTOM_ID)
    ids = {name: id for id, name in connection.execute(known)}
    missing = [name for name in standard if name not in ids]
    if missing:
        first = max(ids.values(), default=-1) + 1
        rows = [{"id": id, "name": name} for id, name in enumerate(missing, first)]
        connection.execute(insert(table).on_conflict_do_nothing(), rows)


def add(connection: Connection, table: Table, name: str) -> bool:
    """Store a custom name in `table` (traits or resource classes); tell whether it was not there yet."""
    if ids(connection, table, [name]):
        return False
    added = connection.execute(insert(table).values(name=name).on_conflict_do_nothing())
    return bool(added.rowcount)


def ids(connection: Connection, table: Table, names: Collection[str]) -> dict[str, int]:
    """Return the ids of those of `names` that `table` (traits or resource classes) knows."""
    # PostgreSQL has no text with a NUL in it, so neither has any of the names that it knows.
    possible = [name for name in names if "\x00" not in name]
    query = select(table.c.name, table.c.id).where(is_any(table.c.name, possible))
    return dict(connection.execute(query).all())


def resource_class_ids(
    connection: Connection, names: Collection[str], problem: str = "No such resource class {}."
) -> dict[str, int]:
    """Return the id of each resource class.

    Raises `Invalid` for the first that is unknown: `problem` with its name for `{}`.
    """
    return _all_ids(connection, resource_classes, names, problem)


def trait_ids(
    connection: Connection, names: Collection[str], problem: str = "No such trait(s): {}."
) -> dict[str, int]:
    """Return the id of each trait; raises `Invalid` like `resource_class_ids`."""
    return _all_ids(connection, traits, names, problem)


def _all_ids(connection: Connection, table: Table, names: Collection[str], problem: str) -> dict[str, int]:
    found = ids(connection, table, names)
    for name in names:
        if name not in found:
            raise Invalid(problem.format(name))
    return found
