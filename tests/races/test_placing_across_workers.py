"""POST /claims at eight workers: no broken rule, and no refusal while there is room.

Each client records what the service has acknowledged. A test makes `RACE_PLACEMENTS` placements.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from sqlalchemy import Engine, text

from tests.races.helpers import repeatedly
from tests.support.database_statistics import count_deadlocks
from tests.support.placement_race import (
    DEVICES,
    FUNCTIONS,
    VCPUS,
    Cloud,
    Placer,
    Pool,
    create_cloud,
    create_pools,
    create_provider,
    inventories,
    new_uuids,
)
from tests.support.service import Client, Service, serving
from tests.support.soundness import audit_faults
from tests.support.stored_allocations import (
    RECORD_BROKEN_GROUPS,
    count_overcommitting_commits,
    stored_consumers,
    stored_members,
)

pytestmark = pytest.mark.long

PLACEMENTS = int(os.environ.get("RACE_PLACEMENTS", "1000"))
WORKERS = 8
CLIENTS = 12
CONSUMERS = 8
"""The most consumers that a client keeps."""

SECONDS = 600
"""A time limit that no request exceeds, however busy the machine is."""


@pytest.fixture(scope="module")
def racing_engine(served_engine: Engine) -> Engine:
    """An engine of the service's database, which records broken groups at each commit."""
    with served_engine.begin() as connection:
        for statement in RECORD_BROKEN_GROUPS:
            connection.execute(text(statement))
    return served_engine


@pytest.fixture(scope="module")
def service(racing_engine: Engine) -> Iterator[Service]:
    """The running service, with eight workers."""
    url = racing_engine.url.render_as_string(hide_password=False)
    limits = {"request_deadline": SECONDS, "lock_timeout": SECONDS, "statement_timeout": SECONDS}
    # On a busy machine every request may take longer than 0.1 s, and none may be refused for that.
    with serving(workers=WORKERS, database_url=url, pool_size=2 * CLIENTS, **limits) as service:
        yield service


@pytest.fixture
def cloud(service: Service, racing_engine: Engine) -> Iterator[Cloud]:
    """An empty cloud of hosts; afterwards, nothing has been overcommitted and no group was ever broken."""
    with racing_engine.begin() as connection:
        for table in ("allocations", "consumers", "inventories", "provider_aggregates", "usage_history"):
            connection.execute(text(f"DELETE FROM {table}"))
        connection.execute(text("DELETE FROM resource_providers WHERE parent_id IS NOT NULL"))
        connection.execute(text("DELETE FROM resource_providers"))
    yield create_cloud(service.client())
    # An inventory may have shrunk after it was claimed; the count of commits takes that into account.
    assert audit_faults(racing_engine).keys() <= {"allocations that exceed the capacity"}
    assert count_overcommitting_commits(racing_engine) == 0
    assert count_deadlocks(racing_engine) == 0
    with racing_engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM broken_groups")) == 0


@pytest.fixture
def placers(service: Service, racing_engine: Engine) -> Iterator[list[Placer]]:
    """The clients; afterwards, exactly what was acknowledged is stored, and no refusal was undue."""
    placers = [Placer(service.client(keeps_alive=False)) for _ in range(CLIENTS)]
    yield placers
    print(
        f"{sum(placer.placements for placer in placers)} placements,"
        f" {sum(placer.attempts for placer in placers)} attempts,"
        f" {sum(len(placer.undue_refusals) for placer in placers)} undue refusals"
    )
    assert [refusal for placer in placers for refusal in placer.undue_refusals] == []
    placed = {uuid: each for placer in placers for uuid, each in placer.placed.items()}
    assert stored_consumers(racing_engine) == {
        uuid: (each.generation, each.allocations) for uuid, each in placed.items()
    }
    assert stored_members(racing_engine) == {
        uuid: each.pool.group for uuid, each in placed.items() if each.pool.group is not None
    }


def run(placers: Sequence[Placer], act: Callable[[Placer], None]) -> None:
    """Let all clients act at the same time."""
    with ThreadPoolExecutor(len(placers)) as threads:
        list(threads.map(act, placers))


