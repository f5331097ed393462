"""Reads on standbys while no primary can be reached, and what they do when a standby fails."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread, current_thread
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Connection, event, text

from placement_svc.app import create_app
from placement_svc.config import Settings
from placement_svc.db.connections.engine import connect
from placement_svc.db.connections.primary_watch import INTERVAL, PrimaryWatch
from placement_svc.db.connections.standbys import Standby
from placement_svc.domain.errors import NotFound
from tests.conftest import ADMIN
from tests.support.failover import COMMIT, REPLAY_AGE, FailoverPair, failover_pair
from tests.support.service import wait_until
from tests.support.versions import EXTENDED_HEADER

HEADERS = ADMIN | EXTENDED_HEADER
READ = "/traits?name=in:HW_CPU_X86_AVX&stale=ok"
MAX_LAG = 10.0
"""Much longer than the time until the loss of a primary is noticed, even with a stall of some seconds."""

OUTAGE_SECONDS = MAX_LAG + 4
CHECK_SECONDS = 5
"""How long a check of a frozen primary takes at least: it waits for a connection."""


@contextmanager
def running_pair(directory: Path) -> Iterator[FailoverPair]:
    directory.mkdir(mode=0o711)
    with failover_pair(directory) as running:
        running.create_schema()
        # Without this, the standby notices a frozen primary only after a minute. On a busy machine, it may
        # take one that runs for frozen, and then it connects again soon.
        running.on_standby(
            "ALTER SYSTEM SET wal_receiver_timeout = '1s'",
            "ALTER SYSTEM SET wal_retrieve_retry_interval = '100ms'",
            "SELECT pg_reload_conf()",
        )
        yield running


@pytest.fixture(scope="module")
def pair(passable_dir: Path) -> Iterator[FailoverPair]:
    """A primary and a standby; a test restores what it changes."""
    with running_pair(passable_dir / "primary-lost") as running:
        yield running


@pytest.fixture
def app(pair: FailoverPair) -> Iterator[Flask]:
    """An application with a standby that is up to date, and a primary that was idle for a while."""
    wait_until(lambda: is_connected(pair))
    pair.wait_for_replay()
    wait_until(lambda: pair.on_standby(REPLAY_AGE) > MAX_LAG)
    created = create_app(
        Settings(database_url=pair.primary_url, read_url=pair.standby_url, read_max_lag=MAX_LAG)
    )
    wait_until(lambda: get(created, READ) == 200 and is_up_to_date(created))
    yield created
    pair.thaw_primary()


def get(app: Flask, path: str) -> int:
    return app.test_client().get(path, headers=HEADERS).status_code


def standby_of(app: Flask) -> Standby:
    [standby] = app.extensions["standby_reads"].standbys
    assert isinstance(standby, Standby)
    return standby


def is_up_to_date(app: Flask) -> bool:
    """Return whether the standby has just been found to be as far as the primary."""
    standby = standby_of(app)
    return standby.problem is None and standby.lag == 0 and bool(standby._up_to_date_at)


def users_of_primary(app: Flask) -> set[Thread]:
    """Return a set of the threads that use the primary from now on."""
    users: set[Thread] = set()
    for name in ("do_connect", "checkout"):
        event.listen(app.extensions["database"].engine, name, lambda *_: users.add(current_thread()))
    return users


def is_connected(pair: FailoverPair) -> bool:
    return bool(pair.on_standby("SELECT count(*) FROM pg_stat_wal_receiver"))


def freeze_primary(pair: FailoverPair) -> None:
    """Freeze the primary, and wait until the standby has noticed that."""
    pair.freeze_primary()
    wait_until(lambda: not is_connected(pair))


@contextmanager
def cut_off(pair: FailoverPair) -> Iterator[None]:
    """Disconnect the standby from the primary, which goes on."""
    primary = pair.on_standby("SHOW primary_conninfo").replace("'", "''")
    pair.on_standby("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
    try:
        wait_until(lambda: not is_connected(pair))
        yield
    finally:
        pair.on_standby(f"ALTER SYSTEM SET primary_conninfo = '{primary}'", "SELECT pg_reload_conf()")


def test_standby_remains_in_use_without_a_primary(app: Flask, pair: FailoverPair) -> None:
    freeze_primary(pair)
    users = users_of_primary(app)
    reads = 0
    end = time.monotonic() + OUTAGE_SECONDS
    while time.monotonic() < end:
        assert get(app, READ) == 200
        assert standby_of(app).problem is None
        reads += 1
        time.sleep(0.05)
    # Only checks wait for the primary, and reads do not wait for them.
    assert users
    assert current_thread() not in users
    assert reads > 2 * OUTAGE_SECONDS / CHECK_SECONDS


def test_standby_that_no_request_has_used_remains_usable_without_a_primary(
    app: Flask, pair: FailoverPair
) -> None:
    freeze_primary(pair)
    users = users_of_primary(app)
    time.sleep(OUTAGE_SECONDS)
    assert get(app, READ) == 200
    assert standby_of(app).problem is None
    assert current_thread() not in users


def test_lag_grows_again_when_there_is_a_primary(app: Flask, pair: FailoverPair) -> None:
    freeze_primary(pair)
    time.sleep(OUTAGE_SECONDS)
    assert get(app, READ) == 200
    with cut_off(pair):
        pair.thaw_primary()
        wait_until(
            lambda: get(app, READ) == 200 and standby_of(app).problem == f"lags more than {MAX_LAG:g} s"
        )
    wait_until(lambda: get(app, READ) == 200 and standby_of(app).problem is None)


def test_standby_that_was_cut_off_before_the_primary_is_lost_is_not_used(
    app: Flask, pair: FailoverPair
) -> None:
    standby = standby_of(app)
    with cut_off(pair):
        wait_until(lambda: get(app, READ) == 200 and standby.problem == f"lags more than {MAX_LAG:g} s")
        pair.freeze_primary()
        end = time.monotonic() + OUTAGE_SECONDS
        while time.monotonic() < end:
            assert not standby.is_usable()
            time.sleep(0.05)


def test_standby_whose_replay_is_paused_remains_usable_if_it_was_up_to_date(
    app: Flask, pair: FailoverPair
) -> None:
    pair.on_standby("SELECT pg_wal_replay_pause()")
    try:
        freeze_primary(pair)
        time.sleep(OUTAGE_SECONDS)
        assert get(app, READ) == 200
        assert standby_of(app).problem is None
    finally:
        pair.on_standby("SELECT pg_wal_replay_resume()")


def test_check_of_a_standby_whose_connections_are_in_use_changes_nothing(app: Flask) -> None:
    standby = standby_of(app)
    with ExitStack() as stack:
        for _ in range(app.extensions["settings"].pool_size):
            stack.enter_context(standby.snapshot())
        # A check that waits for a connection gets none, and then finds that the standby does not respond.
        standby.check()
        assert standby.problem is None


def app_with_two_standbys(pair: FailoverPair, database_url: str) -> Flask:
    """Return an application for which the standby of the pair is two, and has new data."""
    pair.on_primary(COMMIT)
    pair.wait_for_replay()
    [_, host] = pair.standby_url.split("host=")
    directory = host.split("&")[0]
    read_url = f"postgresql://postgres@/placement?host={directory},{directory}&port=5432,5432"
    return create_app(Settings(database_url=database_url, read_url=read_url))


def servers_of(app: Flask, on_first: Callable[[Connection], None]) -> list[bool]:
    """Run a read that fails on the first server; return whether each server that it reaches is a standby."""
    servers: list[bool] = []

    def read(connection: Connection) -> None:
        servers.append(bool(connection.scalar(text("SELECT pg_is_in_recovery()"))))
        if len(servers) == 1:
            on_first(connection)

    app.extensions["standby_reads"].read(read)
    return servers


def lose_connection(connection: Connection) -> None:
    connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


def miss_object(_connection: Connection) -> None:
    raise NotFound("No such object on this server.")


def fail(connection: Connection) -> None:
    connection.execute(text("SELECT * FROM missing"))


@pytest.mark.parametrize("on_first", [lose_connection, miss_object, fail])
def test_another_standby_repeats_a_read(pair: FailoverPair, on_first: Callable[[Connection], None]) -> None:
    app = app_with_two_standbys(pair, pair.primary_url)
    assert servers_of(app, on_first) == [True, True]


def test_unknown_name_is_unavailable_without_a_primary(pair: FailoverPair, passable_dir: Path) -> None:
    app = app_with_two_standbys(pair, f"postgresql://postgres@/placement?host={passable_dir}&port=5432")
    assert get(app, READ) == 200
    assert get(app, "/resource_providers?required=CUSTOM_NOWHERE&stale=ok") == 503


def outage_after_check(watch: PrimaryWatch) -> float:
    """Return how long there was no primary, after a check."""
    started = time.monotonic()
    wait_until(lambda: check_has_ended(watch))
    return watch.seconds_without_primary(started)


def check_has_ended(watch: PrimaryWatch) -> bool:
    ended = watch._check_ended
    watch.check_soon()
    wait_until(lambda: watch._check_started is None)
    return watch._check_ended > ended


def test_watch_of_a_frozen_primary(pair: FailoverPair) -> None:
    wait_until(lambda: is_connected(pair))
    engine = connect(pair.primary_url)
    watch = PrimaryWatch(engine)
    assert outage_after_check(watch) == 0
    started = time.monotonic()
    pair.freeze_primary()
    try:
        wait_until(lambda: watch.check_soon() or watch.seconds_without_primary(started) > INTERVAL)
        now = time.monotonic()
        assert watch.seconds_without_primary(now) <= time.monotonic() - now
    finally:
        pair.thaw_primary()
    wait_until(lambda: outage_after_check(watch) == 0)
    engine.dispose()


def test_an_outage_ends_when_a_primary_is_back(pair: FailoverPair, passable_dir: Path) -> None:
    [_, host] = pair.primary_url.split("host=")
    directory, link = host.split("&")[0], passable_dir / "link"
    link.symlink_to(directory)
    engine = connect(f"postgresql://postgres@/placement?host={link}&port=5432")
    watch = PrimaryWatch(engine)
    started = time.monotonic()
    assert outage_after_check(watch) == 0
    engine.dispose()
    link.unlink()
    assert outage_after_check(watch) > 0
    link.symlink_to(directory)
    assert outage_after_check(watch) > 0
    lost = watch.seconds_without_primary(started)
    assert 0 < lost < time.monotonic() - started
    time.sleep(0.01)
    assert watch.seconds_without_primary(started) == lost
    assert outage_after_check(watch) == 0
    engine.dispose()


@pytest.mark.parametrize(("options", "is_lost"), [("", True), ("&target_session_attrs=standby", False)])
def test_watch_of_a_standby(pair: FailoverPair, options: str, is_lost: bool) -> None:
    engine = connect(pair.standby_url + options)
    assert (outage_after_check(PrimaryWatch(engine)) > 0) == is_lost
    engine.dispose()


def test_watch_of_a_server_that_is_down(passable_dir: Path, caplog: Any) -> None:
    engine = connect(f"postgresql://postgres@/placement?host={passable_dir}&port=5432")
    assert outage_after_check(PrimaryWatch(engine)) > 0
    # The check has ended a moment before its thread logs the result.
    wait_until(lambda: "No primary is reachable" in caplog.text)


def test_watch_does_not_wait_for_connections_that_are_in_use(pair: FailoverPair) -> None:
    wait_until(lambda: is_connected(pair))
    engine = connect(pair.primary_url, pool_size=1)
    watch = PrimaryWatch(engine)
    with engine.connect():
        watch.check_soon()
        assert watch._check_started is None
    assert outage_after_check(watch) == 0
    engine.dispose()
