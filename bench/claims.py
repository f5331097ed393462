"""Measure claims by concurrent clients, alone or each followed by its release: the rate and the times."""

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from itertools import product
from uuid import uuid4

from bench.clouds import INSTANCE, host_names, uuid_of
from bench.loading import CONSUMER_TYPE, PROJECT, USER
from bench.services import Server, Service

CLAIMS = "claims"
CLIENTS = (1, 8, 32)
"""Numbers of concurrent clients."""

SECONDS = 5.0
"""The duration of each measurement."""

MAX_HOSTS = 1000
WARM_UP_CLAIMS = 20


@dataclass(frozen=True)
class ClaimStats:
    """The number of granted claims per second, and the median and 99th percentile of the times in ms.

    If claims are released, a time is that of a claim and its release. `refused` counts the claims that were
    not granted, although the capacity is sufficient for all of them.
    """

    per_second: float
    median: float
    p99: float
    refused: int


@dataclass(frozen=True)
class ClaimsResult:
    """The statistics of each service for a number of clients.

    `distribution` is `spread` if the clients claim from all hosts, and `hot` if all claim from one host. If
    `with_release`, a client releases each claim (DELETE) before its next one.
    """

    distribution: str
    with_release: bool
    clients: int
    hosts: int
    ours: ClaimStats
    reference: ClaimStats | None

    @property
    def ratio(self) -> float | None:
        """Claims per second of this service divided by those of the reference."""
        return self.ours.per_second / self.reference.per_second if self.reference else None


def measure_claims(servers: Sequence[Server], hosts: int) -> Iterator[ClaimsResult]:
    """Yield a result for each distribution and number of clients.

    The services must serve the cloud `clouds.unlimited(hosts)`; this service comes first in `servers`.
    """
    uuids = [uuid_of(name) for name in host_names(hosts)]
    distributions = {"spread": uuids, "hot": uuids[:1]}
    for with_release, distribution in product((False, True), distributions):
        targets = distributions[distribution]
        for clients in CLIENTS:
            stats = [
                run_claims(server.service, targets, clients, SECONDS, with_release=with_release)
                for server in servers
            ]
            yield ClaimsResult(
                distribution=distribution,
                with_release=with_release,
                clients=clients,
                hosts=hosts,
                ours=stats[0],
                reference=stats[1] if len(stats) > 1 else None,
            )


def run_claims(
    service: Service,
    providers: Sequence[str],
    clients: int,
    seconds: float,
    *,
    with_release: bool = False,
) -> ClaimStats:
    """Run concurrent clients for a number of seconds; each claims instances from random providers.

    If `with_release`, it releases each claim before the next one.
    """
    with closing(service.connect()) as connection:
        for _ in range(WARM_UP_CLAIMS):
            claim_one(service, connection, providers[0])
    with ThreadPoolExecutor(clients) as pool:
        started = time.perf_counter()
        deadline = started + seconds
        claim = partial(_claim_until, service, providers, deadline, with_release=with_release)
        results = list(pool.map(lambda _: claim(), range(clients)))
        elapsed = time.perf_counter() - started
    times = sorted(milliseconds for client_times, _ in results for milliseconds in client_times)
    refused = sum(count for _, count in results)
    return ClaimStats(
        per_second=(len(times) - refused) / elapsed,
        median=statistics.median(times),
        p99=times[len(times) * 99 // 100],
        refused=refused,
    )


def _claim_until(
    service: Service, providers: Sequence[str], deadline: float, *, with_release: bool
) -> tuple[list[float], int]:
    """Claim at least once and until the deadline; return the times in ms and the number of refused claims.

    The client keeps its connection open if the service allows it, as OpenStack clients do.
    """
    times: list[float] = []
    refused = 0
    with closing(service.connect()) as connection:
        while not times or time.perf_counter() < deadline:
            started = time.perf_counter()
            uuid = claim_one(service, connection, random.choice(providers))
            if with_release and uuid:
                service.request_on(connection, "DELETE", f"/allocations/{uuid}")
            times.append((time.perf_counter() - started) * 1000)
            refused += uuid is None
    return times, refused


def claim_one(service: Service, connection: HTTPConnection, provider: str) -> str | None:
    """Claim one instance; return the uuid of its consumer, None if the claim was refused."""
    uuid = str(uuid4())
    body = {
        "allocations": {provider: {"resources": INSTANCE}},
        "project_id": PROJECT,
        "user_id": USER,
        "consumer_type": CONSUMER_TYPE,
        "consumer_generation": None,
    }
    status, _ = service.send(connection, "PUT", f"/allocations/{uuid}", body)
    return uuid if status == 204 else None