def test_calls_take_all_that_is_free(
    service: Service, racing_engine: Engine, cloud: Cloud, placers: list[Placer]
) -> None:
    """All clients claim until nothing is left in any pool, again and again."""
    hard = [pool for pool in create_pools(service.client(), cloud.racks) if "soft" not in str(pool.policy)]
    capacity = sum(pool.places for pool in hard)

    def fill(placer: Placer) -> None:
        for pool in random.sample(hard, len(hard)):
            number = 3
            while number:
                pool.take(number)
                response = placer.place(pool, new_uuids(number), all_or_none=random.random() < 0.7)
                if response.status == 200:
                    continue
                assert response.status == 409, response
                [error] = response.body["errors"]
                assert error["code"] == "placement_svc.no_candidates"
                assert error["placeable"] < number
                number = min(number - 1, error["placeable"])

    def empty(placer: Placer) -> None:
        for uuid in list(placer.placed):
            placer.delete(uuid)

    for _ in range(max(1, PLACEMENTS // capacity)):
        run(placers, fill)
        placed = Counter(each.pool for placer in placers for each in placer.placed.values())
        assert placed == {pool: pool.places for pool in hard}
        run(placers, empty)


def test_stored_placements_are_those_that_were_acknowledged(
    service: Service, cloud: Cloud, placers: list[Placer]
) -> None:
    """Clients claim, move and delete during plain claims and changes of providers and groups."""
    pools = create_pools(service.client(), cloud.racks)
    started = count()

    def act(placer: Placer) -> None:
        while next(started) < PLACEMENTS:
            operate(placer, pools, cloud)

    clients = [service.client(keeps_alive=False) for _ in range(3)]
    created: list[str] = []
    with repeatedly(
        lambda: change_inventories(clients[0], cloud),
        lambda: replace_hosts(clients[1], created),
        lambda: check_group(clients[2], pools),
    ):
        run(placers, act)
    assert sum(placer.placements for placer in placers) > PLACEMENTS // 2


def operate(placer: Placer, pools: Sequence[Pool], cloud: Cloud) -> None:
    """Send a random write. Calls never ask for more places than there are, so that none may be refused."""
    pool = random.choice([pools[0], *pools])
    own = placer.in_pool(pool)
    kind = random.choice(["new", "new", "new", "put", "move", "change", "delete"])
    if kind == "new" and len(placer.placed) < CONSUMERS:
        uuids = new_uuids(random.randint(1, 3))
        if pool.take_if_free(len(uuids)):
            response = placer.place(pool, uuids, all_or_none=random.random() < 0.7)
            assert response.status == 200, response
            return
    elif kind == "put" and len(placer.placed) < CONSUMERS and pools[0].take_if_free(1):
        response = placer.put(pools[0], *new_uuids(1), random.choice(cloud.hosts))
        assert response.status == 204 or "exceed the capacity" in response.problem, response
        return
    elif kind == "move" and own:
        response = placer.place(pool, random.sample(own, min(2, len(own))))
        assert response.status == 200, response
        return
    elif kind == "change" and placer.placed and pool.group is not None:
        uuid = random.choice(list(placer.placed))
        if uuid not in own and pool.take_if_free(1):
            assert placer.place(pool, [uuid]).status == 200
            return
    if placer.placed:
        placer.delete(random.choice(list(placer.placed)))


def change_inventories(client: Client, cloud: Cloud) -> None:
    """Give a provider its capacity or one unit more of each class, with or without a further class."""
    host = random.random() < 0.5
    path = f"/resource_providers/{random.choice(cloud.hosts if host else cloud.devices)}"
    totals = {"VCPU": VCPUS, "SRIOV_NET_VF": FUNCTIONS} if host else {"PCI_DEVICE": DEVICES}
    generation = client.result("GET", path)["generation"]
    wanted = {name: total + random.randint(0, 1) for name, total in totals.items()}
    wanted |= random.choice([{}, {"VGPU": 4}])
    response = client("PUT", f"{path}/inventories", inventories(generation, wanted))
    conflict = response.status == 409 and response.body["errors"][0]["code"] == "placement.concurrent_update"
    assert response.status == 200 or conflict, response


def replace_hosts(client: Client, created: list[str]) -> None:
    """Create a host with free VCPU, and delete the created ones that nobody uses."""
    if len(created) < 3:
        created.append(create_provider(client, {"VCPU": 1}))
    for uuid in list(created):
        response = client("DELETE", f"/resource_providers/{uuid}")
        if response.status == 204:
            created.remove(uuid)
        else:
            assert response.body["errors"][0]["code"] == "placement.resource_provider.inuse", response


def check_group(client: Client, pools: Sequence[Pool]) -> None:
    """Check that a group is not broken, and write its policy again while it has members."""
    pool = random.choice(pools[1:])
    path = f"/placement_groups/{pool.group}"
    shown = client.result("GET", path)
    assert len(shown["members"]) <= pool.places
    if "soft" not in str(pool.policy):
        assert shown["violations"] == []
    if shown["members"]:
        body = {key: shown[key] for key in ("policy", "max_per_domain", "across")}
        assert client.result("PUT", path, body)["uuid"] == pool.group
