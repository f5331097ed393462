"""Many rows as statement parameters: one array per column, so that a statement does not grow with them.

A statement with a parameter per value is compiled anew for each number of rows, and PostgreSQL plans a list
of pairs as one condition per pair: thousands exceed its stack depth.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, String, TableValuedAlias, Text, cast, func, literal, select
from sqlalchemy import column as sql_column
from sqlalchemy.dialects.postgresql import ARRAY, Insert, array, insert
from sqlalchemy.types import TypeEngine


def array_of(type_: TypeEngine[Any]) -> ARRAY[Any]:
    """Return the type of an array with elements of a type, but texts of any length.

    SQLAlchemy casts the array, and PostgreSQL would cut the texts to the length of the type without an error.
    """
    return ARRAY(String(collation=type_.collation) if isinstance(type_, String) else type_)


def join_texts(separator: str, values: Iterable[ColumnElement[Any]]) -> ColumnElement[str]:
    """Return the values as one text, with `separator` between them; NULLs are left out.

    Unlike `concat_ws`, which PostgreSQL limits to 100 arguments, it takes any number of values.
    """
    return func.array_to_string(array([cast(value, Text) for value in values]), separator)


def array_rows(
    columns: Sequence[ColumnElement[Any]], rows: Iterable[Sequence[Any]], name: str
) -> TableValuedAlias:
    """Return `rows` as a table `name` for a FROM clause, with the names and types of `columns`."""
    listed = list(rows)
    arrays = [
        literal([row[index] for row in listed], array_of(column.type)) for index, column in enumerate(columns)
    ]
    named = (sql_column(str(column.key), column.type) for column in columns)
    return func.unnest(*arrays).table_valued(*named).render_derived(name=name)


def insert_rows(columns: Sequence[ColumnElement[Any]], rows: Iterable[Sequence[Any]]) -> Insert:
    """Return the statement that inserts `rows`, in their order, into `columns` of one table."""
    given = array_rows(columns, rows, "given")
    table: Any = columns[0].table
    return insert(table).from_select([str(column.key) for column in columns], select(given))


def insert_missing(
    connection: Connection, columns: Sequence[ColumnElement[Any]], rows: Iterable[Sequence[Any]]
) -> int:
    """Insert the rows whose keys do not exist; return their number."""
    return connection.execute(insert_rows(columns, rows).on_conflict_do_nothing()).rowcount
