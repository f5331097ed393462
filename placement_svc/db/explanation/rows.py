"""Rows of Python values as a table of a statement."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import FromClause, Text, cast, column, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine


def table_of(name: str, rows: Iterable[Sequence[Any]], **columns: TypeEngine[Any]) -> FromClause:
    """Return rows as a table; each column is sent as the text of an array, faster than as an array.

    Values are not escaped: a text with a comma must come in double quotes.
    """
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = (
        cast(literal(f"{{{','.join(map(str, of_column))}}}", Text), ARRAY(type_))
        for of_column, type_ in zip(values, columns.values(), strict=True)
    )
    table = func.unnest(*arrays).table_valued(*(column(key, type_) for key, type_ in columns.items()))
    return select(table.render_derived(name=f"{name}_rows")).cte(name).prefix_with("MATERIALIZED")
