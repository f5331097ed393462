"""Load on a running service with few hosts: the stored data is exactly what the service acknowledged.

Each of 16 clients has consumers of its own and records the acknowledged allocations. Other clients change
inventories, traits and trees meanwhile. `pytest --hypothesis-profile=deep` runs a million operations.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from tests.conftest import examples
from tests.races.helpers import repeatedly
from tests.support.database_statistics import count_deadlocks
from tests.support.service import Answer, Client, Service
from tests.support.soundness import audit_faults
from tests.support.stored_allocations import (
    Allocations,
    count_overcommitting_commits,
    stored_consumers,
)

pytestmark = pytest.mark.long

CLIENTS = 16
CONSUMERS = 4
"""Consumers of each client."""

HOSTS = 3
MAX_AMOUNT = 6
"""The largest amount that one consumer has on one host."""


class Ledger:
    """The acknowledged allocations of a client's consumers, with their generations."""

    def __init__(self) -> None:
        self.uuids = [str(uuid4()) for _ in range(CONSUMERS)]
        self.consumers: dict[str, tuple[int, Allocations]] = {}

    def claim(self, uuid: str, wanted: Allocations) -> dict[str, Any]:
        """Return the request body of a consumer's claim."""
        return {
            "allocations": {provider: {"resources": amounts} for provider, amounts in wanted.items()},
            "consumer_generation": self.consumers[uuid][0] if uuid in self.consumers else None,
            "project_id": random.choice("abc"),
            "user_id": random.choice("de"),
            "consumer_type": random.choice(["INSTANCE", "MIGRATION"]),
        }

    def acknowledged(self, claims: Mapping[str, Allocations]) -> None:
        """Record acknowledged claims."""
        for uuid, wanted in claims.items():
            generation, _ = self.consumers.pop(uuid, (0, {}))
            if wanted:
                self.consumers[uuid] = generation + 1, wanted


def create_host(client: Client, inventories: dict[str, int]) -> str:
    """Create a provider with inventories, by their totals, and return its uuid."""
    uuid = str(uuid4())
    assert client("POST", "/resource_providers", {"name": uuid, "uuid": uuid}).status == 200
    assert client("PUT", f"/resource_providers/{uuid}/inventories", totals(0, inventories)).status == 200
    return uuid


def totals(generation: int, inventories: dict[str, int]) -> dict[str, Any]:
    """Return the request body of inventories with these totals."""
    return {
        "resource_provider_generation": generation,
        "inventories": {name: {"total": total} for name, total in inventories.items()},
    }


def random_allocations(hosts: list[str]) -> Allocations:
    """Return random allocations on one or two hosts."""
    return {
        host: {"VCPU": random.randint(1, MAX_AMOUNT), "DISK_GB": random.randint(1, MAX_AMOUNT)}
        for host in random.sample(hosts, random.randint(1, 2))
    }


def operate(client: Client, ledger: Ledger, hosts: list[str], is_expected: Callable[[Answer], bool]) -> None:
    """Send a random write of one or two consumers, check the response and record the write."""
    one, other = random.sample(ledger.uuids, 2)
    kind = random.choice(["claim", "claim", "claim", "move", "swap", "empty", "delete"])
    if kind == "delete":
        response = client("DELETE", f"/allocations/{one}")
        assert response.status == (204 if one in ledger.consumers else 404), response
        ledger.acknowledged({one: {}})
        return
    if kind == "move" and one in ledger.consumers:
        claims = {one: {}, other: ledger.consumers[one][1]}
    elif kind == "swap":
        claims = {one: random_allocations(hosts), other: random_allocations(hosts)}
    else:
        claims = {one: {} if kind == "empty" else random_allocations(hosts)}
    bodies = {uuid: ledger.claim(uuid, wanted) for uuid, wanted in claims.items()}
    if len(claims) == 1:
        response = client("PUT", f"/allocations/{one}", bodies[one])
    else:
        response = client("POST", "/allocations", bodies)
    assert is_expected(response), response
    if response.status == 204:
        ledger.acknowledged(claims)


def is_generation_conflict(response: Answer) -> bool:
    return response.status == 409 and response.body["errors"][0]["code"] == "placement.concurrent_update"


def change_inventories(client: Client, hosts: list[str], capacity: int) -> None:
    """Give a host its capacity or one unit more, with or without a further class."""
    path = f"/resource_providers/{random.choice(hosts)}"
    generation = client("GET", path).body["generation"]
    wanted = {name: capacity + random.randint(0, 1) for name in ("VCPU", "DISK_GB")}
    wanted |= random.choice([{}, {"VGPU": 4}])
    response = client("PUT", f"{path}/inventories", totals(generation, wanted))
    assert response.status == 200 or is_generation_conflict(response), response


