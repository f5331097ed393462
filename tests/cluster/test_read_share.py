"""Searches on standbys cost the primary nothing: processor time on each node, and searches a second."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from bench.clouds import nested
from bench.loading import add_names, load_ours
from bench.measuring import candidates_path
from bench.scenarios import SCENARIOS
from bench.services import Service as BenchService
from placement_svc.db.connections.engine import connect
from tests.cluster.load import EXTENDED_HEADERS
from tests.cluster.patroni_cluster import Node, PatroniCluster, server_url
from tests.support.service import Service, serving

pytestmark = pytest.mark.cluster

SEARCHES = int(os.environ.get("CLUSTER_SEARCHES", 100))
HOSTS = 200
LIMIT = 100
CLIENTS = 4
PRIMARY_SHARE = 0.05
"""The largest share of the primary in the processor time that sessions need for searches on standbys."""

SESSIONS = text("""
    SELECT pid FROM pg_stat_activity
     WHERE datname = 'placement' AND backend_type = 'client backend' AND pid <> pg_backend_pid()
""")
"""The sessions of the services: what a node does besides, for the cluster, does not depend on searches."""


@dataclass(frozen=True)
class Cost:
    """The cost of some searches: the time in all, and the processor time of the sessions on each node."""

    seconds: float
    primary: float
    standbys: float

    def __str__(self) -> str:
        return (
            f"{SEARCHES / self.seconds:.1f} searches a second; processor time of the sessions for a search:"
            f" primary {1000 * self.primary / SEARCHES:.2f} ms, standbys"
            f" {1000 * self.standbys / SEARCHES:.2f} ms in all"
        )


@pytest.fixture(scope="module")
def services(cluster: PatroniCluster) -> Iterator[tuple[Service, Service]]:
    """A service that uses the standbys, and one that does not, with a nested cloud."""
    with ExitStack() as stack:
        using, other = (
            stack.enter_context(serving(workers=2, database_url=cluster.url, **settings))
            for settings in ({"read_url": cluster.url}, {})
        )
        leader = cluster.wait_for_leader()
        engine = create_engine(connect(server_url(leader, "placement")).url)
        cloud = nested(HOSTS)
        add_names(BenchService("placement-svc", using.url), cloud)
        load_ours(engine, cloud)
        engine.dispose()
        yield using, other


def processor_time(cluster: PatroniCluster, leader: Node) -> tuple[float, float]:
    """Return the processor time of all sessions so far: those of the primary, and those of all standbys."""
    times = {node: session_seconds(node) for node in cluster.nodes}
    return times[leader], sum(times.values()) - times[leader]


def session_seconds(node: Node) -> float:
    """Return the processor time of a node's sessions; the kernel counts it in nanoseconds."""
    with create_engine(server_url(node, "placement"), poolclass=NullPool).connect() as connection:
        pids = connection.scalars(SESSIONS).all()
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


def search(cluster: PatroniCluster, service: Service, path: str) -> Cost:
    """Send the searches from several clients; return what they need."""
    clients = [service.client(keeps_alive=False) for _ in range(CLIENTS)]

    def run(number: int) -> None:
        client = clients[number]
        client.headers |= EXTENDED_HEADERS
        for _ in range(SEARCHES // CLIENTS):
            assert client.result("GET", path)["allocation_requests"]

    leader = cluster.wait_for_leader()
    with ThreadPoolExecutor(CLIENTS) as threads:
        # Each worker opens its connections before the measurement.
        list(threads.map(run, range(CLIENTS)))
        before, started = processor_time(cluster, leader), time.monotonic()
        list(threads.map(run, range(CLIENTS)))
        after, ended = processor_time(cluster, leader), time.monotonic()
    return Cost(ended - started, after[0] - before[0], after[1] - before[1])


def test_the_primary_does_not_work_for_searches_on_standbys(
    cluster: PatroniCluster, services: tuple[Service, Service]
) -> None:
    using, other = services
    [nested_searches] = [scenario for scenario in SCENARIOS if scenario.name == "nested"]
    path = candidates_path(nested_searches.requests[0].query, LIMIT)
    stale = f"{path}&stale=ok"
    without, on_standbys = search(cluster, other, path), search(cluster, using, stale)
    print(f"\nwithout standbys: {without}\non two standbys: {on_standbys}")
    share = on_standbys.primary / (on_standbys.primary + on_standbys.standbys)
    print(f"share of the primary: {100 * share:.1f} %")
    assert share < PRIMARY_SHARE
