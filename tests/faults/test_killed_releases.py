"""A worker is killed during releases: each consumer is released completely, or not at all."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from placement_svc.db import schema
from tests.support.lock_waits import count_waiting
from tests.support.placement_race import create_provider
from tests.support.service import Answer, Client, Service, serving, wait_until
from tests.support.soundness import audit_faults
from tests.support.stored_allocations import stored_consumers

pytestmark = pytest.mark.long

CLIENTS = 8
RELEASES = 20
"""Releases that must be acknowledged before the fault, and again after it."""


@pytest.fixture(scope="module")
def database(new_database: Any) -> Engine:
    """An engine of the service's database that keeps no idle connection."""
    engine = create_engine(new_database(), poolclass=NullPool)
    schema.upgrade(engine)
    return engine


@pytest.fixture(scope="module")
def service(database: Engine) -> Iterator[Service]:
    """The running service, with two workers."""
    with serving(workers=2, database_url=database.url.render_as_string(hide_password=False)) as service:
        yield service


@pytest.fixture(autouse=True)
def _audited(database: Engine) -> Iterator[None]:
    yield
    assert audit_faults(database) == {}


@pytest.fixture
def host(service: Service) -> str:
    return create_provider(service.client(), {"VCPU": 100_000})


def claim(client: Client, uuid: str, host: str) -> Answer:
    body = {
        "allocations": {host: {"resources": {"VCPU": 1}}},
        "consumer_generation": None,
        "project_id": "project",
        "user_id": "user",
        "consumer_type": "INSTANCE",
    }
    return client("PUT", f"/allocations/{uuid}", body)


def test_nothing_of_releases_that_wait_for_a_lock_is_done(service: Service, database: Engine) -> None:
    uuids = [str(uuid4()) for _ in range(3)]
    client = service.client()
    # Releases on different hosts are not batched: each of them is seen to wait.
    hosts = [create_provider(client, {"VCPU": 1}) for _ in uuids]
    assert [claim(client, *each).status for each in zip(uuids, hosts, strict=True)] == [204] * 3
    before = stored_consumers(database)
    with ThreadPoolExecutor(3) as threads, database.begin() as other:
        other.execute(text("SELECT FROM inventories FOR UPDATE"))
        path = "/allocations/{}"
        releasing = [threads.submit(service.client(), "DELETE", path.format(uuid)) for uuid in uuids]
        wait_until(lambda: count_waiting(database) == 3)
        for worker in service.workers():
            os.kill(worker, signal.SIGKILL)
        assert [each.result() for each in releasing] == [Answer(0)] * 3
        # PostgreSQL checks ten times a second whether its clients are still connected.
        wait_until(lambda: count_waiting(database) == 0)
    assert stored_consumers(database) == before
    client = service.client()
    wait_until(lambda: client("GET", "/").status == 200)
    assert [client("DELETE", f"/allocations/{uuid}").status for uuid in uuids] == [204] * 3


def test_acknowledged_releases_are_done_and_others_as_a_whole(
    service: Service, database: Engine, host: str
) -> None:
    released: list[str] = []
    uncertain: list[str] = []
    failed: list[Answer] = []
    finished = Event()

    def load() -> None:
        client = service.client()
        while not finished.is_set():
            uuid = str(uuid4())
            for answer in (claim(client, uuid, host), client("DELETE", f"/allocations/{uuid}")):
                if answer.status != 204:
                    failed.append(answer)
                    uncertain.append(uuid)
            released.extend([uuid] if uuid not in uncertain else [])

    def wait_for_releases() -> None:
        number = len(released)
        wait_until(lambda: len(released) > number + RELEASES)

    with ThreadPoolExecutor(CLIENTS) as threads:
        running = [threads.submit(load) for _ in range(CLIENTS)]
        try:
            for _ in range(3):
                wait_for_releases()
                service.kill_worker()
            wait_for_releases()
        finally:
            finished.set()
        for one in running:
            one.result()
    # A release of a claim whose response was lost may not find its consumer.
    assert {answer.status for answer in failed} <= {0, 404}
    stored = stored_consumers(database)
    assert stored.keys() <= set(uncertain)
    assert all(found == (1, {host: {"VCPU": 1}}) for found in stored.values())
    used = service.client()("GET", f"/resource_providers/{host}/usages").body["usages"]
    assert used == {"VCPU": len(stored)}
