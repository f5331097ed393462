"""Statements are canceled when the deadline of their request passes or its client disconnects."""

import os
import time
from collections.abc import Iterator
from threading import Event, Thread

import pytest
from sqlalchemy import Connection, text

from placement_svc.db.connections.cancellation import set_deadline
from placement_svc.db.connections.engine import Database
from placement_svc.domain.errors import ClientDisconnected, Unavailable
from placement_svc.domain.execution.deadline import Deadline
from tests.conftest import ADMIN, NewApp

STATEMENT_SECONDS = 30
"""How long the statement would run; the tests allow a third of it for its cancellation."""


@pytest.fixture(autouse=True)
def without_deadline() -> Iterator[None]:
    yield
    set_deadline(None)


def sleep_in_sql(connection: Connection) -> None:
    connection.execute(text(f"SELECT pg_sleep({STATEMENT_SECONDS})"))


def seconds_of(database: Database, error: type[Exception], message: str) -> float:
    started = time.monotonic()
    with pytest.raises(error, match=message):
        database.read(sleep_in_sql)
    return time.monotonic() - started


def test_statement_is_canceled_at_the_deadline(database: Database) -> None:
    set_deadline(Deadline.of(0.3))
    assert seconds_of(database, Unavailable, "takes longer than 0.3 seconds") < STATEMENT_SECONDS / 3
    set_deadline(None)
    assert database.read(lambda connection: connection.scalar(text("SELECT 1"))) == 1


def test_statement_of_a_disconnected_client_is_canceled(database: Database) -> None:
    gone = Event()
    set_deadline(Deadline.of(60, gone.is_set))
    Thread(target=lambda: (time.sleep(0.3), gone.set())).start()
    assert seconds_of(database, ClientDisconnected, "disconnected") < STATEMENT_SECONDS / 3


def test_statements_are_canceled_after_a_lost_connection_has_been(database: Database) -> None:
    """The deadline of a read can pass while it still works on what it got before its connection was lost."""

    def lose_connection(connection: Connection) -> None:
        connection.invalidate()
        time.sleep(0.5)

    set_deadline(Deadline.of(0.1))
    database.read(lose_connection)
    set_deadline(Deadline.of(0.3))
    assert seconds_of(database, Unavailable, "takes longer than 0.3 seconds") < STATEMENT_SECONDS / 3


def test_each_statement_of_a_read_is_canceled(database: Database) -> None:
    def many(connection: Connection) -> None:
        for _ in range(STATEMENT_SECONDS * 100):
            connection.execute(text("SELECT pg_sleep(0.01)"))

    set_deadline(Deadline.of(0.3))
    started = time.monotonic()
    with pytest.raises(Unavailable, match="takes longer than"):
        database.read(many)
    assert time.monotonic() - started < STATEMENT_SECONDS / 3


def test_no_statement_starts_after_the_deadline(database: Database) -> None:
    set_deadline(Deadline.of(-1))
    with pytest.raises(Unavailable, match="takes longer than"):
        database.read(sleep_in_sql)


def test_a_write_has_no_deadline(database: Database) -> None:
    set_deadline(Deadline.of(0.1))
    assert database.write(lambda connection: connection.scalar(text("SELECT 1 FROM pg_sleep(0.5)"))) == 1


def test_a_forked_process_cancels_statements_too(database: Database) -> None:
    set_deadline(Deadline.of(0.3))
    seconds_of(database, Unavailable, "takes longer than")
    pid = os.fork()
    if not pid:
        status = 1
        try:
            database.engine.dispose(close=False)
            set_deadline(Deadline.of(0.3))
            seconds_of(database, Unavailable, "takes longer than")
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert status == 0


def test_head_request_of_the_console_has_the_deadline_of_a_get(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "placement_svc.db.consumer_pages.find_page", lambda read, *_, **__: sleep_in_sql(read)
    )
    client = new_app(request_deadline=0.3).test_client()
    started = time.monotonic()
    assert client.head("/console/consumers").status_code == 503
    assert time.monotonic() - started < STATEMENT_SECONDS / 3


@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("/resource_providers", "placement_svc.db.providers.find"),
        ("/usages?project_id=p", "placement_svc.db.usages.of_project"),
        ("/traits", "placement_svc.db.traits.find"),
    ],
)
def test_listing_answers_503_at_the_deadline(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch, path: str, function: str
) -> None:
    def slow(connection: Connection, *_: object, **__: object) -> None:
        sleep_in_sql(connection)

    monkeypatch.setattr(function, slow)
    client = new_app(request_deadline=0.3).test_client()
    started = time.monotonic()
    response = client.get(path, headers=ADMIN)
    assert time.monotonic() - started < STATEMENT_SECONDS / 3
    assert response.status_code == 503
    detail = response.json["errors"][0]["detail"]  # type: ignore[index]
    assert "takes longer than 0.3 seconds" in detail
    assert client.get("/readyz").status_code == 200
