"""Responses and retries when the database is missing, slow, lost, or blocked by a concurrent transaction."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Connection, Engine, create_engine, make_url, text
from sqlalchemy.pool import NullPool
from werkzeug.test import TestResponse

from placement_svc.db import imports, providers, revisions, schema
from placement_svc.db.claims import procedures
from placement_svc.db.connections.engine import MAX_ATTEMPTS, Database, connect
from placement_svc.domain.errors import Conflict, OutcomeUnknown, Unavailable
from placement_svc.domain.records import TraitRecord
from tests.conftest import ADMIN, Api, NewApp
from tests.support.postgres_proxy import PostgresProxy
from tests.support.service import wait_until

UNREACHABLE = "The database cannot be reached or did not answer in time."
REFUSED = "The database refuses connections; the log of the service has the reason."


@dataclass(frozen=True)
class Target:
    """A database that may exist or not."""

    url: str
    admin: Engine

    def _run(self, sql: str) -> None:
        with self.admin.connect() as connection:
            connection.execute(text(sql))

    def create(self) -> None:
        self._run(f"CREATE DATABASE {make_url(self.url).database}")

    def drop(self) -> None:
        self._run(f"DROP DATABASE IF EXISTS {make_url(self.url).database} WITH (FORCE)")

    def upgrade(self) -> None:
        engine = create_engine(self.url, poolclass=NullPool)
        schema.upgrade(engine)

    def set_read_only(self, value: str) -> None:
        """Let new sessions refuse writes, or accept them."""
        database = make_url(self.url).database
        self._run(f"ALTER DATABASE {database} SET default_transaction_read_only = {value}")


@pytest.fixture
def target(server_url: str) -> Iterator[Target]:
    """A database that does not exist yet."""
    url = make_url(server_url).set(database=f"placement_test_{uuid4().hex}")
    admin = create_engine(server_url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    target = Target(url.render_as_string(hide_password=False), admin)
    yield target
    target.drop()


@pytest.fixture
def served(target: Target, new_app: NewApp) -> Flask:
    """The application on that database."""
    return new_app(database_url=target.url)


def get(app: Flask, path: str) -> TestResponse:
    return app.test_client().get(path, headers=ADMIN)


def detail(response: TestResponse) -> str:
    assert response.status_code == 503
    return response.json["errors"][0]["detail"]  # type: ignore[index]


def test_response_without_a_database_has_the_error_format(served: Flask) -> None:
    response = get(served, "/resource_providers")
    assert response.status_code == 503
    assert response.content_type == "application/json"
    assert response.headers["openstack-api-version"] == "placement 1.39"
    assert response.json == {
        "errors": [
            {
                "status": 503,
                "title": "Service Unavailable",
                "detail": f"The service cannot answer at the moment.\n\n {REFUSED}  ",
                "code": "placement.undefined_code",
                "request_id": response.headers["x-openstack-request-id"],
            }
        ]
    }


def test_unavailable_has_a_retry_after_header(served: Flask) -> None:
    assert get(served, "/resource_providers").headers["Retry-After"] == "1"


@pytest.fixture
def limited_role(target: Target) -> Iterator[str]:
    """A role that may have no connection."""
    name = f"limited_{uuid4().hex}"
    target._run(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 0")
    yield name
    target._run(f"DROP ROLE {name}")


def app_of_role(new_app: NewApp, database_url: str, role: str) -> Flask:
    url = make_url(database_url).set(username=role)
    return new_app(database_url=url.render_as_string(hide_password=False))


def test_refused_connection_is_told_without_its_reason(
    new_app: NewApp, database_url: str, limited_role: str, caplog: pytest.LogCaptureFixture
) -> None:
    for role, reason in ((limited_role, "too many connections"), ("unknown", "does not exist")):
        refused = detail(get(app_of_role(new_app, database_url, role), "/resource_providers"))
        assert REFUSED in refused
        assert role not in refused
        assert reason in caplog.text


def test_server_that_does_not_listen_is_unreachable(new_app: NewApp) -> None:
    app = new_app(database_url="postgresql://nobody@127.0.0.1:1/none")
    assert UNREACHABLE in detail(get(app, "/resource_providers"))


def test_root_document_needs_no_database(served: Flask) -> None:
    assert get(served, "/").status_code == 200


def test_database_created_after_the_start_is_used(target: Target, served: Flask) -> None:
    assert REFUSED in detail(get(served, "/resource_providers"))
    target.create()
    assert "run `placement-svc db upgrade`" in detail(get(served, "/resource_providers"))
    target.upgrade()
    assert get(served, "/resource_providers").json == {"resource_providers": []}
    assert "HW_CPU_X86_AVX" in get(served, "/traits").json["traits"]  # type: ignore[index]


def test_claim_on_an_older_schema_asks_for_an_upgrade(target: Target, served: Flask) -> None:
    target.create()
    target.upgrade()
    with create_engine(target.url, poolclass=NullPool).begin() as connection:
        connection.execute(text("DROP PROCEDURE claim"))
    response = served.test_client().put(f"/allocations/{uuid4()}", json=claim(str(uuid4())), headers=ADMIN)
    assert "an older schema: run `placement-svc db upgrade`" in detail(response)


def test_service_resumes_when_the_database_is_created_again(target: Target, served: Flask) -> None:
    target.create()
    target.upgrade()
    assert get(served, "/resource_providers").status_code == 200
    target.drop()
    assert REFUSED in detail(get(served, "/resource_providers"))
    target.create()
    assert "run `placement-svc db upgrade`" in detail(get(served, "/resource_providers"))
    target.upgrade()
    assert get(served, "/resource_providers").status_code == 200


def test_new_database_has_the_standard_names_at_once(target: Target, served: Flask) -> None:
    target.create()
    target.upgrade()
    assert get(served, "/allocation_candidates?resources=VCPU:1").status_code == 200
    target.drop()
    target.create()
    target.upgrade()
    assert get(served, "/allocation_candidates?resources=VCPU:1").status_code == 200
    assert "HW_CPU_X86_AVX" in get(served, "/traits").json["traits"]  # type: ignore[index]


def terminate_connections(engine: Engine) -> int:
    """Terminate all connections but this one, and return their number."""
    with engine.connect() as connection:
        return connection.scalar(  # type: ignore[no-any-return]
            text("""
                SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()
                   AND backend_type = 'client backend'
            """)
        )


def test_terminated_idle_connections_are_replaced(api: Api, engine: Engine) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: api("GET", "/resource_providers"), range(8)))
    assert terminate_connections(engine)
    assert [api("GET", "/resource_providers").status_code for _ in range(5)] == [200] * 5


@pytest.fixture
def host(api: Api) -> str:
    """A provider with 8 VCPU."""
    uuid = str(uuid4())
    assert api("POST", "/resource_providers", {"name": "host", "uuid": uuid}).status_code == 200
    inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
    assert api("PUT", f"/resource_providers/{uuid}/inventories", inventories).status_code == 200
    return uuid


def claim(host: str) -> dict[str, Any]:
    return {
        "allocations": {host: {"resources": {"VCPU": 1}}},
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
        "project_id": "project",
        "user_id": "user",
    }


def test_claim_never_uses_a_terminated_connection(api: Api, engine: Engine, host: str) -> None:
    wanted = claim(host)
    # A claim without a generation is never retried.
    del wanted["consumer_generation"], wanted["consumer_type"]
    for _ in range(3):
        assert terminate_connections(engine)
        assert api("PUT", f"/allocations/{uuid4()}", wanted, version="1.12").status_code == 204


def terminate_waiting(engine: Engine) -> None:
    """Terminate the connection that waits for a lock, as soon as there is one."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        terminate = text("""
            SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'
        """)
        wait_until(lambda: connection.scalar(terminate))


@pytest.mark.parametrize("version", ["1.12", "1.39"])
def test_claim_on_a_connection_terminated_before_the_commit_is_retried(
    api: Api, engine: Engine, host: str, version: str
) -> None:
    path, wanted = f"/allocations/{uuid4()}", claim(host)
    if version == "1.12":
        del wanted["consumer_generation"], wanted["consumer_type"]
    with ThreadPoolExecutor(1) as threads:
        with engine.begin() as other:
            other.execute(text("SELECT FROM resource_providers FOR UPDATE"))
            waiting = threads.submit(api, "PUT", path, wanted, version=version)
            terminate_waiting(engine)
        assert waiting.result().status_code == 204
    assert api("GET", path).json["consumer_generation"] == 1  # type: ignore[index]


def test_release_on_a_connection_terminated_before_the_commit_is_retried(
    api: Api, engine: Engine, host: str
) -> None:
    path = f"/allocations/{uuid4()}"
    assert api("PUT", path, claim(host)).status_code == 204
    with ThreadPoolExecutor(1) as threads:
        with engine.begin() as other:
            other.execute(text("SELECT FROM consumers FOR UPDATE"))
            waiting = threads.submit(api, "DELETE", path)
            terminate_waiting(engine)
        assert waiting.result().status_code == 204
    assert api("GET", path).json == {"allocations": {}}


def create(connection: Connection, name: str = "new") -> None:
    providers.create(connection, str(uuid4()), name)


def names(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(text("SELECT name FROM resource_providers ORDER BY name")))


def test_transaction_whose_connection_is_terminated_before_the_commit_is_retried(
    database: Database, engine: Engine
) -> None:
    attempts: list[str] = []

    def change(connection: Connection) -> None:
        attempts.append(f"attempt {len(attempts) + 1}")
        create(connection, attempts[-1])
        if len(attempts) == 1:
            pid = connection.scalar(text("SELECT pg_backend_pid()"))
            with engine.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})

    database.write(change)
    assert names(engine) == ["attempt 2"]


@pytest.mark.usefixtures("database")
def test_transaction_whose_commit_gets_no_response_has_an_unknown_outcome(
    postgres_proxy: PostgresProxy, engine: Engine
) -> None:
    proxied = Database(connect(postgres_proxy.url))
    proxied.prepare()
    for delivered in (False, True):
        postgres_proxy.drop_connection_at("COMMIT", delivered=delivered)
        with pytest.raises(OutcomeUnknown):
            proxied.write(create)
        assert names(engine) == ["new"] * delivered
    proxied.engine.dispose()


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("delivered", [False, True])
def test_import_whose_commit_gets_no_response_has_an_unknown_outcome(
    postgres_proxy: PostgresProxy, engine: Engine, delivered: bool
) -> None:
    proxied = Database(connect(postgres_proxy.url))
    proxied.prepare()
    postgres_proxy.drop_connection_at("COMMIT", delivered=delivered)
    with pytest.raises(OutcomeUnknown):
        imports.load(proxied, [(1, TraitRecord("CUSTOM_IMPORTED"))], allow_overcommitted=False)
    with engine.connect() as connection:
        imported = text("SELECT count(*) FROM traits WHERE name = 'CUSTOM_IMPORTED'")
        assert connection.scalar(imported) == delivered
    proxied.engine.dispose()


def test_migration_whose_commit_gets_no_response_has_an_unknown_outcome(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    direct = connect(url)
    with PostgresProxy(url) as proxy:
        proxied = connect(proxy.url)
        for migrate, revision in (
            (schema.upgrade, revisions.newest()),
            (partial(schema.downgrade, revision="base"), None),
        ):
            proxy.drop_connection_at("COMMIT", delivered=True)
            with pytest.raises(OutcomeUnknown):
                migrate(proxied)
            assert revisions.current(direct) == revision
        proxied.dispose()
    direct.dispose()


def test_exception_rolls_the_transaction_back(database: Database, engine: Engine) -> None:
    def change(connection: Connection) -> None:
        create(connection)
        raise Conflict("no")

    with pytest.raises(Conflict, match="no"):
        database.write(change)
    assert names(engine) == []


def test_reads_see_one_snapshot(database: Database) -> None:
    def query(connection: Connection) -> tuple[Any, Any]:
        count = text("SELECT count(*) FROM resource_providers")
        before = connection.scalar(count)
        database.write(create)
        return before, connection.scalar(count)

    assert database.read(query) == (0, 0)


def test_deadlock_is_retried(database: Database, engine: Engine) -> None:
    for name in ("a", "b"):
        database.write(create, name)
    both_hold_one = Barrier(2)
    attempts: list[str] = []

    def change(connection: Connection, *order: str) -> None:
        first = "".join(order) not in attempts
        attempts.append("".join(order))
        for name in order:
            update = "UPDATE resource_providers SET generation = generation + 1 WHERE name = :name"
            connection.execute(text(update), {"name": name})
            if first and name == order[0]:
                both_hold_one.wait(10)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda order: database.write(change, *order), ["ab", "ba"]))
    assert len(attempts) == 3
    with engine.connect() as connection:
        found = connection.scalars(text("SELECT generation FROM resource_providers")).all()
    assert found == [2, 2]


def conflicting_change(engine: Engine, times: int) -> tuple[Callable[[Connection], int], list[int]]:
    """Return a change with that many serialization failures, and the list of its attempts."""
    attempts: list[int] = []
    increment_generations = text("UPDATE resource_providers SET generation = generation + 1")

    def change(connection: Connection) -> int:
        attempts.append(len(attempts) + 1)
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
        connection.execute(text("SELECT FROM resource_providers"))
        create(connection, f"attempt {len(attempts)}")
        if len(attempts) <= times:
            with engine.begin() as other:
                other.execute(increment_generations)
        connection.execute(increment_generations)
        return len(attempts)

    return change, attempts


def test_serialization_failure_is_retried(database: Database, engine: Engine) -> None:
    database.write(create, "a")
    change, _ = conflicting_change(engine, times=MAX_ATTEMPTS - 1)
    assert database.write(change) == MAX_ATTEMPTS
    assert names(engine) == ["a", f"attempt {MAX_ATTEMPTS}"]


def test_write_fails_after_the_last_attempt(database: Database, engine: Engine) -> None:
    database.write(create, "a")
    change, attempts = conflicting_change(engine, times=MAX_ATTEMPTS)
    with pytest.raises(Unavailable, match="in the way again and again"):
        database.write(change)
    assert len(attempts) == MAX_ATTEMPTS
    assert names(engine) == ["a"]


@pytest.fixture
def app_with_options(database_url: str, app: Flask, new_app: NewApp) -> Callable[..., Flask]:
    """A function that creates an application with the given session options."""

    def app_with_options(options: str, pool_size: int = 1) -> Flask:
        url = make_url(database_url).update_query_dict({"options": options})
        return new_app(database_url=url.render_as_string(hide_password=False), pool_size=pool_size)

    return app_with_options


def test_statement_timeout_is_unavailable(
    app_with_options: Callable[..., Flask], engine: Engine, host: str
) -> None:
    app = app_with_options("-c statement_timeout=1s")
    slow = app.test_client()
    path = f"/allocations/{uuid4()}"
    with engine.begin() as other:
        other.execute(text("SELECT FROM resource_providers FOR UPDATE"))
        refused = detail(slow.put(path, json=claim(host), headers=ADMIN))
        assert "The database took too long for a statement of this request" in refused
    # The only session of the pool is used again, and may be slow now.
    with app.extensions["database"].engine.begin() as session:
        session.execute(text("SET statement_timeout = 0"))
    assert slow.put(path, json=claim(host), headers=ADMIN).status_code == 204


def test_pool_timeout_is_unavailable(
    app_with_options: Callable[..., Flask], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_with_options("-c jit=off")
    pool = app.extensions["database"].engine.pool
    monkeypatch.setattr(pool, "_timeout", 0.1)
    taken = pool.connect()
    assert "All database connections of this worker are in use." in detail(get(app, "/resource_providers"))
    taken.close()
    assert get(app, "/resource_providers").status_code == 200


def test_write_to_a_read_only_database_is_unavailable(
    app_with_options: Callable[..., Flask], host: str
) -> None:
    app = app_with_options("-c default_transaction_read_only=on")
    response = app.test_client().put(f"/allocations/{uuid4()}", json=claim(host), headers=ADMIN)
    assert "The database is read-only at the moment." in detail(response)
    assert get(app, f"/resource_providers/{host}").status_code == 200


@pytest.fixture
def read_only(target: Target, served: Flask) -> Flask:
    """An application whose pool holds three sessions that are read-only, on a database that is no longer."""
    target.create()
    target.upgrade()
    assert get(served, "/readyz").status_code == 200
    pool: Any = served.extensions["database"].engine.pool
    pool.dispose()
    target.set_read_only("on")
    for connection in [pool.connect() for _ in range(3)]:
        connection.close()
    target.set_read_only("off")
    return served


def put_trait(app: Flask) -> TestResponse:
    return app.test_client().put("/traits/CUSTOM_A", headers=ADMIN)


def put_claim(app: Flask) -> TestResponse:
    return app.test_client().put(f"/allocations/{uuid4()}", json=claim(str(uuid4())), headers=ADMIN)


def get_readiness(app: Flask) -> TestResponse:
    return get(app, "/readyz")


@pytest.mark.parametrize(("send", "status"), [(put_trait, 201), (put_claim, 400), (get_readiness, 200)])
def test_sessions_of_a_read_only_time_are_discarded(
    read_only: Flask, send: Callable[[Flask], TestResponse], status: int
) -> None:
    """The claim names no existing provider, which is known only once it may write."""
    read_only.extensions["database"]._is_prepared = True
    response = send(read_only)
    assert (response.status_code, "read-only" in response.text) == (503, True)
    assert send(read_only).status_code == status
    for path in ("/traits", "/readyz"):
        assert get(read_only, path).status_code == 200


def test_write_to_a_single_host_that_is_read_only_is_not_retried(
    app_with_options: Callable[..., Flask],
) -> None:
    attempts: list[int] = []

    def change(connection: Connection) -> None:
        attempts.append(len(attempts) + 1)
        create(connection)

    database = app_with_options("-c default_transaction_read_only=on").extensions["database"]
    database._is_prepared = True
    with pytest.raises(Unavailable, match="read-only"):
        database.write(change)
    assert attempts == [1]


def test_idle_transaction_timeout_is_unavailable(
    app_with_options: Callable[..., Flask], engine: Engine
) -> None:
    def has_session(pid: int) -> bool:
        with engine.connect() as other:
            found = text("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = :pid)")
            return bool(other.scalar(found, {"pid": pid}))

    def pause(connection: Connection) -> None:
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
        create(connection)
        wait_until(lambda: not has_session(pid))
        create(connection, "later")

    app = app_with_options("-c idle_in_transaction_session_timeout=100ms")
    with pytest.raises(Unavailable):
        app.extensions["database"].write(pause)
    # On a busy machine, a read too may be idle for longer than the timeout.
    wait_until(lambda: get(app, "/resource_providers").status_code == 200)
    assert names(engine) == []


def test_sessions_have_timeouts(database: Database) -> None:
    with database.engine.connect() as connection:
        for setting, value in {
            "statement_timeout": "1min",
            "idle_in_transaction_session_timeout": "1min",
            "lock_timeout": "10s",
            "jit": "off",
        }.items():
            assert connection.scalar(text(f"SHOW {setting}")) == value


@pytest.fixture
def serializable(database_url: str, engine: Engine) -> Iterator[Database]:
    """A database whose default isolation level is not that of the service, with a single connection."""
    name = make_url(database_url).database
    setting = f"ALTER DATABASE {name} {{}} default_transaction_isolation"
    with engine.begin() as connection:
        connection.execute(text(f"{setting.format('SET')} = 'serializable'"))
    connected = connect(database_url, pool_size=1)
    yield Database(connected)
    connected.dispose()
    with engine.begin() as connection:
        connection.execute(text(setting.format("RESET")))


def isolation(connection: Connection) -> tuple[Any, Any]:
    """Return the isolation level of the transaction, and whether it is read-only."""
    return (
        connection.scalar(text("SHOW transaction_isolation")),
        connection.scalar(text("SHOW transaction_read_only")),
    )


def test_writes_are_read_committed_also_after_a_read(serializable: Database) -> None:
    assert serializable.write(isolation) == ("read committed", "off")
    assert serializable.read(isolation) == ("repeatable read", "on")
    assert serializable.write(isolation) == ("read committed", "off")


def test_calls_of_procedures_are_read_committed_also_after_a_read(serializable: Database) -> None:
    shown = "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')"
    # Every call of a stored procedure is sent by this function.
    assert procedures._execute(serializable, shown, {}) == ("read committed", "off")
    serializable.read(isolation)
    assert procedures._execute(serializable, shown, {}) == ("read committed", "off")


def test_options_of_the_url_override_the_defaults(database_url: str) -> None:
    url = make_url(database_url).update_query_dict({"options": "-c statement_timeout=5s"})
    engine = connect(url)
    with engine.connect() as connection:
        assert connection.scalar(text("SHOW statement_timeout")) == "5s"
        assert connection.scalar(text("SHOW lock_timeout")) == "10s"
    engine.dispose()


def test_url_needs_no_driver(database_url: str) -> None:
    engine = connect(make_url(database_url).set(drivername="postgresql"))
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    engine.dispose()


@pytest.mark.parametrize(
    "statement",
    ["select pg_catalog.version()", "select current_schema()", "show standard_conforming_strings"],
)
def test_a_first_connection_that_is_lost_at_its_start_is_replaced(
    postgres_proxy: PostgresProxy, statement: str
) -> None:
    database = Database(connect(postgres_proxy.url))
    postgres_proxy.drop_connection_at(statement, delivered=False)
    assert database.read(lambda connection: connection.scalar(text("SELECT 1"))) == 1
    assert postgres_proxy.statements.count(statement) == 2
    database.engine.dispose()
