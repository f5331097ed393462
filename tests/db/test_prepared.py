"""Statements that sessions keep prepared (`placement_svc/db/prepared.py`)."""

import logging
import math
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Connection, Engine, Integer, bindparam, column, literal, select, table, text
from sqlalchemy.exc import DBAPIError

from placement_svc.db import prepared
from placement_svc.db.connections.engine import Database, connect
from placement_svc.db.prepared import FixedStatement, each_row, fetch_rows
from placement_svc.db.search import anchor_statement, name_lookup, random_root
from tests.conftest import ADMIN, LoadCloud, NewApp
from tests.support.claims_oracle import consumer
from tests.support.cloud import read
from tests.support.postgres_proxy import PostgresProxy
from tests.support.statements import sent_statements

GENERIC_AFTER = 5
"""PostgreSQL plans the first executions of a prepared statement with their values."""

TEXT = "SELECT 'a%', 1"
PREPARED = text("SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements ORDER BY name")

changing = table("changing", column("amount", Integer))
AMOUNTS = FixedStatement(
    select(changing.c.amount, literal("100%")).where(changing.c.amount >= bindparam("least")),
    {"least": "integer"},
)


def repeat(connection: Connection, sent: str) -> list[Any]:
    return list(each_row(connection, sent))


def count_prepared(connection: Connection) -> int:
    return len(connection.execute(PREPARED).all())


@pytest.fixture
def one_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a session draw the roots at which searches start only once."""
    monkeypatch.setattr(random_root, "DRAWN_SECONDS", math.inf)


@pytest.fixture
def preparing(database_url: str, clean_database: Callable[[], None]) -> Iterator[Database]:
    """The database, with one session that prepares statements."""
    engine = connect(database_url, pool_size=1, prepares_statements=True)
    yield Database(engine)
    engine.dispose()


@pytest.fixture
def amounts(engine: Engine) -> Iterator[Engine]:
    """An engine for the database, in which the table `changing` has one row."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE changing AS SELECT 7 AS amount"))
    yield engine
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE changing"))


