"""The SQL statements that an application sends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from flask import Flask
from sqlalchemy import Connection, Engine, event, text
from werkzeug.test import TestResponse


class Statement(NamedTuple):
    """The text of a statement, and its parameters."""

    text: str
    parameters: Any


@contextmanager
def sent_statements(engine: Engine) -> Iterator[list[Statement]]:
    """Yield a list to which every statement that `engine` runs in the block is appended."""
    sent: list[Statement] = []

    def collect(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent.append(Statement(statement, parameters))

    event.listen(engine, "before_cursor_execute", collect)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", collect)


def count_statements(app: Flask, send: Callable[[], TestResponse]) -> int:
    """Return the number of statements that a successful request runs."""
    with sent_statements(app.extensions["database"].engine) as sent:
        assert send().status_code == 200
    assert sent
    return len(sent)


def row_counts(connection: Connection, statement: Statement, table: str | None = None) -> Iterator[int]:
    """Run a statement, and yield how many rows each node of its plan returned, or each scan of a table."""
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}"
    [plan] = connection.exec_driver_sql(explain, statement.parameters).scalar_one()
    nodes = [plan["Plan"]]
    while nodes:
        node = nodes.pop()
        if table in (None, node.get("Relation Name")):
            yield node["Actual Rows"] * node["Actual Loops"]
        nodes += node.get("Plans", ())


def analyze(engine: Engine, *tables: str) -> None:
    """Analyze these tables, as after an import: the statistics of earlier tests are of empty tables."""
    with engine.begin() as connection:
        connection.execute(text(f"ANALYZE {', '.join(tables)}"))
