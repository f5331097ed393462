"""Many clients of a real service on few hosts: what it acknowledged is what is stored, and nothing else.

Each of 16 clients has consumers of its own, and writes down what it was told that they hold. Others change
inventories, traits and trees meanwhile. A million operations with `pytest --hypothesis-profile=deep`.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from tests.conftest import examples
from tests.support.service import Answer, Client, Service
from tests.support.soundness import unsound

pytestmark = pytest.mark.long

CLIENTS = 16
CONSUMERS = 4
"""Consumers of each client."""

HOSTS = 3
MOST = 6
"""The most that one consumer holds of one host."""

OVERCOMMITTED = text("""
    SELECT count(*)
      FROM (SELECT used, capacity,
                   lag(used, 1, CAST(0 AS bigint)) OVER (
                       PARTITION BY provider_id, resource_class_id ORDER BY id
                   ) AS before
              FROM seen) AS history
     WHERE used > capacity AND used > before
""")
"""The commits that left more used of an inventory than there is, and more than before."""

STORED = text("""
    SELECT consumers.uuid, consumers.generation, resource_providers.uuid, resource_classes.name, used
      FROM consumers
      LEFT JOIN allocations ON consumer_id = consumers.id
      LEFT JOIN resource_providers ON resource_providers.id = provider_id
      LEFT JOIN resource_classes ON resource_classes.id = resource_class_id
