"""The names of traits and resource classes, and their ids."""

from collections.abc import Collection, Iterable

import os_resource_classes
import os_traits
from sqlalchemy import Connection, Table, func, select
from sqlalchemy.dialects.postgresql import insert

from placement_svc.db.filters import is_any
from placement_svc.db.row_locks import KEY_SHARE
from placement_svc.db.tables import FIRST_CUSTOM_ID, resource_classes, traits
from placement_svc.domain.errors import UnknownName
from placement_svc.domain.pages import SortKey

SYNC_LOCK = 8778
"""The advisory lock that lets only one worker at a time sync the standard names."""


def sync_standard(connection: Connection) -> None:
    """Add the standard names that are missing; leave all others unchanged."""
    connection.execute(select(func.pg_advisory_xact_lock(SYNC_LOCK)))
    _add_missing(connection, resource_classes, os_resource_classes.STANDARDS)
    _add_missing(connection, traits, sorted(os_traits.get_traits()))


def _add_missing(connection: Connection, table: Table, standard_names: Iterable[str]) -> None:
    stored = select(table.c.id, table.c.name).where(table.c.id < FIRST_CUSTOM_ID)
    id_by_name = {name: id for id, name in connection.execute(stored)}
    missing = [name for name in standard_names if name not in id_by_name]
    if missing:
        first_id = max(id_by_name.values(), default=-1) + 1
        rows = [{"id": id, "name": name} for id, name in enumerate(missing, first_id)]
        connection.execute(insert(table).on_conflict_do_nothing(), rows)


def add(connection: Connection, table: Table, name: str) -> bool:
    """Add a custom name to `table` (traits or resource classes); return whether it was missing."""
    if ids(connection, table, [name]):
        return False
    inserted = connection.execute(insert(table).values(name=name).on_conflict_do_nothing())
    return bool(inserted.rowcount)


def ids(
    connection: Connection, table: Table, names: Collection[str], *, lock: bool = False
) -> dict[str, int]:
    """Return the id of each of `names` that is in `table` (traits or resource classes).

    With `lock`, requests that rename or delete one of these wait until the transaction ends.
    """
    # PostgreSQL refuses a text with a NUL as a parameter, and no stored name has one.
    possible_names = [name for name in names if "\x00" not in name]
    if not possible_names:
        return {}
    query = select(table.c.name, table.c.id).where(is_any(table.c.name, possible_names))
    if lock:
        query = query.order_by(table.c.id).with_for_update(**KEY_SHARE)
    return dict(connection.execute(query).all())


def resource_class_ids(
    connection: Connection,
    names: Collection[str],
    message: str = "No such resource class {}.",
    *,
    lock: bool = False,
) -> dict[str, int]:
    """Return the id of each resource class, with `lock` as `ids` does.

    Raise `UnknownName` for the first unknown name, with `message`, in which `{}` stands for the name.
    """
    return _all_ids(connection, resource_classes, names, message, lock=lock)


def sort_class_id(connection: Connection, sort: SortKey) -> int:
    """Return the id of the resource class of a sort key; raise `UnknownName`."""
    message = "Invalid 'sort_by': No such resource class {}."
    return resource_class_ids(connection, [sort.resource_class], message)[sort.resource_class]


def trait_ids(connection: Connection, names: Collection[str], message: str) -> dict[str, int]:
    """Return the id of each trait; raise `UnknownName` as `resource_class_ids` does."""
    return _all_ids(connection, traits, names, message)


def _all_ids(
    connection: Connection, table: Table, names: Collection[str], message: str, *, lock: bool = False
) -> dict[str, int]:
    id_by_name = ids(connection, table, names, lock=lock)
    for name in names:
        if name not in id_by_name:
            raise UnknownName(message.format(name))
    return id_by_name
