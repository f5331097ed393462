"""Several hosts: a primary that is demoted or frozen, and a standby that is promoted."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import Connection, create_engine, text

from placement_svc.app import create_app
from placement_svc.config import Settings
from placement_svc.db.connections.engine import Database, connect
from placement_svc.domain.errors import OutcomeUnknown, Unavailable
from tests.conftest import ADMIN
from tests.support.failover import FailoverPair, failover_pair
from tests.support.service import wait_until

PROVIDER, CONSUMER = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"
CLAIM = {
    "allocations": {PROVIDER: {"resources": {"VCPU": 1}}},
    "project_id": "p",
    "user_id": "u",
    "consumer_generation": None,
    "consumer_type": "INSTANCE",
}

STATEMENT_SECONDS = 300
"""How long a statement on the frozen primary would run; the tests allow a fifth of it."""


@contextmanager
def running_pair(directory: Path) -> Iterator[FailoverPair]:
    directory.mkdir(mode=0o711)
    with failover_pair(directory) as running:
        running.create_schema()
        yield running


@pytest.fixture
def pair(passable_dir: Path) -> Iterator[FailoverPair]:
    """A primary and a standby that the test changes."""
    with running_pair(passable_dir / f"pair-{time.monotonic_ns()}") as running:
        yield running


@pytest.fixture(scope="module")
def healthy_pair(passable_dir: Path) -> Iterator[FailoverPair]:
    """A primary and a standby that tests do not change."""
    with running_pair(passable_dir / "healthy") as running:
        yield running


def add_trait(connection: Connection, name: str) -> None:
    connection.execute(text("INSERT INTO traits (name) VALUES (:name)"), {"name": name})


def demote(pair: FailoverPair) -> None:
    """Make the primary refuse writes in all sessions, as a demoted one does, and promote the standby.

    The standby has replayed all that the primary has written: replication is asynchronous.
    """
    pair.wait_for_replay()
    pair.promote()
    pair.configure_primary("default_transaction_read_only = on")


def test_writes_go_to_the_new_primary_after_a_demotion(pair: FailoverPair) -> None:
    database = Database(connect(pair.url))
    database.write(add_trait, "CUSTOM_BEFORE")
    demote(pair)
    database.write(add_trait, "CUSTOM_AFTER")
    standby = create_engine(connect(pair.standby_url).url)
    with standby.connect() as connection:
        assert connection.scalar(text("SELECT 1 FROM traits WHERE name = 'CUSTOM_AFTER'")) == 1
    standby.dispose()
    database.engine.dispose()


def test_claims_go_to_the_new_primary_after_a_demotion(pair: FailoverPair) -> None:
    client = create_app(Settings(database_url=pair.url)).test_client()
    host = {"name": "host", "uuid": PROVIDER}
    assert client.post("/resource_providers", json=host, headers=ADMIN).status_code == 200
    inventory = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
    path = f"/resource_providers/{PROVIDER}/inventories"
    assert client.put(path, json=inventory, headers=ADMIN).status_code == 200
    demote(pair)
    response = client.put(f"/allocations/{CONSUMER}", json=CLAIM, headers=ADMIN)
    assert response.status_code == 204
    assert list(client.get(f"/allocations/{CONSUMER}", headers=ADMIN).json["allocations"]) == [PROVIDER]


def test_frozen_primary_blocks_no_thread(pair: FailoverPair) -> None:
    database = Database(connect(pair.url))
    database.prepare()
    errors: list[Exception] = []

    def sleep_in_sql(connection: Connection) -> None:
        connection.execute(text(f"SELECT pg_sleep({STATEMENT_SECONDS})"))

    def run() -> None:
        try:
            database.write(sleep_in_sql)
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    wait_until(lambda: pair.on_primary(sleeping) == len(threads))
    started = time.monotonic()
    pair.freeze_primary()
    for thread in threads:
        thread.join(STATEMENT_SECONDS)
    assert time.monotonic() - started < STATEMENT_SECONDS / 5
    assert [type(error) for error in errors] == [Unavailable] * 3
    pair.promote()
    database.write(add_trait, "CUSTOM_AFTER")
    database.engine.dispose()


def test_statement_of_a_server_that_responds_runs_on(healthy_pair: FailoverPair) -> None:
    database = Database(connect(healthy_pair.url))
    assert database.write(lambda connection: connection.scalar(text("SELECT 1 FROM pg_sleep(6)"))) == 1
    database.engine.dispose()


def test_commit_on_a_frozen_primary_has_an_unknown_outcome(pair: FailoverPair) -> None:
    database = Database(connect(pair.url))
    database.prepare()

    def change(connection: Connection) -> None:
        add_trait(connection, "CUSTOM_UNKNOWN")
        pair.freeze_primary()

    with pytest.raises(OutcomeUnknown):
        database.write(change)
    database.engine.dispose()


def test_commit_ends_on_a_primary_that_is_replaced(pair: FailoverPair) -> None:
    database = Database(connect(pair.url))
    database.prepare()
    # As when all standbys follow another primary.
    pair.let_commits_wait()
    pair.promote()
    errors: list[Exception] = []

    def run() -> None:
        try:
            database.write(add_trait, "CUSTOM_UNKNOWN")
        except Exception as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(STATEMENT_SECONDS)
    assert [type(error) for error in errors] == [OutcomeUnknown]
    database.write(add_trait, "CUSTOM_AFTER")
    assert pair.on_standby("SELECT count(*) FROM traits WHERE name = 'CUSTOM_AFTER'") == 1
    database.engine.dispose()


def test_write_on_a_standby_is_unavailable(healthy_pair: FailoverPair) -> None:
    client = create_app(Settings(database_url=healthy_pair.standby_url)).test_client()
    assert client.get("/traits", headers=ADMIN).status_code == 200
    for method, path, body in (
        ("PUT", "/traits/CUSTOM_A", None),
        ("PUT", "/resource_classes/CUSTOM_A", None),
        ("POST", "/resource_providers", {"name": "host"}),
        ("PUT", f"/allocations/{CONSUMER}", CLAIM),
    ):
        assert client.get("/traits", headers=ADMIN).status_code == 200
        response = client.open(path, method=method, json=body, headers=ADMIN)
        assert response.status_code == 503, response.text
        assert "read-only" in response.text
    ready = client.get("/readyz")
    assert (ready.status_code, "read-only" in ready.text) == (503, True)


def test_a_service_for_reads_is_ready_on_a_standby(healthy_pair: FailoverPair) -> None:
    url = f"{healthy_pair.standby_url}&target_session_attrs=standby"
    client = create_app(Settings(database_url=url)).test_client()
    assert client.get("/readyz").status_code == 200
