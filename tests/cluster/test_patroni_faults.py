"""Faults of a PostgreSQL cluster under Patroni: no acknowledged claim is lost, and no refused one is stored.

`CLUSTER_SECONDS=3600 CLUSTER_SEED=1 .venv/bin/pytest -n 0 -s -m cluster tests/cluster` draws faults for an
hour, and only those named in `CLUSTER_FAULTS` if it is set. Without `CLUSTER_SECONDS`, one short round of a
few faults runs. The test prints for each fault how long claims and reads paused, and commits that do not go
through the service. If it fails, it writes states and logs to the directory `CLUSTER_STATES`.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from placement_svc.db.connections.engine import connect
from tests.cluster.load import Ledger, Load, add_hosts
from tests.cluster.patroni_cluster import Node, PatroniCluster, server_url, wait_for
from tests.cluster.states import states_on_failure
from tests.cluster.write_probe import WriteProbe, longest_pause
from tests.support.service import Service, serving

pytestmark = pytest.mark.cluster

SECONDS = int(os.environ.get("CLUSTER_SECONDS", 0))
ONLY = os.environ.get("CLUSTER_FAULTS", "").split()
SEED = int(os.environ.get("CLUSTER_SEED", 0))

DISK_SECONDS = 30
"""Seconds after which a full disk is freed in any case."""

STATES = Path(os.environ["CLUSTER_STATES"]) if "CLUSTER_STATES" in os.environ else None
"""The directory for the states at the first failure."""

CLIENTS = 6
READERS = 2
HOSTS = [str(uuid4()) for _ in range(4)]
CAPACITY = 30
CLAIMS = 20
"""Claims that are granted before the first fault, and again after each."""

OUTAGE_SECONDS = 15
"""How long etcd is away."""

CUT_SECONDS = 8
MAX_SEGMENTS = 200
"""Segments of the log that a primary has at most before it creates a new one."""

FROZEN_SECONDS = 20
"""How long the old primary is stopped at least."""


def kill_postgres(cluster: PatroniCluster) -> None:
    """Kill the PostgreSQL of the primary.

    Another node takes over if Patroni finds the synchronous standby healthy; else PostgreSQL starts again.
    """
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
    cluster.switch_over()


def cut_network(cluster: PatroniCluster) -> None:
    """Cut the network between the services and the primary, which remains the primary."""
    primary = cluster.wait_for_leader()
    primary.proxy.cut()
    time.sleep(CUT_SECONDS)
    primary.proxy.restore()


def kill_patroni(cluster: PatroniCluster) -> None:
    """Kill Patroni of the primary; its PostgreSQL goes on while another node becomes the primary."""
    primary = cluster.wait_for_leader()
    primary.kill_patroni()
    cluster.wait_for_leader(other_than=primary)
    time.sleep(CUT_SECONDS)
    primary.start()


def fill_disk(cluster: PatroniCluster) -> None:
    """Fill the disk of the primary, so that it cannot write its log; free it when there is another leader.

    Patroni may instead start and promote the same server again and again, until somebody frees the disk.
    """
    primary = cluster.wait_for_leader()
    primary.disk.fill()
    try:
        use_up_wal(primary)
        end = time.monotonic() + DISK_SECONDS
        while cluster.leader(other_than=primary) is None and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        primary.disk.free()


def use_up_wal(primary: Node) -> None:
    """Use up the segments of the log that exist, until PostgreSQL fails for want of a new one."""
    engine = create_engine(server_url(primary, "postgres"), isolation_level="AUTOCOMMIT")
    with suppress(OperationalError), engine.connect() as connection:
        for _ in range(MAX_SEGMENTS):
            connection.execute(text("SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()"))
    engine.dispose()


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
    kill_patroni,
]
SHORT_ROUND: list[Fault] = [kill_postgres, cut_network, switch_over]


@pytest.fixture(scope="module")
def services(cluster: PatroniCluster) -> Iterator[list[Service]]:
    """Two services on the cluster."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(serving(database_url=cluster.url, read_url=cluster.url, log_level="error"))
            for _ in range(2)
        ]


def faults(cluster: PatroniCluster) -> Iterator[Fault]:
    """Yield the faults of the short round, or for `CLUSTER_SECONDS` all faults in random orders."""
    if not SECONDS:
        yield from SHORT_ROUND
        return
    # Only root can mount the disks.
    possible = [*FAULTS, fill_disk] if cluster.nodes[0].disk.is_mounted else FAULTS
    if ONLY:
        possible = [fault for fault in possible if fault.__name__ in ONLY]
    draw, end = random.Random(SEED), time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield from draw.sample(possible, len(possible))


def pauses(ledger: Ledger, probe: WriteProbe, start: float, end: float) -> str:
    """Describe how long claims, commits of the probe, and reads paused between two times.

    The pause of the machine is the longest one of responses without a database during that of the reads.
    """
    claims, commits, reads = (
        longest_pause(times, start, end) for times in (ledger.granted, probe.committed, ledger.read)
    )
    machine = longest_pause(ledger.responded, *reads)
    lengths = [f"{ended - began:.2f} s" for began, ended in (claims, commits, reads, machine)]
    return (
        f"claims paused {lengths[0]}, the probe {lengths[1]}, reads {lengths[2]} (the machine {lengths[3]});"
        f" claims {max(0.0, claims[1] - commits[1]):.2f} s after the probe; {len(ledger.granted)} so far"
    )


def test_faults_lose_no_claim(cluster: PatroniCluster, services: list[Service]) -> None:
    add_hosts(services[0].client(), HOSTS, CAPACITY)
    engine = connect(cluster.url)
    load = Load(services, HOSTS, CLIENTS, READERS)
    ledger = load.ledger
    probe = WriteProbe(cluster.nodes, cluster.wait_for_leader())

    def wait_for_claims() -> None:
        number = len(ledger.granted) + CLAIMS
        wait_for(lambda: len(ledger.granted) >= number, "no claims are granted")

    with load, probe, states_on_failure(STATES, cluster, services, ledger):
        wait_for_claims()
        for fault in faults(cluster):
            print(fault.__name__, "of", cluster.wait_for_leader().name, end=": ", flush=True)
            started = time.monotonic()
            fault(cluster)
            wait_for_claims()
            print(pauses(ledger, probe, started, time.monotonic()), flush=True)
            cluster.wait_until_complete()
    print(f"Seed {SEED}; responses by status: {ledger.statuses}; load of the machine: {os.getloadavg()}")
    ledger.check(engine, CAPACITY)
    engine.dispose()
