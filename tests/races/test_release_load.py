"""Load of claims and releases on two hosts: the stored data is exactly what the service acknowledged.

Each of 16 clients has consumers of its own. They claim on one host nearly always, so that the two workers
form batches of claims and releases. Other clients change the inventories and traits of the hosts meanwhile.
`pytest --hypothesis-profile=deep` runs a million operations.
"""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from tests.conftest import examples
from tests.races.helpers import repeatedly
from tests.races.test_load import (
    CLIENTS,
    Ledger,
    change_inventories,
    change_traits,
    create_host,
)
from tests.support.database_statistics import count_deadlocks
from tests.support.service import Client, Service
from tests.support.soundness import audit_faults
from tests.support.stored_allocations import (
    count_overcommitting_commits,
    stored_consumers,
)

pytestmark = pytest.mark.long

MOST_CONSUMERS = 4
"""Consumers of a client; with more, it releases one."""


@pytest.fixture(autouse=True)
def _audited(served_engine: Engine) -> Iterator[None]:
    """Audit the database after each test."""
    yield
    # An inventory may have shrunk after it was claimed; the count of commits takes that into account.
    assert audit_faults(served_engine).keys() <= {"allocations that exceed the capacity"}
    assert count_overcommitting_commits(served_engine) == 0
    assert count_deadlocks(served_engine) == 0


def claim(client: Client, ledger: Ledger, uuid: str, host: str) -> bool:
    """Claim one or two units for a new consumer, or move a consumer; return whether that was granted."""
    wanted = {host: {"VCPU": random.randint(1, 2), "DISK_GB": 1}}
    response = client("PUT", f"/allocations/{uuid}", ledger.claim(uuid, wanted))
    if response.status == 204:
        ledger.acknowledged({uuid: wanted})
    else:
        assert "exceed the capacity" in response.problem, response
    return response.status == 204


def release(client: Client, ledger: Ledger, uuid: str) -> None:
    """Release a consumer, and sometimes once more, which must not find it."""
    for status in random.choice([[204], [204, 404]]):
        assert client("DELETE", f"/allocations/{uuid}").status == status
    ledger.acknowledged({uuid: {}})


def operate(client: Client, ledger: Ledger, hot: str, other: str) -> bool:
    """Claim for a new consumer, move one or release one; return whether a claim was refused."""
    host = random.choices([hot, other], [4, 1])[0]
    kind = random.choice(["claim", "claim", "release", "move"])
    if ledger.consumers and (kind == "release" or len(ledger.consumers) > MOST_CONSUMERS):
        release(client, ledger, random.choice(list(ledger.consumers)))
        return False
    if ledger.consumers and kind == "move":
        return not claim(client, ledger, random.choice(list(ledger.consumers)), host)
    return not claim(client, ledger, str(uuid4()), host)


@pytest.mark.parametrize("all_fit", [True, False])
def test_claims_and_releases_are_stored_as_acknowledged(
    service: Service, served_engine: Engine, all_fit: bool
) -> None:
    capacity = CLIENTS * (MOST_CONSUMERS + 1) * 2 if all_fit else CLIENTS
    hot, other = (create_host(service.client(), {"VCPU": capacity, "DISK_GB": capacity}) for _ in range(2))
    ledgers = [Ledger() for _ in range(CLIENTS)]
    before = stored_consumers(served_engine)

    def act(ledger: Ledger) -> int:
        client = service.client()
        return sum(operate(client, ledger, hot, other) for _ in range(examples(60, deep=31_250)))

    clients = [service.client() for _ in range(2)]
    with (
        repeatedly(
            lambda: change_inventories(clients[0], [hot, other], capacity),
            lambda: change_traits(clients[1], [hot, other], capacity),
        ),
        ThreadPoolExecutor(CLIENTS) as threads,
    ):
        refused = sum(threads.map(act, ledgers))
    assert (refused == 0) == all_fit
    acknowledged = {uuid: found for ledger in ledgers for uuid, found in ledger.consumers.items()}
    stored = stored_consumers(served_engine)
    assert {uuid: stored[uuid] for uuid in stored.keys() - before.keys()} == acknowledged
