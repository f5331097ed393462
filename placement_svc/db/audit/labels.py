"""SQL expressions that name the rows of each table by uuids and names, for the findings of an audit.

The ids of the database mean nothing to an operator. An id is shown only if the row that it refers to is gone.
The expressions do not fail if a key occurs twice.
"""

from collections.abc import Sequence

from sqlalchemy import Table

_NAMED = {
    "aggregates": ("uuid", "aggregate"),
    "consumer_types": ("name", "consumer type"),
    "consumers": ("uuid", "consumer"),
    "placement_groups": ("uuid", "placement group"),
    "projects": ("external_id", "project"),
    "resource_classes": ("name", "resource class"),
    "resource_providers": ("uuid", "provider"),
    "traits": ("name", "trait"),
    "users": ("external_id", "user"),
}
"""For each table whose rows have a uuid or name: that column, and the noun for a row."""

_TABLE_OF = {
    "aggregate_id": "aggregates",
    "consumer_id": "consumers",
    "consumer_type_id": "consumer_types",
    "group_id": "placement_groups",
    "parent_id": "resource_providers",
    "project_id": "projects",
    "provider_id": "resource_providers",
    "resource_class_id": "resource_classes",
    "root_id": "resource_providers",
    "trait_id": "traits",
    "user_id": "users",
}
"""The table to which a column refers."""

_LABEL_COLUMNS = {
    "allocations": ("consumer_id", "provider_id", "resource_class_id"),
    "inventories": ("provider_id", "resource_class_id"),
    "placement_group_aggregates": ("group_id", "position"),
    "placement_group_members": ("group_id", "consumer_id"),
    "provider_aggregates": ("provider_id", "aggregate_id"),
    "provider_traits": ("provider_id", "trait_id"),
}
"""For each of the other tables: the columns that identify a row."""


def noun(table: str) -> str:
    """Return the noun for a row of `table`."""
    return _NAMED[table][1]


def name(table: str, id: str) -> str:
    """Return the expression for the uuid or name of the row `id`, or for its noun and id if it is gone."""
    column, noun = _NAMED[table]
    found = f"(SELECT min({column}) FROM {table} WHERE id = {id})"
    return f"coalesce({found}, '{noun} ' || coalesce(({id})::text, 'unknown'))"


def names(table: str, ids: str, separator: str) -> str:
    """Return the expression for the uuids or names of an array of ids, in the order of the array."""
    listed = f"""
        SELECT string_agg({name(table, "listed.id")}, '{separator}' ORDER BY listed.position)
          FROM unnest({ids}) WITH ORDINALITY AS listed (id, position)
    """
    return f"coalesce(({listed}), 'none')"


def column(column_name: str, row: str) -> str:
    """Return the expression for the value of a column, with a name instead of the id of a row."""
    value = f"{row}.{column_name}"
    return name(_TABLE_OF[column_name], value) if column_name in _TABLE_OF else f"{value}::text"


def columns(column_names: Sequence[str], row: str) -> str:
    """Return the expression for the values of several columns, separated by spaces."""
    return f"concat_ws(' ', {', '.join(column(column_name, row) for column_name in column_names)})"


def label(table: str, row: str) -> str:
    """Return the expression that names `row`, a row of `table`."""
    if table in _NAMED:
        return f"coalesce({row}.{_NAMED[table][0]}, '{noun(table)} ' || {row}.id)"
    return columns(_LABEL_COLUMNS[table], row)


def duplicate(table: Table, key: Sequence[str]) -> str:
    """Return the aggregate expression that names several rows of `table` with one value of `key`."""
    if "id" in key:
        return f"'id ' || entry.id || ': ' || string_agg(entry.{_NAMED[table.name][0]}, ', ')"
    return columns(key, "entry")