def change_traits(client: Client, hosts: list[str], _: int) -> None:
    """Replace the traits of a host."""
    path = f"/resource_providers/{random.choice(hosts)}"
    generation = client("GET", path).body["generation"]
    traits = random.sample(["HW_CPU_X86_AVX", "HW_CPU_X86_SSE", "STORAGE_DISK_SSD"], 2)
    body = {"resource_provider_generation": generation, "traits": traits}
    response = client("PUT", f"{path}/traits", body)
    assert response.status == 200 or is_generation_conflict(response), response


def change_tree(client: Client, hosts: list[str], _: int) -> None:
    """Move a host below another one or make it a root, and rename it."""
    host, other = random.sample(hosts, 2)
    parent = random.choice([None, other])
    path = f"/resource_providers/{host}"
    response = client("PUT", path, {"name": str(uuid4()), "parent_provider_uuid": parent})
    assert response.status == 200 or "creating loop" in response.problem, response


def reshape(client: Client, ledger: Ledger, providers: list[str]) -> None:
    """Move PCI devices from one provider to the other, with the consumer that uses all of them."""
    [uuid] = ledger.uuids[:1]
    source = next(iter(ledger.consumers[uuid][1]))
    [target] = [provider for provider in providers if provider != source]
    generations = {
        provider: client("GET", f"/resource_providers/{provider}").body["generation"]
        for provider in (source, target)
    }
    inventories = {source: {"VCPU": 999}, target: {"VCPU": 999, "PCI_DEVICE": 8}}
    claims = {uuid: {target: {"PCI_DEVICE": 8}}}
    response = client(
        "POST",
        "/reshaper",
        {
            "inventories": {
                provider: totals(generations[provider], inventories[provider]) for provider in providers
            },
            "allocations": {uuid: ledger.claim(uuid, wanted) for uuid, wanted in claims.items()},
        },
    )
    assert response.status == 204 or is_generation_conflict(response), response
    if response.status == 204:
        ledger.acknowledged(claims)


@pytest.fixture(autouse=True)
def _audited(served_engine: Engine) -> Iterator[None]:
    """Empty the database before each test and audit it afterwards."""
    with served_engine.begin() as connection:
        for table in (
            "allocations",
            "consumers",
            "inventories",
            "provider_traits",
            "resource_providers",
            "usage_history",
        ):
            connection.execute(text(f"DELETE FROM {table}"))
    yield
    # An inventory may have shrunk after it was claimed; the count of commits takes that into account.
    assert audit_faults(served_engine).keys() <= {"allocations that exceed the capacity"}
    assert count_overcommitting_commits(served_engine) == 0
    assert count_deadlocks(served_engine) == 0


@pytest.mark.parametrize("all_fit", [True, False])
def test_stored_data_is_what_was_acknowledged(service: Service, served_engine: Engine, all_fit: bool) -> None:
    capacity = CLIENTS * CONSUMERS * MAX_AMOUNT if all_fit else CLIENTS * CONSUMERS
    hosts = [create_host(service.client(), {"VCPU": capacity, "DISK_GB": capacity}) for _ in range(HOSTS)]
    pci_providers = [create_host(service.client(), {"VCPU": 999, "PCI_DEVICE": 8}) for _ in range(2)]
    ledgers = [Ledger() for _ in range(CLIENTS)]
    reshaped = Ledger()
    claim = {pci_providers[0]: {"PCI_DEVICE": 8}}
    path = f"/allocations/{reshaped.uuids[0]}"
    assert service.client()("PUT", path, reshaped.claim(reshaped.uuids[0], claim)).status == 204
    reshaped.acknowledged({reshaped.uuids[0]: claim})

    def is_expected(response: Answer) -> bool:
        return response.status == 204 or (not all_fit and "exceed the capacity" in response.problem)

    def act(ledger: Ledger) -> None:
        client = service.client()
        for _ in range(examples(40 if all_fit else 25, deep=31_250)):
            operate(client, ledger, hosts, is_expected)

    clients = [service.client() for _ in range(4)]
    with (
        repeatedly(
            lambda: change_inventories(clients[0], hosts, capacity),
            lambda: change_traits(clients[1], hosts, capacity),
            lambda: change_tree(clients[2], hosts, capacity),
            lambda: reshape(clients[3], reshaped, pci_providers),
        ),
        ThreadPoolExecutor(CLIENTS) as threads,
    ):
        list(threads.map(act, ledgers))
    acknowledged = {
        uuid: consumer for ledger in [*ledgers, reshaped] for uuid, consumer in ledger.consumers.items()
    }
    assert stored_consumers(served_engine) == acknowledged
    assert reshaped.consumers[reshaped.uuids[0]][0] > 1


