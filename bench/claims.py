"""Claims: how many a second, and how long each takes, by how many clients at once."""

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from uuid import uuid4

from bench.clouds import INSTANCE, host_names, uuid_of
from bench.loading import CONSUMER_TYPE, PROJECT, USER
from bench.services import Server, Service

CLIENTS = (1, 8, 32)
SECONDS = 5.0
MOST_HOSTS = 1000
WARM_UP = 20


@dataclass(frozen=True)
class Pace:
    """How claims went: `median` and `last` (the 99th of 100) are times in ms.

    `refused` counts the claims that were not granted; all of them fit.
    """

    a_second: float
    median: float
    last: float
    refused: int


@dataclass(frozen=True)
class ClaimsResult:
    """The pace of both services with so many clients, on all hosts (`spread`) or all on one (`hot`)."""

    where: str
    clients: int
    hosts: int
    ours: Pace
    reference: Pace | None

    @property
    def ratio(self) -> float | None:
        """How many times more claims a second ours grants."""
        return self.ours.a_second / self.reference.a_second if self.reference else None


def measure_claims(servers: Sequence[Server], hosts: int) -> Iterator[ClaimsResult]:
    """Yield the pace of services, which have a cloud of so many endless hosts, for all numbers of clients."""
    uuids = [uuid_of(name) for name in host_names(hosts)]
    for where, targets in (("spread", uuids), ("hot", uuids[:1])):
        for clients in CLIENTS:
            paces = [claim(server.service, targets, clients, SECONDS) for server in servers]
            yield ClaimsResult(where, clients, hosts, paces[0], paces[1] if len(paces) > 1 else None)


def claim(service: Service, providers: Sequence[str], clients: int, seconds: float) -> Pace:
    """Let clients claim for so many seconds, each one instance after the other from a random provider."""
    with closing(service.connect()) as connection:
        for _ in range(WARM_UP):
            _claim_one(service, connection, providers[0])
    with ThreadPoolExecutor(clients) as pool:
        started = time.perf_counter()
        deadline = started + seconds
        claimed = list(pool.map(lambda _: _claim_until(service, providers, deadline), range(clients)))
        elapsed = time.perf_counter() - started
    taken = sorted(milliseconds for times, _ in claimed for milliseconds in times)
    refused = sum(count for _, count in claimed)
    return Pace(
        (len(taken) - refused) / elapsed, statistics.median(taken), taken[len(taken) * 99 // 100], refused
    )


def _claim_until(service: Service, providers: Sequence[str], deadline: float) -> tuple[list[float], int]:
    """Claim once and on until the deadline; return the times in ms, and how many claims were refused.

    The client keeps its connection if the service lets it, as those of OpenStack do.
    """
    taken: list[float] = []
    refused = 0
    with closing(service.connect()) as connection:
        while not taken or time.perf_counter() < deadline:
            started = time.perf_counter()
            granted = _claim_one(service, connection, random.choice(providers))
            taken.append((time.perf_counter() - started) * 1000)
            refused += not granted
    return taken, refused


def _claim_one(service: Service, connection: HTTPConnection, provider: str) -> bool:
    """Claim an instance; tell whether it was granted."""
    body = {
        "allocations": {provider: {"resources": INSTANCE}},
        "project_id": PROJECT,
        "user_id": USER,
        "consumer_type": CONSUMER_TYPE,
        "consumer_generation": None,
    }
    status, _ = service.send(connection, "PUT", f"/allocations/{uuid4()}", body)
    return status == 204
