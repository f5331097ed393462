"""Faults under load: the service loses no acknowledged claim, and recovers by itself."""

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
from tests.support.service import Answer, Client, Service, has_ended, serving, started, wait_until
from tests.support.soundness import audit_faults

pytestmark = pytest.mark.long

CLIENTS = 8
CLAIMS = 40
"""Claims that must be acknowledged before the fault, and again after it."""

ALLOCATIONS = 4
"""Allocations of a claim: two resource classes of two providers."""

ALLOCATION_COUNTS = text("""
    SELECT consumers.uuid, count(allocations.used)
      FROM consumers LEFT JOIN allocations ON consumer_id = consumers.id
     GROUP BY consumers.id
""")


@pytest.fixture(scope="module")
def data_dir(passable_dir: Path) -> Path:
    """A data directory of its own, because the tests stop its PostgreSQL."""
    return passable_dir / "data"


@pytest.fixture(scope="module")
def database(data_dir: Path) -> Iterator[Engine]:
    """An engine of the service's database that keeps no idle connection."""
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
    """Two providers with capacity for all claims."""
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
    """Clients that claim for one new consumer after the other, and the responses."""

    def __init__(self, service: Service, hosts: list[str]) -> None:
        self._service = service
        self._hosts = hosts
        self._finished = Event()
        self.acknowledged: list[str] = []
        self.failed: list[Answer] = []

    def run(self) -> None:
        """Claim until the load ends."""
        client = self._service.client()
        while not self._finished.is_set():
            uuid = str(uuid4())
            response = claim(client, uuid, self._hosts)
            if response.status == 204:
                self.acknowledged.append(uuid)
            else:
                self.failed.append(response)

    def during(self, fault: Callable[[], None]) -> None:
        """Cause a fault under load, and wait until claims are granted again."""
        with ThreadPoolExecutor(CLIENTS) as threads:
            running = [threads.submit(self.run) for _ in range(CLIENTS)]
            try:
                wait_until(lambda: len(self.acknowledged) > CLAIMS)
                fault()
                granted = len(self.acknowledged)
                wait_until(lambda: len(self.acknowledged) > granted + CLAIMS)
            finally:
                self._finished.set()
        for one in running:
            one.result()


@pytest.fixture
def load(service: Service, hosts: list[str], database: Engine) -> Iterator[Load]:
    """Load on the service. Afterwards, acknowledged claims must be stored, and no claim in part."""
    load = Load(service, hosts)
    yield load
    with database.connect() as connection:
        counts = dict(connection.execute(ALLOCATION_COUNTS).all())
    assert audit_faults(database) == {}
    assert counts.keys() >= set(load.acknowledged)
    assert set(counts.values()) <= {ALLOCATIONS}
    assert {response.status for response in load.failed} <= {0, 503}


def test_worker_that_is_killed_is_replaced(service: Service, load: Load) -> None:
    load.during(service.kill_worker)
    assert {response.status for response in load.failed} <= {0}


def test_worker_of_a_killed_master_stops(database: Engine) -> None:
    """Even if a client sends one request after the other on one connection."""
    url = database.url.render_as_string(hide_password=False)
    with started(database_url=url, log_level="info") as service:
        service.wait_until_it_responds()
        [worker] = service.wait_for_workers()
        client = service.client()
        service.process.kill()
        responses_since = 0
        while client("GET", "/").status == 200:
            responses_since += "Parent changed" in service.log.read_text()
            assert responses_since < 100
        wait_until(lambda: has_ended(str(worker)))


def test_claim_of_a_killed_worker_stops_waiting_for_its_lock(
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
        # PostgreSQL checks ten times a second whether its clients are still connected.
        wait_until(lambda: backends("wait_event_type = 'Lock'") == 0)
    client = service.client()
    wait_until(lambda: client("GET", "/").status == 200)
    assert client("GET", f"/allocations/{uuid}").body == {"allocations": {}}
    assert claim(client, uuid, hosts).status == 204


def test_terminated_connections_are_replaced(load: Load, database: Engine) -> None:
    def terminate() -> None:
        with database.connect() as connection:
            query = text("""
                SELECT count(pg_terminate_backend(pid))
                  FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()
            """)
            assert connection.scalar(query)

    load.during(terminate)
    assert load.failed == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
def test_service_reconnects_after_a_restart_of_postgresql(
    number: signal.Signals, load: Load, data_dir: Path, database: Engine
) -> None:
    pid_file = data_dir / "postgres" / "postmaster.pid"

    def restart() -> None:
        os.kill(int(pid_file.read_text().splitlines()[0]), number)
        wait_until(lambda: not pid_file.exists())
        embedded.start(data_dir).stop()

    load.during(restart)
