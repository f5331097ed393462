"""Errors of the driver: which are outages, and what the log contains of them."""

import logging
from collections.abc import Callable
from typing import Any

import psycopg2  # type: ignore[import-untyped]
import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, OperationalError

from placement_svc.db.claims import procedures
from placement_svc.db.connections.engine import Database
from placement_svc.db.errors import MAX_LOGGED_BYTES, map_driver_errors
from placement_svc.domain.errors import Invalid, Unavailable
from placement_svc.server.logs import formatter

SECRET = "secret-value"
MANY = 20_000
MAX_LOGGED = 2048


class LimitError(psycopg2.OperationalError):  # type: ignore[misc]
    """An error as the driver raises it for a statement beyond a limit of PostgreSQL."""

    pgcode = "54001"


@pytest.mark.parametrize("code", ["54000", "54001", "54011", "54023"])
def test_limit_of_a_statement_is_not_an_outage(code: str) -> None:
    error = LimitError("stack depth limit exceeded")
    error.pgcode = code
    with pytest.raises(OperationalError), map_driver_errors():
        raise OperationalError("SELECT 1", None, error)


@pytest.mark.parametrize("code", ["XX000", "XX001", "XX002"])
def test_internal_error_of_postgresql_is_an_outage(
    database: Database, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(connection: Connection) -> None:
        connection.execute(text(f"DO $$ BEGIN RAISE 'invalid page' USING ERRCODE = '{code}'; END $$"))

    with pytest.raises(Unavailable, match="internal error or corrupted data"):
        database.write(fail)
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("The database failed: ")
    assert "invalid page" in record.getMessage()


def exceed_the_stack_depth(connection: Connection) -> None:
    connection.execute(text("SELECT " + "(" * MANY + f"'{SECRET}'" + ")" * MANY))


def name_a_missing_column(connection: Connection) -> None:
    columns = ", ".join(f"missing_{number}" for number in range(MANY))
    connection.execute(text(f"SELECT {columns} WHERE :value = ''"), {"value": SECRET * MANY})


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize("fail", [exceed_the_stack_depth, name_a_missing_column])
def test_traceback_has_at_most_2_kb_of_a_statement_and_no_parameter(
    database: Database, fail: Callable[[Connection], None], log_format: str
) -> None:
    with pytest.raises(DBAPIError) as raised:
        database.write(fail)
    record = logging.LogRecord("placement_svc", logging.ERROR, "", 0, "failed", (), None)
    record.exc_info = (raised.type, raised.value, raised.value.__traceback__)
    logged = formatter(log_format).format(record)
    lines = logged.replace("\\n", "\n").split("\n")
    assert max(len(line.encode()) for line in lines) < MAX_LOGGED
    assert SECRET * 2 not in logged
    assert len(str(raised.value)) < MAX_LOGGED


def test_value_that_the_driver_quotes_is_cut(database: Database) -> None:
    statement = "SELECT CAST(%(value)s AS integer)" + " " * MANY
    with pytest.raises(Invalid) as raised:
        procedures._execute(database, statement, {"value": SECRET * MANY})
    error: BaseException | None = raised.value
    while error is not None:
        assert len(str(error)) < MAX_LOGGED
        error = error.__cause__


def test_log_of_an_outage_has_at_most_2_kb_of_a_statement(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def time_out(connection: Connection) -> None:
        connection.execute(text("SET LOCAL statement_timeout = 50"))
        padding: dict[str, Any] = {f"value_{number}": SECRET for number in range(MANY // 10)}
        listed = ", ".join(f":{name}" for name in padding)
        connection.execute(text(f"SELECT pg_sleep(10) WHERE '' NOT IN ({listed})"), padding)

    with pytest.raises(Unavailable):
        database.write(time_out)
    [record] = caplog.records
    message = record.getMessage()
    assert len(message) < MAX_LOGGED
    assert "canceling statement due to statement timeout" in message
    assert "https://" not in message
    assert SECRET not in message


def test_shortened_texts_tell_their_length(database: Database) -> None:
    with pytest.raises(DBAPIError) as raised:
        database.write(exceed_the_stack_depth)
    assert raised.value.statement is not None
    assert len(raised.value.statement) <= MAX_LOGGED_BYTES
    assert raised.value.statement.endswith(f" ... ({len('SELECT ') + 2 * MANY + len(SECRET) + 2} bytes)")
