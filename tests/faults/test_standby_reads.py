"""Reads on standbys: which requests use one, and what happens when it lags, is lost or cancels a read."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Connection, event, make_url, text
from werkzeug.test import TestResponse

from placement_svc.app import create_app
from placement_svc.config import Settings
from placement_svc.db.connections import standbys
from placement_svc.db.connections.engine import connect
from placement_svc.db.connections.primary_watch import PrimaryWatch
from placement_svc.db.connections.urls import each_host
from placement_svc.domain.errors import Unavailable
from tests.conftest import ADMIN
from tests.support.failover import (
    COMMIT,
    REPLAY_AGE,
    FailoverPair,
    execute,
    failover_pair,
    start,
    stop,
    url_of,
)
from tests.support.postgres_proxy import PostgresProxy
from tests.support.service import TIMEOUT, wait_until
from tests.support.versions import EXTENDED_HEADER

HEADERS = ADMIN | EXTENDED_HEADER
PROVIDER, CONSUMER = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"
NEW_PROVIDER = "33333333-0000-4000-8000-000000000000"
CLAIM = {
    "allocations": {PROVIDER: {"resources": {"VCPU": 1}}},
    "project_id": "p",
    "user_id": "u",
    "consumer_generation": None,
    "consumer_type": "INSTANCE",
}
CANDIDATES = "/allocation_candidates?resources=VCPU:1"
STALE_PATHS = (
    CANDIDATES,
    "/allocation_candidates/explanation?resources=VCPU:1&resources_A=CUSTOM_GOLD:1",
    "/allocation_candidates/capacity?resources=VCPU:1",
    "/allocation_candidates/empty",
    "/resource_providers?required=CUSTOM_FAST",
    "/resource_providers?include=inventories,usages,traits,aggregates,allocations",
    "/allocations?rp_uuid=in:" + PROVIDER,
    "/allocations?consumer_uuid=in:" + CONSUMER,
    "/traits?name=startswith:CUSTOM",
    "/usages?project_id=p",
    "/capacity?group_by=root",
    "/capacity?resources=VCPU:1",
    "/consumers?include=allocations",
    "/projects?sort_by=-VCPU",
)
CONSOLE_PATHS = (
    "",
    "/map",
    "/hosts",
    f"/hosts/{PROVIDER}",
    "/ask?resources=VCPU:1",
    "/consumers",
    "/projects",
)
MAX_LAG = 0.5


@contextmanager
def running_pair(directory: Path) -> Iterator[FailoverPair]:
    """Run a primary with a host, a custom trait and class, and a claim, and its standby."""
    directory.mkdir(mode=0o711)
    with failover_pair(directory) as pair:
        pair.create_schema()
        client = create_app(Settings(database_url=pair.primary_url)).test_client()
        inventory = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
        for method, path, body in (
            ("PUT", "/traits/CUSTOM_FAST", None),
            ("PUT", "/resource_classes/CUSTOM_GOLD", None),
            ("POST", "/resource_providers", {"name": "host", "uuid": PROVIDER}),
            ("PUT", f"/resource_providers/{PROVIDER}/inventories", inventory),
            ("PUT", f"/allocations/{CONSUMER}", CLAIM),
        ):
            assert client.open(path, method=method, json=body, headers=ADMIN).status_code < 300, path
        pair.wait_for_replay()
        yield pair


@pytest.fixture(scope="module")
def pair(passable_dir: Path) -> Iterator[FailoverPair]:
    """A primary and a standby; a test restores what it changes."""
    with running_pair(passable_dir / "pair") as running:
        yield running


def new_app(pair: FailoverPair, **settings: Any) -> Flask:
    """Create an application with the standby for reads, whose data is new.

    Before the application has reached the primary, it judges the standby by its last transaction.
    """
    pair.on_primary(COMMIT)
    pair.wait_for_replay()
    return create_app(Settings(**{"database_url": pair.primary_url, "read_url": pair.standby_url} | settings))


@pytest.fixture
def app(pair: FailoverPair) -> Iterator[Flask]:
    """An application that has not served a request, with the standby for reads."""
    app = new_app(pair)
    yield app
    # Otherwise, it would store the searches of this test that found nothing during the next test.
    app.extensions["empty_answers"].stop()


def stale(path: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}stale=ok"


def get(app: Flask, path: str, headers: dict[str, str] = HEADERS) -> TestResponse:
    return app.test_client().get(path, headers=headers, buffered=True)


def metric(app: Flask, name: str, **labels: str) -> float | None:
    """Return the value of a metric with these labels, None if it has none."""
    for family in text_string_to_metric_families(get(app, "/metrics").text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


def reads(app: Flask, role: str) -> float:
    return metric(app, "placement_stale_reads_total", role=role) or 0


def role_of(app: Flask, request: Callable[[], Any]) -> str:
    """Return the role of the server that runs the reads of a request."""
    before = {role: reads(app, role) for role in ("primary", "standby")}
    request()
    [role] = [role for role in before if reads(app, role) > before[role]]
    return role


@pytest.mark.parametrize("path", STALE_PATHS)
def test_standby_answers_a_request_with_the_key(app: Flask, path: str) -> None:
    expected = get(app, path)
    assert expected.status_code == 200
    assert (reads(app, "primary"), reads(app, "standby")) == (0, 0)
    response = get(app, stale(path))
    assert response.status_code == 200
    assert response.json == expected.json
    assert reads(app, "primary") == 0
    assert reads(app, "standby") > 0


@pytest.mark.parametrize("path", CONSOLE_PATHS)
def test_standby_answers_the_console(app: Flask, path: str) -> None:
    assert get(app, f"/console{path}").status_code == 200
    assert reads(app, "primary") == 0
    assert reads(app, "standby") > 0


def test_response_may_be_stale(app: Flask, pair: FailoverPair) -> None:
    assert role_of(app, lambda: get(app, stale("/traits"))) == "standby"
    with pair.paused_replay():
        app.extensions["database"].write(add_trait, "CUSTOM_LATER")
        assert get(app, "/traits?name=in:CUSTOM_LATER").json == {"traits": ["CUSTOM_LATER"]}
        path = stale("/traits?name=in:CUSTOM_LATER")
        response: dict[str, Any] = {}
        assert role_of(app, lambda: response.update(get(app, path).json)) == "standby"
        assert response == {"traits": []}


def add_trait(connection: Connection, name: str) -> None:
    connection.execute(text("INSERT INTO traits (name) VALUES (:name)"), {"name": name})


def test_primary_answers_for_a_name_that_the_standby_does_not_know(app: Flask, pair: FailoverPair) -> None:
    with pair.paused_replay():
        app.extensions["database"].write(add_trait, "CUSTOM_NEW")
        host = {"name": "new host", "uuid": NEW_PROVIDER}
        assert app.test_client().post("/resource_providers", json=host, headers=ADMIN).status_code == 200
        for path in (
            f"{CANDIDATES}&required=CUSTOM_NEW",
            "/resource_providers?required=CUSTOM_NEW",
            f"/allocation_candidates/capacity?resources=VCPU:1&without={NEW_PROVIDER}",
            f"/allocation_candidates/explanation?resources=VCPU:1&root={NEW_PROVIDER}",
        ):
            assert role_of(app, partial(get, app, stale(path))) == "primary", path
            assert get(app, stale(path)).status_code == 200, path
    response = get(app, stale("/resource_providers?required=CUSTOM_NOWHERE"))
    assert response.status_code == 400
    assert "No such trait" in response.text


def test_standby_that_lags_too_much_is_not_used(pair: FailoverPair) -> None:
    app = new_app(pair, read_max_lag=MAX_LAG)
    server = standbys_of(app)[0].name
    wait_until(lambda: role_of(app, lambda: get(app, stale(CANDIDATES))) == "standby")
    with pair.paused_replay():
        pair.on_primary("INSERT INTO traits (name) VALUES ('CUSTOM_LAG')")
        wait_until(lambda: role_of(app, lambda: get(app, stale(CANDIDATES))) == "primary")
        assert metric(app, "placement_standby_used", server=server) == 0
        lag = metric(app, "placement_standby_lag_seconds", server=server)
        assert lag is not None
        assert lag > MAX_LAG
        assert f"standby {server}: not used, lags more than {MAX_LAG:g} s\n" in get(app, "/readyz").text
        assert get(app, "/readyz").status_code == 200
    wait_until(lambda: role_of(app, lambda: get(app, stale(CANDIDATES))) == "standby")
    wait_until(lambda: metric(app, "placement_standby_used", server=server) == 1)


def standbys_of(app: Flask) -> list[standbys.Standby]:
    found: list[standbys.Standby] = app.extensions["standby_reads"].standbys
    return found


def test_primary_answers_while_the_standby_is_down(app: Flask, pair: FailoverPair) -> None:
    [standby] = standbys_of(app)
    assert role_of(app, lambda: get(app, stale(CANDIDATES))) == "standby"
    pair.stop_standby()
    try:
        for _ in range(3):
            assert role_of(app, lambda: get(app, stale(CANDIDATES))) == "primary"
            assert get(app, stale(CANDIDATES)).status_code == 200
        assert f"standby {standby.name}: not used, does not respond\n" in get(app, "/readyz").text
    finally:
        pair.start_standby()
    wait_until(lambda: role_of(app, lambda: get(app, stale(CANDIDATES))) == "standby")
    wait_until(lambda: f"standby {standby.name}: used, 0.0 s behind" in get(app, "/readyz").text)


def test_ready_says_that_a_standby_is_not_examined_and_examines_it(app: Flask) -> None:
    [standby] = standbys_of(app)
    assert f"standby {standby.name}: not examined yet\n" in get(app, "/readyz").text
    wait_until(lambda: f"standby {standby.name}: used, 0.0 s behind" in get(app, "/readyz").text)


def test_other_standby_answers_while_one_is_down(pair: FailoverPair, passable_dir: Path) -> None:
    [_, host] = pair.standby_url.split("host=")
    read_url = f"postgresql://postgres@/placement?host={passable_dir},{host.split('&')[0]}&port=5432,5432"
    app = new_app(pair, read_url=read_url)
    for _ in range(4):
        assert role_of(app, lambda: get(app, stale(CANDIDATES))) == "standby"
    assert [standby.problem for standby in standbys_of(app)] == ["does not respond", None]


def test_primary_is_not_used_as_a_standby(pair: FailoverPair) -> None:
    app = new_app(pair, read_url=pair.primary_url)
    assert role_of(app, lambda: get(app, stale(CANDIDATES))) == "primary"
    assert "not used, is a primary\n" in get(app, "/readyz").text


def test_request_does_not_wait_for_a_standby_that_is_down(
    pair: FailoverPair, passable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standbys, "RECHECK_SECONDS", 3600.0)
    read_url = f"postgresql://postgres@/placement?host={passable_dir}&port=5432"
    app = new_app(pair, read_url=read_url)
    [standby] = standbys_of(app)
    attempts: list[str] = []
    event.listen(standby.engine, "do_connect", lambda *_: attempts.append("connect"))
    for _ in range(5):
        assert get(app, stale(CANDIDATES)).status_code == 200
    assert attempts == ["connect"]


def test_primary_repeats_a_read_that_the_recovery_cancels(app: Flask, pair: FailoverPair) -> None:
    pair.configure_standby("max_standby_streaming_delay = 0")
    servers: list[bool] = []

    def read(connection: Connection) -> int:
        is_standby = bool(connection.scalar(text("SELECT pg_is_in_recovery()")))
        servers.append(is_standby)
        found = len(connection.execute(text("SELECT name FROM traits")).all())
        if is_standby:
            pair.on_primary(
                "INSERT INTO traits (name) VALUES ('CUSTOM_DEAD')",
                "DELETE FROM traits WHERE name = 'CUSTOM_DEAD'",
                "VACUUM (FREEZE) traits",
            )
            connection.execute(text("SELECT pg_sleep(30)"))
        return found

    try:
        assert app.extensions["standby_reads"].read(read) > 0
    finally:
        pair.on_standby("ALTER SYSTEM RESET max_standby_streaming_delay", "SELECT pg_reload_conf()")
    assert servers == [True, False]


def test_statement_that_takes_too_long_is_not_repeated(pair: FailoverPair) -> None:
    # The statements that examine the standby have the same timeout.
    app = new_app(pair, statement_timeout=5)
    servers: list[bool] = []

    def read(connection: Connection) -> None:
        servers.append(bool(connection.scalar(text("SELECT pg_is_in_recovery()"))))
        connection.execute(text("SELECT pg_sleep(30)"))

    with pytest.raises(Unavailable, match="took too long"):
        app.extensions["standby_reads"].read(read)
    assert servers == [True]


@pytest.mark.parametrize(
    "path", ["/allocation_candidates?resources=VCPU:1", "/traits", "/usages?project_id=p"]
)
def test_key_needs_the_version_of_the_extensions(app: Flask, path: str) -> None:
    response = get(app, stale(path), ADMIN)
    assert response.status_code == 400
    assert "stale" in response.text
    assert (reads(app, "primary"), reads(app, "standby")) == (0, 0)


@pytest.mark.parametrize("path", STALE_PATHS)
def test_other_values_of_the_key_are_refused(app: Flask, path: str) -> None:
    response = get(app, stale(path).replace("stale=ok", "stale=yes"))
    assert response.status_code == 400
    assert "'yes' is not one of ['ok']" in response.text


def test_new_path_knows_the_key_without_the_header(app: Flask) -> None:
    assert role_of(app, lambda: get(app, stale("/capacity"), ADMIN)) == "standby"


def test_reads_that_clients_expect_to_be_new_stay_on_the_primary(app: Flask) -> None:
    for path in (
        "/resource_classes",
        f"/resource_providers/{PROVIDER}",
        f"/allocations/{CONSUMER}",
        "/traits",
    ):
        assert get(app, path).status_code == 200
    assert (reads(app, "primary"), reads(app, "standby")) == (0, 0)


def test_a_standby_that_is_lost_at_the_end_of_its_check_is_not_used(pair: FailoverPair) -> None:
    # The proxy adds a port.
    proxy = PostgresProxy(pair.standby_url.removesuffix("&port=5432"))
    [url] = each_host(proxy.url)
    primary = PrimaryWatch(connect(pair.primary_url))
    standby = standbys.Standby(url, MAX_LAG, primary, pool_size=1, statement_timeout=TIMEOUT)
    wait_until(lambda: problem_of(standby) is None)
    proxy.drop_connection_at("ROLLBACK", delivered=False)
    standby.check()
    assert standby.problem == "does not respond"
    standby.engine.dispose()
    proxy.server_close()


@contextmanager
def checked_standby(read_url: str, database_url: str) -> Iterator[standbys.Standby]:
    """Yield a standby after the first check of the primary."""
    [url] = each_host(read_url)
    primary = PrimaryWatch(connect(database_url))
    standby = standbys.Standby(url, MAX_LAG, primary, pool_size=1, statement_timeout=TIMEOUT)
    standby.check()
    wait_until(lambda: primary.position is not None)
    yield standby
    standby.engine.dispose()
    primary._engine.dispose()


def problem_of(standby: standbys.Standby) -> str | None:
    standby.check()
    return standby.problem


@contextmanager
def frozen_sender(pair: FailoverPair) -> Iterator[None]:
    """Stop the process of the primary that sends to the standby, which stays connected."""
    process = pair.on_primary("SELECT pid FROM pg_stat_replication")
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize("user", ["postgres", "reader"])
def test_standby_that_has_replayed_all_it_has_received_lags(pair: FailoverPair, user: str) -> None:
    pair.on_primary("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN")
    pair.wait_for_replay()
    as_user = [url.replace("postgres@", f"{user}@") for url in (pair.standby_url, pair.primary_url)]
    with checked_standby(*as_user) as standby:
        wait_until(lambda: problem_of(standby) is None and standby.lag == 0)
        with frozen_sender(pair):
            pair.on_primary(COMMIT)
            wait_until(lambda: problem_of(standby) == f"lags more than {MAX_LAG:g} s")
            assert pair.on_standby("SELECT count(*) FROM pg_stat_wal_receiver") == 1
            wait_until(
                lambda: pair.on_standby("SELECT pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()")
            )
        wait_until(lambda: problem_of(standby) is None)


def test_standby_of_an_idle_primary_is_up_to_date(pair: FailoverPair) -> None:
    pair.wait_for_replay()
    wait_until(lambda: pair.on_standby(REPLAY_AGE) > MAX_LAG)
    with checked_standby(pair.standby_url, pair.primary_url) as standby:
        wait_until(lambda: problem_of(standby) is None and standby.lag == 0)


def test_restarted_standby_of_an_idle_primary_is_used(pair: FailoverPair) -> None:
    position = "SELECT pg_current_wal_flush_lsn()"
    pair.wait_for_replay()
    # The primary may write on its own, such as a checkpoint.
    for _ in range(5):
        before = pair.on_primary(position)
        pair.stop_standby()
        pair.start_standby()
        with checked_standby(pair.standby_url, pair.primary_url) as standby:
            wait_until(lambda: problem_of(standby) is None)
        if pair.on_primary(position) == before:
            return
    pytest.fail("the standby was used only when the primary had written more")


def test_old_primary_that_cannot_follow_the_new_one_is_not_used(passable_dir: Path) -> None:
    old = passable_dir / "diverged" / "old"
    with running_pair(passable_dir / "diverged") as pair:
        pair.add_standby(old)
        try:
            pair.wait_for_replay()
            pair.on_standby("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
            wait_until(lambda: pair.on_standby("SELECT count(*) FROM pg_stat_wal_receiver") == 0)
            pair.on_primary("INSERT INTO traits (name) VALUES ('CUSTOM_LOST')", COMMIT)
            lost = "SELECT count(*) FROM traits WHERE name = 'CUSTOM_LOST'"
            wait_until(lambda: execute(url_of(old), lost) == 1)
            pair.promote()
            directory = make_url(pair.standby_url).query["host"]
            follow = f"ALTER SYSTEM SET primary_conninfo = 'host={directory} user=postgres'"
            execute(url_of(old), "ALTER SYSTEM SET wal_retrieve_retry_interval = '100ms'", follow)
            stop(old)
            start(old)
            wait_until(lambda: execute(url_of(old), "SELECT status FROM pg_stat_wal_receiver") == "waiting")
            # Until then, its data is new enough.
            wait_until(lambda: execute(url_of(old), REPLAY_AGE) > MAX_LAG)
            with checked_standby(url_of(old), pair.standby_url) as standby:
                for _ in range(50):
                    assert problem_of(standby) == f"lags more than {MAX_LAG:g} s"
        finally:
            stop(old)