@pytest.fixture
def hosts(load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five hosts, of whose searches this process has kept no text yet; sessions count only once."""
    anchor_statement._cached_statement.cache_clear()
    monkeypatch.setattr(name_lookup, "COUNT_SECONDS", 3600)
    load_cloud(read("; ".join(f"h{number}{{VCPU8 DISK_GB8}}" for number in range(5))))


def search(app: Flask, query: str = "resources=VCPU:1,DISK_GB:1&limit=3") -> str:
    response = app.test_client().get(f"/allocation_candidates?{query}", headers=ADMIN)
    assert response.status_code == 200, response.text
    return response.text


def sessions_statements(app: Flask) -> list[Any]:
    """Return what is prepared in the only session of an application."""
    with app.extensions["database"].engine.connect() as connection:
        return list(connection.execute(PREPARED))


@pytest.mark.usefixtures("hosts")
def test_repeated_search_plans_nothing(new_app: NewApp) -> None:
    app = new_app(pool_size=1)
    first = search(app)
    assert len(sessions_statements(app)) == 2, "names with counts, and trees, are prepared at once"
    for _ in range(GENERIC_AFTER + 1):
        assert search(app) == first
    before = sessions_statements(app)
    assert len(before) == 4, "names without counts, and anchors, when repeated"
    assert search(app) == first
    first_names, *repeated = sessions_statements(app)
    assert first_names == before[0]
    for (_, generic, custom), (_, generic_before, custom_before) in zip(repeated, before[1:], strict=True):
        assert (generic, custom) == (generic_before + 1, custom_before)


@pytest.mark.usefixtures("hosts", "one_draw")
def test_search_that_starts_anywhere_is_prepared_once(new_app: NewApp) -> None:
    app = new_app(pool_size=1, randomize_candidates=True)
    found = {search(app, "resources=VCPU:1&limit=2") for _ in range(GENERIC_AFTER + 5)}
    assert len(found) > 1
    assert [sum(executed) for _, *executed in sessions_statements(app)] == [1, 1, 10, 9, 9]


@pytest.mark.usefixtures("hosts", "one_draw")
def test_claims_of_similar_numbers_of_consumers_have_the_same_statements(new_app: NewApp) -> None:
    app = new_app(pool_size=1)
    for count in (3, 4):
        consumers = [consumer(str(uuid4())) for _ in range(count)]
        body = {"request": "resources=VCPU:1", "consumers": consumers}
        assert app.test_client().post("/claims", json=body, headers=ADMIN).status_code == 200
    assert [sum(executed) for _, *executed in sessions_statements(app)] == [1, 1, 2, 1, 1]


@pytest.mark.usefixtures("hosts")
def test_setting_disables_it(new_app: NewApp) -> None:
    app = new_app(pool_size=1, prepared_statements=False)
    expected = search(new_app(pool_size=1))
    assert [search(app) for _ in range(3)] == [expected] * 3
    assert sessions_statements(app) == []


@pytest.mark.usefixtures("hosts")
def test_number_is_bounded(new_app: NewApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MAX_PREPARED", 4)
    app, plain = new_app(pool_size=1), new_app(prepared_statements=False)
    for amount in (1, 2, 3, 9, 1, 2):
        query = f"resources=VCPU:{amount}&limit=3"
        assert [search(app, query) for _ in range(3)] == [search(plain, query)] * 3
    assert len(sessions_statements(app)) == 4


def test_repeated_text_is_prepared_and_others_are_not(preparing: Database) -> None:
    def run(connection: Connection) -> None:
        assert repeat(connection, TEXT) == [("a%", 1)]
        assert repeat(connection, "SELECT 2") == [(2,)]
        assert count_prepared(connection) == 0
        assert repeat(connection, TEXT) == repeat(connection, TEXT) == [("a%", 1)]
        assert count_prepared(connection) == 1

    preparing.read(run)


def test_text_that_is_repeated_too_rarely_is_not_prepared(preparing: Database) -> None:
    def run(connection: Connection) -> None:
        for _ in range(2):
            for number in range(prepared.MAX_RECENT + 1):
                repeat(connection, f"SELECT {number}")
        assert count_prepared(connection) == 0

    preparing.read(run)


def test_long_text_is_not_prepared(preparing: Database) -> None:
    def run(connection: Connection) -> None:
        for _ in range(3):
            repeat(connection, f"SELECT 1{' ' * prepared.MAX_TEXT_LENGTH}")
        assert count_prepared(connection) == 0

    preparing.read(run)


def test_old_plan_is_replaced(preparing: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(connection: Connection) -> None:
        repeat(connection, TEXT)
        repeat(connection, TEXT)
        monkeypatch.setattr(prepared, "MAX_PLAN_SECONDS", -1.0)
        [(_, plans, _)] = connection.execute(PREPARED).all()
        assert repeat(connection, TEXT) == [("a%", 1)]
        [(_, plans_of_new, _)] = connection.execute(PREPARED).all()
        assert plans == plans_of_new == 1

    preparing.read(run)


def test_changed_type_of_a_column_costs_one_attempt(preparing: Database, amounts: Engine) -> None:
    assert preparing.read(fetch_rows, AMOUNTS, {"least": 7}) == [(7, "100%")]
    with amounts.begin() as connection:
        connection.execute(text("ALTER TABLE changing ALTER amount TYPE numeric"))
    with sent_statements(preparing.engine) as statements:
        [(amount, _)] = preparing.read(fetch_rows, AMOUNTS, {"least": 7})
    assert amount == 7
    assert ["PREPARE" in sent for sent, _ in statements] == [False, True]


def test_unknown_statement_costs_one_attempt_and_ends_preparing(
    preparing: Database, amounts: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    assert preparing.read(fetch_rows, AMOUNTS, {"least": 7}) == [(7, "100%")]
    preparing.read(lambda connection: connection.execute(text("DEALLOCATE ALL")))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert preparing.read(fetch_rows, AMOUNTS, {"least": 7}) == [(7, "100%")]
    assert preparing.read(count_prepared) == 0
    assert [record.message for record in caplog.records if "connection pooler" in record.message]


def test_failed_statement_leaves_nothing_prepared(preparing: Database) -> None:
    def fail(connection: Connection) -> None:
        for _ in range(2):
            repeat(connection, "SELECT 1")
        repeat(connection, "SELECT 1 / (SELECT 0)")

    def run(connection: Connection) -> int:
        repeat(connection, TEXT)
        repeat(connection, TEXT)
        return count_prepared(connection)

    with pytest.raises(Exception, match="outside of what can be stored"):
        preparing.read(fail)
    assert preparing.read(run) == 1


def test_error_is_that_of_sqlalchemy(preparing: Database) -> None:
    with preparing.engine.connect() as connection, pytest.raises(DBAPIError) as raised:
        repeat(connection, "SELECT 1 / (SELECT 0) AS ratio_of_both_amounts, 'secret'")
    assert raised.value.orig.pgcode == "22012"  # type: ignore[union-attr]
    assert "secret" not in str(raised.value)


def test_connection_that_is_lost_before_the_rollback_costs_one_attempt(
    preparing: Database, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[Any] = []

    def run(connection: Connection) -> list[Any]:
        [(session,)] = repeat(connection, "SELECT pg_backend_pid()")
        if not lost:
            with engine.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": session})
        lost.append(session)
        return repeat(connection, TEXT) if len(lost) > 1 else []

    assert preparing.read(run) == [("a%", 1)]
    assert len(lost) == 2
    assert caplog.records == []


@pytest.mark.parametrize("delivered", [False, True])
@pytest.mark.usefixtures("hosts")
def test_new_session_prepares_anew(
    new_app: NewApp, postgres_proxy: PostgresProxy, *, delivered: bool
) -> None:
    app = new_app(database_url=postgres_proxy.url, pool_size=1)
    expected = [search(app) for _ in range(3)][-1]
    postgres_proxy.drop_connection_at("EXECUTE", delivered=delivered)
    del postgres_proxy.statements[:]
    assert search(app) == expected
    assert [sent.startswith("PREPARE") for sent in postgres_proxy.statements].count(True) == 2
    assert len(sessions_statements(app)) == 2


def test_search_follows_changes_of_names(new_app: NewApp, load_cloud: LoadCloud) -> None:
    app = new_app(pool_size=1)
    client = app.test_client()
    query = "resources=VCPU:1&required=CUSTOM_NEW&limit=3"
    for _ in range(2):
        response = client.get(f"/allocation_candidates?{query}", headers=ADMIN)
        assert response.status_code == 400
        assert client.put("/traits/CUSTOM_NEW", headers=ADMIN).status_code == 201
        load_cloud(read(f"{uuid4().hex}{{VCPU8}}#CUSTOM_NEW"))
        for _ in range(3):
            assert '"CUSTOM_NEW"' in search(app, query)
        for each in client.get("/resource_providers", headers=ADMIN).json["resource_providers"]:  # type: ignore[index]
            assert client.delete(f"/resource_providers/{each['uuid']}", headers=ADMIN).status_code == 204
        assert '"allocation_requests":[]' in search(app, query)
        assert client.delete("/traits/CUSTOM_NEW", headers=ADMIN).status_code == 204