""")

Held = dict[str, dict[str, int]]
"""Amounts by provider uuid and resource class."""


class Ledger:
    """What a client was told that its consumers hold, with their generations."""

    def __init__(self) -> None:
        self.uuids = [str(uuid4()) for _ in range(CONSUMERS)]
        self.held: dict[str, tuple[int, Held]] = {}

    def stated(self, uuid: str, wanted: Held) -> dict[str, Any]:
        """Return the claim of a consumer, as a body."""
        return {
            "allocations": {provider: {"resources": amounts} for provider, amounts in wanted.items()},
            "consumer_generation": self.held[uuid][0] if uuid in self.held else None,
            "project_id": random.choice("abc"),
            "user_id": random.choice("de"),
            "consumer_type": random.choice(["INSTANCE", "MIGRATION"]),
        }

    def acknowledged(self, claims: Mapping[str, Held]) -> None:
        """Write down what is held from now on."""
        for uuid, wanted in claims.items():
            generation, _ = self.held.pop(uuid, (0, {}))
            if wanted:
                self.held[uuid] = generation + 1, wanted


def root(client: Client, inventories: dict[str, int]) -> str:
    """Create a provider with inventories, by their totals, and return its uuid."""
    uuid = str(uuid4())
    assert client("POST", "/resource_providers", {"name": uuid, "uuid": uuid}).status == 200
    assert client("PUT", f"/resource_providers/{uuid}/inventories", totals(0, inventories)).status == 200
    return uuid


def totals(generation: int, inventories: dict[str, int]) -> dict[str, Any]:
    return {
        "resource_provider_generation": generation,
        "inventories": {name: {"total": total} for name, total in inventories.items()},
    }


def some(hosts: list[str]) -> Held:
    """Return something to hold of one or two hosts."""
    return {
        host: {"VCPU": random.randint(1, MOST), "DISK_GB": random.randint(1, MOST)}
        for host in random.sample(hosts, random.randint(1, 2))
    }


def operate(client: Client, ledger: Ledger, hosts: list[str], is_fine: Callable[[Answer], bool]) -> None:
    """Send a random write of one or two consumers, and note what it did; its answer must be fine."""
    one, other = random.sample(ledger.uuids, 2)
    kind = random.choice(["claim", "claim", "claim", "move", "swap", "empty", "delete"])
    if kind == "delete":
        answer = client("DELETE", f"/allocations/{one}")
        assert answer.status == (204 if one in ledger.held else 404), answer
        ledger.acknowledged({one: {}})
        return
    if kind == "move" and one in ledger.held:
        claims = {one: {}, other: ledger.held[one][1]}
    elif kind == "swap":
        claims = {one: some(hosts), other: some(hosts)}
    else:
        claims = {one: {} if kind == "empty" else some(hosts)}
    bodies = {uuid: ledger.stated(uuid, wanted) for uuid, wanted in claims.items()}
    if len(claims) == 1:
        answer = client("PUT", f"/allocations/{one}", bodies[one])
    else:
        answer = client("POST", "/allocations", bodies)
    assert is_fine(answer), answer
    if answer.status == 204:
        ledger.acknowledged(claims)


def outdated(answer: Answer) -> bool:
    return answer.status == 409 and answer.body["errors"][0]["code"] == "placement.concurrent_update"


def change_inventories(client: Client, hosts: list[str], capacity: int) -> None:
    """Let a host have a bit more, or a class more, than it has to."""
    path = f"/resource_providers/{random.choice(hosts)}"
    generation = client("GET", path).body["generation"]
    wanted = {name: capacity + random.randint(0, 1) for name in ("VCPU", "DISK_GB")}
    wanted |= random.choice([{}, {"VGPU": 4}])
    answer = client("PUT", f"{path}/inventories", totals(generation, wanted))
    assert answer.status == 200 or outdated(answer), answer


def change_traits(client: Client, hosts: list[str], _: int) -> None:
    """Give a host other traits."""
    path = f"/resource_providers/{random.choice(hosts)}"
    generation = client("GET", path).body["generation"]
    traits = random.sample(["HW_CPU_X86_AVX", "HW_CPU_X86_SSE", "STORAGE_DISK_SSD"], 2)
    body = {"resource_provider_generation": generation, "traits": traits}
    answer = client("PUT", f"{path}/traits", body)
    assert answer.status == 200 or outdated(answer), answer


def change_tree(client: Client, hosts: list[str], _: int) -> None:
    """Hang a host below another one, or let it stand alone, under a new name."""
    host, above = random.sample(hosts, 2)
    parent = random.choice([None, above])
    path = f"/resource_providers/{host}"
    answer = client("PUT", path, {"name": str(uuid4()), "parent_provider_uuid": parent})
    assert answer.status == 200 or "creating loop" in answer.problem, answer


def reshape(client: Client, ledger: Ledger, sides: list[str]) -> None:
    """Let PCI devices go from one side to the other, with the consumer that holds all of them."""
    [uuid] = ledger.uuids[:1]
    here = next(iter(ledger.held[uuid][1]))
    [there] = [side for side in sides if side != here]
    generations = {
        side: client("GET", f"/resource_providers/{side}").body["generation"] for side in (here, there)
    }
    inventories = {here: {"VCPU": 999}, there: {"VCPU": 999, "PCI_DEVICE": 8}}
    claims = {uuid: {there: {"PCI_DEVICE": 8}}}
    answer = client(
        "POST",
        "/reshaper",
        {
            "inventories": {side: totals(generations[side], inventories[side]) for side in sides},
            "allocations": {uuid: ledger.stated(uuid, wanted) for uuid, wanted in claims.items()},
        },
    )
    assert answer.status == 204 or outdated(answer), answer
    if answer.status == 204:
        ledger.acknowledged(claims)


@contextmanager
def meanwhile(*disturbances: Callable[[], None]) -> Iterator[None]:
    """Do each again and again as long as the block runs."""
    enough = Event()

    def repeat(disturbance: Callable[[], None]) -> None:
        while not enough.is_set():
            disturbance()

    with ThreadPoolExecutor(len(disturbances)) as threads:
        running = [threads.submit(repeat, disturbance) for disturbance in disturbances]
        try:
            yield
        finally:
            enough.set()
        for one in running:
            one.result()


def stored(engine: Engine) -> dict[str, tuple[int, Held]]:
    """Return what is stored of all consumers."""
    held: dict[str, tuple[int, Held]] = {}
    with engine.connect() as connection:
        for uuid, generation, provider, name, used in connection.execute(STORED):
            _, amounts = held.setdefault(uuid, (generation, {}))
            amounts.setdefault(provider, {})[name] = used
    return held


@pytest.fixture(autouse=True)
def _books(served_engine: Engine) -> Iterator[None]:
    """Empty the database, and balance the books after each test."""
    with served_engine.begin() as connection:
        for table in (
            "allocations",
            "consumers",
            "inventories",
            "provider_traits",
            "resource_providers",
            "seen",
        ):
            connection.execute(text(f"DELETE FROM {table}"))
    yield
    # What was there when it was claimed may be gone by now: OVERCOMMITTED knows.
    assert unsound(served_engine).keys() <= {"allocations over the capacity"}
    with served_engine.connect() as connection:
        assert connection.scalar(OVERCOMMITTED) == 0
        deadlocks = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert connection.scalar(deadlocks) == 0


@pytest.mark.parametrize("everybody_fits", [True, False])
def test_what_is_acknowledged_is_what_is_stored(
    service: Service, served_engine: Engine, everybody_fits: bool
) -> None:
    capacity = CLIENTS * CONSUMERS * MOST if everybody_fits else CLIENTS * CONSUMERS
    hosts = [root(service.client(), {"VCPU": capacity, "DISK_GB": capacity}) for _ in range(HOSTS)]
    sides = [root(service.client(), {"VCPU": 999, "PCI_DEVICE": 8}) for _ in range(2)]
    ledgers = [Ledger() for _ in range(CLIENTS)]
    reshaped = Ledger()
    claim = {sides[0]: {"PCI_DEVICE": 8}}
    path = f"/allocations/{reshaped.uuids[0]}"
    assert service.client()("PUT", path, reshaped.stated(reshaped.uuids[0], claim)).status == 204
    reshaped.acknowledged({reshaped.uuids[0]: claim})

    def is_fine(answer: Answer) -> bool:
        return answer.status == 204 or (not everybody_fits and "exceed the capacity" in answer.problem)

    def act(ledger: Ledger) -> None:
        client = service.client()
        for _ in range(examples(40 if everybody_fits else 25, deep=31_250)):
            operate(client, ledger, hosts, is_fine)

    clients = [service.client() for _ in range(4)]
    with (
        meanwhile(
            lambda: change_inventories(clients[0], hosts, capacity),
            lambda: change_traits(clients[1], hosts, capacity),
            lambda: change_tree(clients[2], hosts, capacity),
            lambda: reshape(clients[3], reshaped, sides),
        ),
        ThreadPoolExecutor(CLIENTS) as threads,
    ):
        list(threads.map(act, ledgers))
    told = {uuid: held for ledger in [*ledgers, reshaped] for uuid, held in ledger.held.items()}
    assert stored(served_engine) == told
    assert reshaped.held[reshaped.uuids[0]][0] > 1


def test_all_get_in_until_there_is_exactly_nothing_left(service: Service) -> None:
    each = 12
    hosts = [root(service.client(), {"VCPU": CLIENTS * each}) for _ in range(2)]

    def act(_: int) -> list[int]:
        client, ledger = service.client(), Ledger()
        bodies = [ledger.stated(ledger.uuids[0], {host: {"VCPU": 1} for host in hosts})] * each
        return [client("PUT", f"/allocations/{uuid4()}", body).status for body in bodies]

    with ThreadPoolExecutor(CLIENTS) as threads:
        answers = [status for statuses in threads.map(act, range(CLIENTS)) for status in statuses]
    assert answers == [204] * CLIENTS * each
    for host in hosts:
        usages = service.client()("GET", f"/resource_providers/{host}/usages").body["usages"]
        assert usages == {"VCPU": CLIENTS * each}
    ledger = Ledger()
    late = ledger.stated(ledger.uuids[0], {hosts[0]: {"VCPU": 1}})
    assert "exceed the capacity" in service.client()("PUT", f"/allocations/{uuid4()}", late).problem


@pytest.mark.parametrize("everybody_fits", [True, False])
def test_claims_that_go_together_are_as_good_as_alone(
    service: Service, served_engine: Engine, everybody_fits: bool
) -> None:
    claims = examples(40, deep=2500)
    host = root(service.client(), {"VCPU": CLIENTS * claims if everybody_fits else CLIENTS // 2})

    def act(_: int) -> tuple[int, dict[str, tuple[int, Held]]]:
        client, ledger, won = service.client(), Ledger(), 0
        for _ in range(claims):
            uuid, wanted = str(uuid4()), {host: {"VCPU": 1}}
            answer = client("PUT", f"/allocations/{uuid}", ledger.stated(uuid, wanted))
            if answer.status == 204:
                won += 1
                ledger.acknowledged({uuid: wanted})
            else:
                assert not everybody_fits
                assert "exceed the capacity" in answer.problem, answer
            if not everybody_fits and ledger.held:
                uuid = random.choice(list(ledger.held))
                assert client("DELETE", f"/allocations/{uuid}").status == 204
                ledger.acknowledged({uuid: {}})
        return won, ledger.held

    with ThreadPoolExecutor(CLIENTS) as threads:
        acted = list(threads.map(act, range(CLIENTS)))
    assert stored(served_engine) == {uuid: held for _, each in acted for uuid, held in each.items()}
    won = sum(number for number, _ in acted)
    # The inventory has raised it as well.
    assert service.client()("GET", f"/resource_providers/{host}").body["generation"] == 1 + won
    if everybody_fits:
        assert won == CLIENTS * claims
        with served_engine.connect() as connection:
            times = connection.scalars(text("SELECT DISTINCT created_at FROM allocations")).all()
        assert len(times) < won


def test_each_generation_of_a_shared_consumer_is_written_once(service: Service) -> None:
    host = root(service.client(), {"VCPU": 10_000})
    consumers = [str(uuid4()) for _ in range(3)]

    def act(_: int) -> dict[tuple[str, int], int]:
        client, written = service.client(), {}
        for _ in range(examples(25)):
            uuid, amount = random.choice(consumers), random.randint(1, 99)
            known = client("GET", f"/allocations/{uuid}").body
            ledger = Ledger()
            ledger.held[uuid] = known.get("consumer_generation"), {}
            answer = client("PUT", f"/allocations/{uuid}", ledger.stated(uuid, {host: {"VCPU": amount}}))
            assert answer.status == 204 or outdated(answer), answer
            if answer.status == 204:
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


def test_overcommitment_would_be_noticed(service: Service, served_engine: Engine) -> None:
    host = root(service.client(), {"VCPU": 8})
    with served_engine.connect() as connection:
        for used, overcommitted in [(8, 0), (9, 1), (8, 1), (9, 2)]:
            connection.execute(text("UPDATE inventories SET used = :used"), {"used": used})
            connection.commit()
            assert connection.scalar(OVERCOMMITTED) == overcommitted
        connection.execute(text("DELETE FROM inventories"))
        connection.execute(text("DELETE FROM seen"))
        connection.commit()
    assert service.client()("GET", f"/resource_providers/{host}/usages").body["usages"] == {}
