"""The service under load while something breaks: what it acknowledged is there, and it resumes by itself."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from placement_svc.db import schema
from placement_svc.provisioning import embedded
from tests.support.service import Answer, Client, Service, serving, wait_until
from tests.support.soundness import unsound

pytestmark = pytest.mark.long

CLIENTS = 8
MORE = 40
"""Claims that are to be acknowledged before something breaks, and again after it."""

ROWS = 4
"""Rows of a claim: two resource classes of two providers."""

HELD = text("""
    SELECT consumers.uuid, count(allocations.used)
      FROM consumers LEFT JOIN allocations ON consumer_id = consumers.id
     GROUP BY consumers.id
""")


@pytest.fixture(scope="module")
def data_dir(passable_dir: Path) -> Path:
    """A data directory of its own: its PostgreSQL is going to be stopped."""
    return passable_dir / "data"


@pytest.fixture(scope="module")
def database(data_dir: Path) -> Iterator[Engine]:
    """An engine of the service's database, which keeps no connection."""
    with embedded.start(data_dir) as running:
        engine = create_engine(running.url, poolclass=NullPool)
        schema.upgrade(engine)
        yield engine


@pytest.fixture(scope="module")
def service(database: Engine) -> Iterator[Service]:
    """The running service, with two workers."""
    with serving(workers=2, database_url=database.url.render_as_string(hide_password=False)) as service:
        yield service


@pytest.fixture(scope="module")
def hosts(service: Service) -> list[str]:
    """Two providers with room for all."""
    client, uuids = service.client(), [str(uuid4()) for _ in range(2)]
    inventories = {name: {"total": 1_000_000} for name in ("VCPU", "DISK_GB")}
    for uuid in uuids:
        assert client("POST", "/resource_providers", {"name": uuid, "uuid": uuid}).status == 200
        body = {"resource_provider_generation": 0, "inventories": inventories}
        assert client("PUT", f"/resource_providers/{uuid}/inventories", body).status == 200
    return uuids


def claim(client: Client, uuid: str, hosts: list[str]) -> Answer:
    allocations = {host: {"resources": {"VCPU": 1, "DISK_GB": 2}} for host in hosts}
    body: dict[str, Any] = {"allocations": allocations, "consumer_generation": None}
    body |= {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}
    return client("PUT", f"/allocations/{uuid}", body)


class Load:
    """Clients that claim for one new consumer after the other, and what they were told."""

    def __init__(self, service: Service, hosts: list[str]) -> None:
        self._service = service
        self._hosts = hosts
        self._enough = Event()
        self.acknowledged: list[str] = []
        self.failed: list[Answer] = []

    def run(self) -> None:
        """Claim until it is enough."""
        client = self._service.client()
        while not self._enough.is_set():
            uuid = str(uuid4())
            answer = claim(client, uuid, self._hosts)
            if answer.status == 204:
                self.acknowledged.append(uuid)
            else:
                self.failed.append(answer)

    def during(self, fault: Callable[[], None]) -> None:
        """Let something break in the middle of the load, and wait until claims are granted again."""
        with ThreadPoolExecutor(CLIENTS) as threads:
            running = [threads.submit(self.run) for _ in range(CLIENTS)]
            try:
                wait_until(lambda: len(self.acknowledged) > MORE)
                fault()
                granted = len(self.acknowledged)
                wait_until(lambda: len(self.acknowledged) > granted + MORE)
            finally:
                self._enough.set()
        for one in running:
            one.result()


@pytest.fixture
def load(service: Service, hosts: list[str], database: Engine) -> Iterator[Load]:
    """Load on the service; at last all it acknowledged is whole, and all else is whole or absent."""
    load = Load(service, hosts)
    yield load
    with database.connect() as connection:
        held = dict(connection.execute(HELD).all())
    assert unsound(database) == {}
    assert held.keys() >= set(load.acknowledged)
    assert set(held.values()) <= {ROWS}
    assert {answer.status for answer in load.failed} <= {0, 503}


def test_worker_that_is_killed_is_replaced(service: Service, load: Load) -> None:
    before = service.workers()
    load.during(lambda: os.kill(before[0], signal.SIGKILL))
    wait_until(lambda: len(service.workers()) == len(before))
    assert before[0] not in service.workers()
    assert {answer.status for answer in load.failed} <= {0}


def test_claim_whose_worker_is_killed_while_it_waits_is_given_up(
    service: Service, hosts: list[str], database: Engine
) -> None:
    def backends(condition: str) -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
        with database.connect() as connection:
            return connection.scalar(text(query + condition))  # type: ignore[no-any-return]

    uuid = str(uuid4())
    with ThreadPoolExecutor(1) as threads, database.begin() as other:
        other.execute(text("SELECT FROM resource_providers FOR UPDATE"))
        claiming = threads.submit(claim, service.client(), uuid, hosts)
        wait_until(lambda: backends("wait_event_type = 'Lock'") == 1)
        for worker in service.workers():
            os.kill(worker, signal.SIGKILL)
        assert claiming.result() == Answer(0)
        # PostgreSQL looks after its clients, every second.
        wait_until(lambda: backends("wait_event_type = 'Lock'") == 0)
    client = service.client()
    wait_until(lambda: client("GET", "/").status == 200)
    assert client("GET", f"/allocations/{uuid}").body == {"allocations": {}}
    assert claim(client, uuid, hosts).status == 204


def test_connections_that_are_cut_go_unnoticed(load: Load, database: Engine) -> None:
    def cut() -> None:
        with database.connect() as connection:
            cut = text("""
                SELECT count(pg_terminate_backend(pid))
                  FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()
            """)
            assert connection.scalar(cut)

    load.during(cut)
    # Whoever was just committing cannot know.
    assert all("lost at the commit" in answer.problem for answer in load.failed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
def test_postgresql_that_restarts_is_used_again(
    number: signal.Signals, load: Load, data_dir: Path, database: Engine
) -> None:
    pid_file = data_dir / "postgres" / "postmaster.pid"

    def restart() -> None:
        os.kill(int(pid_file.read_text().splitlines()[0]), number)
        wait_until(lambda: not pid_file.exists())
        embedded.start(data_dir).stop()

    load.during(restart)