def test_concurrent_claims_that_fill_the_capacity_are_all_granted(service: Service) -> None:
    each = 12
    hosts = [create_host(service.client(), {"VCPU": CLIENTS * each}) for _ in range(2)]

    def act(_: int) -> list[int]:
        client, ledger = service.client(), Ledger()
        bodies = [ledger.claim(ledger.uuids[0], {host: {"VCPU": 1} for host in hosts})] * each
        return [client("PUT", f"/allocations/{uuid4()}", body).status for body in bodies]

    with ThreadPoolExecutor(CLIENTS) as threads:
        responses = [status for statuses in threads.map(act, range(CLIENTS)) for status in statuses]
    assert responses == [204] * CLIENTS * each
    for host in hosts:
        usages = service.client()("GET", f"/resource_providers/{host}/usages").body["usages"]
        assert usages == {"VCPU": CLIENTS * each}
    ledger = Ledger()
    too_late = ledger.claim(ledger.uuids[0], {hosts[0]: {"VCPU": 1}})
    assert "exceed the capacity" in service.client()("PUT", f"/allocations/{uuid4()}", too_late).problem


@pytest.mark.parametrize("all_fit", [True, False])
def test_batched_claims_are_stored_like_single_claims(
    service: Service, served_engine: Engine, all_fit: bool
) -> None:
    claims = examples(40, deep=2500)
    host = create_host(service.client(), {"VCPU": CLIENTS * claims if all_fit else CLIENTS // 2})

    def act(_: int) -> tuple[int, dict[str, tuple[int, Allocations]]]:
        client, ledger, granted = service.client(), Ledger(), 0
        for _ in range(claims):
            uuid, wanted = str(uuid4()), {host: {"VCPU": 1}}
            response = client("PUT", f"/allocations/{uuid}", ledger.claim(uuid, wanted))
            if response.status == 204:
                granted += 1
                ledger.acknowledged({uuid: wanted})
            else:
                assert not all_fit
                assert "exceed the capacity" in response.problem, response
            if not all_fit and ledger.consumers:
                uuid = random.choice(list(ledger.consumers))
                assert client("DELETE", f"/allocations/{uuid}").status == 204
                ledger.acknowledged({uuid: {}})
        return granted, ledger.consumers

    with ThreadPoolExecutor(CLIENTS) as threads:
        results = list(threads.map(act, range(CLIENTS)))
    assert stored_consumers(served_engine) == {
        uuid: consumer for _, consumers in results for uuid, consumer in consumers.items()
    }
    granted = sum(number for number, _ in results)
    # The write of the inventory has incremented it once.
    assert service.client()("GET", f"/resource_providers/{host}").body["generation"] == 1 + granted
    if all_fit:
        assert granted == CLIENTS * claims
        with served_engine.connect() as connection:
            times = connection.scalars(text("SELECT DISTINCT created_at FROM allocations")).all()
        assert len(times) < granted


def test_each_generation_of_a_shared_consumer_is_written_once(service: Service) -> None:
    host = create_host(service.client(), {"VCPU": 10_000})
    consumers = [str(uuid4()) for _ in range(3)]

    def act(_: int) -> dict[tuple[str, int], int]:
        client, written = service.client(), {}
        for _ in range(examples(25)):
            uuid, amount = random.choice(consumers), random.randint(1, 99)
            known = client("GET", f"/allocations/{uuid}").body
            ledger = Ledger()
            ledger.consumers[uuid] = known.get("consumer_generation"), {}
            response = client("PUT", f"/allocations/{uuid}", ledger.claim(uuid, {host: {"VCPU": amount}}))
            assert response.status == 204 or is_generation_conflict(response), response
            if response.status == 204:
                written[uuid, known.get("consumer_generation", 0) + 1] = amount
        return written

    with ThreadPoolExecutor(8) as threads:
        found = [write for written in threads.map(act, range(8)) for write in written.items()]
    generations = sorted(write for write, _ in found)
    assert generations == [
        (uuid, generation)
        for uuid in sorted(consumers)
        for generation in range(1, 1 + [named for named, _ in generations].count(uuid))
    ]
    amounts = dict(found)
    for uuid in consumers:
        now = service.client()("GET", f"/allocations/{uuid}").body
        amount = now["allocations"][host]["resources"]["VCPU"]
        assert amounts[uuid, now["consumer_generation"]] == amount


def test_overcommitted_counts_commits_beyond_the_capacity(service: Service, served_engine: Engine) -> None:
    host = create_host(service.client(), {"VCPU": 8})
    with served_engine.connect() as connection:
        for used, overcommitted in [(8, 0), (9, 1), (8, 1), (9, 2)]:
            connection.execute(text("UPDATE inventories SET used = :used"), {"used": used})
            connection.commit()
            assert count_overcommitting_commits(served_engine) == overcommitted
        connection.execute(text("DELETE FROM inventories"))
        connection.execute(text("DELETE FROM usage_history"))
        connection.commit()
    assert service.client()("GET", f"/resource_providers/{host}/usages").body["usages"] == {}
