"""How durable commits are: /readyz, the metrics and PLACEMENT_REQUIRE_SYNC tell it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import make_url

from placement_svc.app import create_app
from placement_svc.config import Settings
from placement_svc.db.connections.durability import Durability, read_durability
from placement_svc.db.connections.engine import connect
from placement_svc.server.serve import startup_report
from tests.support.failover import FailoverPair, failover_pair
from tests.support.service import wait_until

ROLE = "placement_ordinary"


@pytest.fixture(scope="module")
def pair(passable_dir: Path) -> Iterator[FailoverPair]:
    """A primary and a standby, and a role without any privilege to monitor."""
    directory = passable_dir / "pair"
    directory.mkdir(mode=0o711)
    with failover_pair(directory) as running:
        running.create_schema()
        running.on_primary(
            f"CREATE ROLE {ROLE} LOGIN",
            f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}",
            f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {ROLE}",
        )
        yield running


@pytest.fixture
def synchronous(pair: FailoverPair) -> Iterator[FailoverPair]:
    """The pair while commits on the primary wait for the standby, which is running."""
    set_standby_names(pair, "ANY 1 (*)")
    wait_until(lambda: pair.on_primary("SELECT sync_state FROM pg_stat_replication") == "quorum")
    yield pair
    set_standby_names(pair, "")


def set_standby_names(pair: FailoverPair, names: str) -> None:
    pair.configure_primary(f"synchronous_standby_names = '{names}'")
    wait_until(lambda: pair.on_primary("SHOW synchronous_standby_names") == names)


def ordinary_url(pair: FailoverPair) -> str:
    return make_url(pair.primary_url).set(username=ROLE).render_as_string(hide_password=False)


def durability_of(url: str) -> Durability:
    engine = connect(url)
    with engine.connect() as connection:
        found = read_durability(connection)
    engine.dispose()
    return found


def ready(app: Flask) -> tuple[int, str]:
    response = app.test_client().get("/readyz")
    return response.status_code, response.text


def metrics(app: Flask) -> list[str]:
    text = app.test_client().get("/metrics", buffered=True).text
    return [line for line in text.splitlines() if line.startswith("placement_synchronous")]


def test_commits_are_on_the_primary_only(pair: FailoverPair) -> None:
    assert durability_of(pair.primary_url) == Durability("on", required=0, connected=0)
    app = create_app(Settings(database_url=pair.primary_url))
    assert ready(app) == (200, "ready\ncommits: on disk of the primary only (synchronous_commit=on)\n")
    assert metrics(app) == [
        'placement_synchronous_commit{value="on"} 1.0',
        "placement_synchronous_standbys_required 0.0",
        "placement_synchronous_standbys_connected 0.0",
    ]


def test_commits_wait_for_a_standby(synchronous: FailoverPair) -> None:
    assert durability_of(synchronous.primary_url) == Durability("on", required=1, connected=1)
    app = create_app(Settings(database_url=synchronous.primary_url, require_sync=True))
    status, text = ready(app)
    assert status == 200
    assert text == (
        "ready\ncommits: on disk of the primary, and on disk of 1 synchronous standby (1 connected,"
        " synchronous_commit=on)\n"
    )
    report = startup_report(
        Settings(database_url=synchronous.primary_url), "http://h:8778", "the pair", workers=1, threads=1
    )
    assert f"commits: {report['commits']}\n" in text


def test_ordinary_role_does_not_see_which_standbys_are_connected(synchronous: FailoverPair) -> None:
    url = ordinary_url(synchronous)
    assert durability_of(url) == Durability("on", required=1, connected=None)
    app = create_app(Settings(database_url=url, require_sync=True))
    status, text = ready(app)
    assert (status, "(unknown number connected" in text) == (200, True)
    assert metrics(app) == [
        'placement_synchronous_commit{value="on"} 1.0',
        "placement_synchronous_standbys_required 1.0",
    ]


@pytest.mark.parametrize("as_role", [lambda pair: pair.primary_url, ordinary_url])
def test_service_is_not_ready_without_its_synchronous_standby(
    synchronous: FailoverPair, as_role: Callable[[FailoverPair], str]
) -> None:
    app = create_app(Settings(database_url=as_role(synchronous), require_sync=True))
    lenient = create_app(Settings(database_url=as_role(synchronous)))
    assert ready(app)[0] == 200
    synchronous.stop_standby()
    try:
        wait_until(lambda: ready(app)[0] == 503)
        assert "1 required, 0 connected" in ready(app)[1]
        assert ready(lenient)[0] == 200
    finally:
        synchronous.start_standby()
    wait_until(lambda: ready(app)[0] == 200)


def test_required_standby_that_is_not_configured_is_reported(pair: FailoverPair) -> None:
    status, text = ready(create_app(Settings(database_url=pair.primary_url, require_sync=True)))
    assert status == 503
    assert "PLACEMENT_REQUIRE_SYNC=1" in text
    assert "synchronous_standby_names" in text


@pytest.mark.parametrize(
    ("level", "required", "text"),
    [
        ("off", 0, "not yet on disk"),
        ("local", 0, "on disk of the primary only"),
        ("remote_write", 1, "in the memory of 1"),
        ("remote_apply", 1, "visible on 1"),
    ],
)
def test_level_of_the_sessions_counts(
    synchronous: FailoverPair, level: str, required: int, text: str
) -> None:
    found = durability_of(f"{synchronous.primary_url}&options=-csynchronous_commit%3D{level}")
    assert (found.synchronous_commit, found.required) == (level, required)
    assert text in str(found)
    assert (found.problem() is None) is (required > 0)


@pytest.mark.parametrize(
    ("names", "required"),
    [("", 0), ("*", 1), ("a, b", 1), ("FIRST 2 (a, b, c)", 2), ("2 (a, b)", 2), ("any 3(a, b, c)", 3)],
)
def test_number_of_standbys_is_that_of_the_setting(pair: FailoverPair, names: str, required: int) -> None:
    try:
        set_standby_names(pair, names)
        assert durability_of(pair.primary_url).required == required
    finally:
        set_standby_names(pair, "")
