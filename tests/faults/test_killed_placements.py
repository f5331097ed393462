"""A worker is killed during POST /claims: all consumers of a call are placed, or none."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from placement_svc.db import schema
from tests.support.claims_oracle import consumer
from tests.support.lock_waits import count_waiting
from tests.support.placement_race import create_provider, new_uuids
from tests.support.service import Answer, Client, Service, serving, wait_until
from tests.support.soundness import audit_faults
from tests.support.stored_allocations import stored_consumers, stored_members

pytestmark = pytest.mark.long

CLIENTS = 4
CALLS = 10
"""Calls that must be acknowledged before the fault, and again after it."""

TOGETHER = 3
"""Consumers of a call."""


@pytest.fixture(scope="module")
def database(new_database: Callable[[], str]) -> Engine:
    """An engine of the service's database that keeps no idle connection."""
    engine = create_engine(new_database(), poolclass=NullPool)
    schema.upgrade(engine)
    return engine


@pytest.fixture(scope="module")
def service(database: Engine) -> Iterator[Service]:
    """The running service, with two workers and room for all consumers."""
    with serving(workers=2, database_url=database.url.render_as_string(hide_password=False)) as service:
        for _ in range(TOGETHER):
            create_provider(service.client(), {"VCPU": 100_000})
        yield service


@pytest.fixture(params=[None, "anti-affinity", "soft-anti-affinity"])
def group(request: pytest.FixtureRequest, service: Service) -> str | None:
    """A new placement group, or none."""
    if request.param is None:
        return None
    [uuid] = new_uuids(1)
    body: dict[str, Any] = {"policy": request.param, "max_per_domain": 100_000}
    assert service.client()("PUT", f"/placement_groups/{uuid}", body).status == 201
    return uuid


def place(client: Client, uuids: list[str], group: str | None) -> Answer:
    consumers = [consumer(uuid) for uuid in uuids]
    body: dict[str, Any] = {"request": "resources=VCPU:1", "consumers": consumers}
    return client("POST", "/claims", body if group is None else {**body, "placement_group": group})


def test_nothing_is_left_of_a_call_that_waits_for_a_lock(
    service: Service, database: Engine, group: str | None
) -> None:
    before = stored_consumers(database)
    uuids = new_uuids(TOGETHER)
    with ThreadPoolExecutor(1) as threads, database.begin() as other:
        other.execute(text("SELECT FROM resource_providers FOR UPDATE"))
        placing = threads.submit(place, service.client(), uuids, group)
        wait_until(lambda: count_waiting(database) == 1)
        for worker in service.workers():
            os.kill(worker, signal.SIGKILL)
        assert placing.result() == Answer(0)
        # PostgreSQL checks ten times a second whether its clients are still connected.
        wait_until(lambda: count_waiting(database) == 0)
    assert stored_consumers(database) == before
    assert not stored_members(database).keys() & set(uuids)
    client = service.client()
    wait_until(lambda: client("GET", "/").status == 200)
    # Nobody holds a lock of the group or of the consumers any more.
    response = place(client, uuids, group)
    assert response.status == 200, response
    assert len(response.body["claims"]) == TOGETHER


def test_every_call_is_stored_as_a_whole(service: Service, database: Engine, group: str | None) -> None:
    before = stored_consumers(database).keys()
    sent: list[list[str]] = []
    acknowledged: list[str] = []
    failed: list[Answer] = []
    finished = Event()

    def load() -> None:
        client = service.client()
        while not finished.is_set():
            uuids = new_uuids(TOGETHER)
            sent.append(uuids)
            response = place(client, uuids, group)
            if response.status == 200:
                acknowledged.extend(uuids)
            else:
                failed.append(response)

    def wait_for_calls(granted: int) -> None:
        wait_until(lambda: len(acknowledged) >= granted + CALLS * TOGETHER)

    with ThreadPoolExecutor(CLIENTS) as threads:
        running = [threads.submit(load) for _ in range(CLIENTS)]
        try:
            wait_for_calls(0)
            for _ in range(2):
                granted = len(acknowledged)
                service.kill_worker()
                wait_for_calls(granted)
        finally:
            finished.set()
    for one in running:
        one.result()
    assert {response.problem for response in failed if response.status} == set()
    stored = stored_consumers(database).keys() - before
    assert stored >= set(acknowledged)
    assert {len(stored.intersection(uuids)) for uuids in sent} <= {0, TOGETHER}
    members = {uuid for uuid, joined in stored_members(database).items() if joined == group}
    assert members == (stored if group else set())
    assert audit_faults(database) == {}
