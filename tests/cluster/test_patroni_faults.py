"""Faults of a PostgreSQL cluster under Patroni: no acknowledged claim is lost, and no refused one is stored.

`CLUSTER_SECONDS=3600 CLUSTER_SEED=1 .venv/bin/pytest -n 0 -s -m cluster tests/cluster` draws faults for an
hour. Without `CLUSTER_SECONDS`, one short round of a few faults runs. The test prints the seconds without a
claim for each fault.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from placement_svc.db import schema
from placement_svc.db.engine import connect
from tests.cluster.load import Load
from tests.cluster.patroni_cluster import PATRONI, Node, PatroniCluster, patroni_cluster, wait_for
from tests.support.service import Service, serving

pytestmark = pytest.mark.cluster

SECONDS = int(os.environ.get("CLUSTER_SECONDS", 0))
SEED = int(os.environ.get("CLUSTER_SEED", 0))

CLIENTS = 6
HOSTS = [str(uuid4()) for _ in range(4)]
CAPACITY = 30
CLAIMS = 20
"""Claims that are granted before the first fault, and again after each."""

OUTAGE_SECONDS = 15
"""How long etcd is away."""

CUT_SECONDS = 8
FROZEN_SECONDS = 20
"""How long the old primary is stopped at least."""


def kill_postgres(cluster: PatroniCluster) -> None:
    """Kill the PostgreSQL of the primary; Patroni starts it again there, or another node takes over."""
    cluster.wait_for_leader().signal_postgres(signal.SIGKILL)


def kill_primary(cluster: PatroniCluster) -> None:
    """Kill the primary and its Patroni; start them when there is another leader."""
    primary = cluster.wait_for_leader()
    primary.kill()
    cluster.wait_for_leader(other_than=primary)
    primary.start()


def synchronous_standby(cluster: PatroniCluster) -> Node:
    [name] = [member["name"] for member in cluster.members() if member["role"] == "sync_standby"]
    [standby] = [node for node in cluster.nodes if node.name == name]
    return standby


def kill_standby(cluster: PatroniCluster) -> None:
    """Kill the synchronous standby and its Patroni, and start them again."""
    standby = synchronous_standby(cluster)
    standby.kill()
    time.sleep(CUT_SECONDS)
    standby.start()


def replace_standby(cluster: PatroniCluster) -> None:
    """Kill the synchronous standby with its Patroni, and start it again without data."""
    standby = synchronous_standby(cluster)
    standby.kill()
    standby.erase()
    standby.start()


def kill_etcd(cluster: PatroniCluster) -> None:
    """Kill etcd, and start it again."""
    cluster.etcd.kill()
    time.sleep(OUTAGE_SECONDS)
    cluster.etcd.start()


def freeze_primary(cluster: PatroniCluster) -> None:
    """Stop the primary and its Patroni until there is another leader, then let both continue."""
    primary = cluster.wait_for_leader()
    started = time.monotonic()
    primary.freeze()
    try:
        cluster.wait_for_leader(other_than=primary)
        time.sleep(max(0, FROZEN_SECONDS - (time.monotonic() - started)))
    finally:
        primary.thaw()


def switch_over(cluster: PatroniCluster) -> None:
    """Ask Patroni for a planned switchover."""
    primary = cluster.wait_for_leader()
    assert primary.request("/switchover", {"leader": primary.name}) is not None
    cluster.wait_for_leader(other_than=primary)


def cut_network(cluster: PatroniCluster) -> None:
    """Cut the network between the services and the primary, which remains the primary."""
    primary = cluster.wait_for_leader()
    primary.proxy.cut()
    time.sleep(CUT_SECONDS)
    primary.proxy.restore()


Fault = Callable[[PatroniCluster], None]

FAULTS: list[Fault] = [
    kill_postgres,
    kill_primary,
    kill_standby,
    replace_standby,
    kill_etcd,
    freeze_primary,
    switch_over,
    cut_network,
]
SHORT_ROUND: list[Fault] = [kill_postgres, cut_network, switch_over]


def create_database(cluster: PatroniCluster) -> None:
    """Create the database with its schema, and wait until all nodes have it."""
    server = f"postgresql+psycopg2://postgres@127.0.0.1:{cluster.wait_for_leader().port}"
    admin = create_engine(f"{server}/postgres", isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text("CREATE DATABASE placement"))
        engine = connect(f"{server}/placement")
        schema.upgrade(engine)
        engine.dispose()
        not_replayed = text(
            "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()"
        )
        wait_for(lambda: connection.scalar(not_replayed) == 0, "a standby does not replay the schema")
    admin.dispose()


@pytest.fixture(scope="module")
def cluster(passable_dir: Path) -> Iterator[PatroniCluster]:
    """The cluster, with the database and its schema."""
    assert PATRONI.exists(), "run tests/cluster/install first"
    with patroni_cluster(passable_dir) as running:
        create_database(running)
        yield running


@pytest.fixture(scope="module")
def services(cluster: PatroniCluster) -> Iterator[list[Service]]:
    """Two services on the cluster."""
    with ExitStack() as stack:
        yield [stack.enter_context(serving(database_url=cluster.url, log_level="error")) for _ in range(2)]


def add_hosts(service: Service) -> None:
    client = service.client()
    for uuid in HOSTS:
        client.result("POST", "/resource_providers", {"name": uuid, "uuid": uuid})
        inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": CAPACITY}}}
        client.result("PUT", f"/resource_providers/{uuid}/inventories", inventories)


def faults() -> Iterator[Fault]:
    """Yield the faults of the short round, or for `CLUSTER_SECONDS` all faults in random orders."""
    if not SECONDS:
        yield from SHORT_ROUND
        return
    draw, end = random.Random(SEED), time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield from draw.sample(FAULTS, len(FAULTS))


def test_faults_lose_no_claim(cluster: PatroniCluster, services: list[Service]) -> None:
    add_hosts(services[0])
    engine = connect(cluster.url)
    load = Load(services, HOSTS, CLIENTS)
    ledger = load.ledger

    def wait_for_claims() -> None:
        number = len(ledger.granted) + CLAIMS
        wait_for(lambda: len(ledger.granted) >= number, "no claims are granted")

    with load:
        wait_for_claims()
        for fault in faults():
            print(fault.__name__, end=": ", flush=True)
            started = time.monotonic()
            fault(cluster)
            wait_for_claims()
            pause = ledger.longest_pause(started, time.monotonic())
            print(f"{pause:.1f} s without a claim; {len(ledger.granted)} granted so far", flush=True)
            cluster.wait_until_complete()
    print(f"Seed {SEED}; responses by status: {ledger.statuses}; load of the machine: {os.getloadavg()}")
    ledger.check(engine, CAPACITY)
    engine.dispose()
