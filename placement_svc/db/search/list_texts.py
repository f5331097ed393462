"""Lists as texts in the rows of statements: the driver takes longer for arrays, or for rows of members."""

from typing import Any

import orjson
from sqlalchemy import ColumnElement, Text, cast, func, literal_column


def joined(values: ColumnElement[Any], separator: str = ",") -> ColumnElement[str]:
    """Return the values of all rows with a separator between them; null if there is no row."""
    return func.string_agg(cast(values, Text), literal_column(f"'{separator}'", Text))


def members(text: str | None) -> list[Any]:
    """Return the members of a list whose text has JSON values with commas between them; null is empty."""
    listed: list[Any] = orjson.loads(f"[{text or ''}]")
    return listed
