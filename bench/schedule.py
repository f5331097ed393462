"""Measure schedulers that place servers at the same time, with POST /claims and in a loop.

The loop is the usual way: GET candidates, choose one, PUT its allocations, and start again after a 409. All
servers are released again before the cloud is full; that is not part of the measured time.
"""

import json
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from typing import Any
from uuid import uuid4

from bench.clouds import FREE_SLOTS, Cloud, flat, free_slots
from bench.loading import CONSUMER_TYPE, PROJECT, USER
from bench.services import Server, Service, ServiceError

SCHEDULE = "schedule"
SCHEDULERS = (1, 8, 32)
"""Numbers of concurrent schedulers."""

SECONDS = 5.0
"""The duration of each measurement, without the releases."""

MAX_HOSTS = 1000
MAX_TRIES = 20
"""Rounds of the loop after which a scheduler gives up."""

REQUEST = "resources=VCPU:1,MEMORY_MB:512,DISK_GB:10"

BATCHES = "batches"
BATCH_SIZES = (1, 100)
"""Numbers of servers that one request places."""

CLOUDS: dict[str, Callable[[int], Cloud]] = {"empty": flat, "nearly full": free_slots}
SERVERS = {"empty": 1000, "nearly full": FREE_SLOTS}
"""For each cloud, the number of servers that are placed before they are all released."""


@dataclass(frozen=True)
class ScheduleResult:
    """The placements of one way to schedule, per second; `failed` counts the servers without a host.

    `requests` is the number of requests for each placement.
    """

    cloud: str
    way: str
    service: str
    schedulers: int
    per_second: float
    requests: float
    failed: int


@dataclass(frozen=True)
class BatchResult:
    """The time in ms of a request that places so many servers, and of one that places a single server."""

    servers: int
    milliseconds: float
    single: float

    @property
    def ratio(self) -> float:
        """The time divided by that for a single server."""
        return self.milliseconds / self.single


@dataclass
class Tally:
    """The servers that one scheduler has placed, its requests, and the servers without a host."""

    placed: int = 0
    requests: int = 0
    failed: int = 0


class _Scheduler:
    """Places servers through one service, on one connection."""

    def __init__(self, service: Service, connection: HTTPConnection) -> None:
        self._service = service
        self._connection = connection
        self._placed: list[str] = []
        self.tally = Tally()

    def place_servers(self, place: "Place", waiting: deque[str], deadline: float) -> None:
        """Place servers that wait, until none is left or the deadline has passed, but one at least."""
        while True:
            try:
                uuid = waiting.popleft()
            except IndexError:
                return
            if place(self, uuid):
                self.tally.placed += 1
                self._placed.append(uuid)
            else:
                self.tally.failed += 1
            if time.perf_counter() >= deadline:
                return

    def _send(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        self.tally.requests += 1
        return self._service.send(self._connection, method, path, body)

    def place_by_claim(self, uuid: str) -> bool:
        """Place a server with POST /claims; return whether it has a host."""
        body = {"request": REQUEST, "consumers": [{"uuid": uuid, **_owner()}]}
        status, _ = self._send("POST", "/claims", body)
        return status == 200

    def place_by_loop(self, uuid: str, choose: Callable[[Sequence[Any]], Any]) -> bool:
        """Place a server with GET and PUT; return whether it has a host."""
        for _ in range(MAX_TRIES):
            _, content = self._send("GET", f"/allocation_candidates?{REQUEST}&limit=10")
            candidates = json.loads(content)["allocation_requests"]
            if not candidates:
                return False
            body = {"allocations": choose(candidates)["allocations"], **_owner()}
            status, _ = self._send("PUT", f"/allocations/{uuid}", body)
            if status == 204:
                return True
        return False

    def release_servers(self) -> None:
        """Delete the allocations of all servers that this scheduler has placed."""
        while self._placed:
            path = f"/allocations/{self._placed.pop()}"
            status, content = self._service.send(self._connection, "DELETE", path)
            if status != 204:
                raise ServiceError(f"{self._service.name}: DELETE {path} returned {status}: {content!r}")


def _owner() -> dict[str, Any]:
    return {
        "project_id": PROJECT,
        "user_id": USER,
        "consumer_type": CONSUMER_TYPE,
        "consumer_generation": None,
    }


Place = Callable[[_Scheduler, str], bool]

LOOPS: dict[str, Place] = {
    "loop, first": lambda scheduler, uuid: scheduler.place_by_loop(uuid, lambda found: found[0]),
    "loop, random": lambda scheduler, uuid: scheduler.place_by_loop(uuid, random.choice),
}
CLAIMS: dict[str, Place] = {"POST /claims": _Scheduler.place_by_claim}


def measure_schedule(servers: Sequence[Server], cloud: str) -> Iterator[ScheduleResult]:
    """Yield the results for a cloud in `CLOUDS`; this service comes first in `servers`."""
    for schedulers in SCHEDULERS:
        for server in servers:
            for way, place in ({**CLAIMS, **LOOPS} if server is servers[0] else LOOPS).items():
                tallies, elapsed = run_schedulers(server.service, place, schedulers, SERVERS[cloud], SECONDS)
                placed = sum(tally.placed for tally in tallies)
                yield ScheduleResult(
                    cloud=cloud,
                    way=way,
                    service=server.service.name,
                    schedulers=schedulers,
                    per_second=placed / elapsed,
                    requests=sum(tally.requests for tally in tallies) / max(placed, 1),
                    failed=sum(tally.failed for tally in tallies),
                )


def run_schedulers(
    service: Service, place: Place, schedulers: int, servers: int, seconds: float
) -> tuple[list[Tally], float]:
    """Place so many servers and release them, until the placing has taken a number of seconds.

    Returns the tallies of the schedulers, and the seconds that the placing took.
    """
    elapsed = 0.0
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(schedulers))
        connections = [stack.enter_context(closing(service.connect())) for _ in range(schedulers)]
        running = [_Scheduler(service, connection) for connection in connections]
        while True:
            waiting = deque(str(uuid4()) for _ in range(servers))
            started = time.perf_counter()
            place_servers = partial(
                _Scheduler.place_servers,
                place=place,
                waiting=waiting,
                deadline=started + seconds - elapsed,
            )
            list(pool.map(place_servers, running))
            elapsed += time.perf_counter() - started
            list(pool.map(_Scheduler.release_servers, running))
            if elapsed >= seconds:
                return [scheduler.tally for scheduler in running], elapsed


def measure_batches(service: Service) -> Iterator[BatchResult]:
    """Yield the times of dry runs of POST /claims for each of `BATCH_SIZES`, each the median of ten."""
    with closing(service.connect()) as connection:
        medians: list[float] = []
        for count in BATCH_SIZES:
            times = []
            for _ in range(10):
                consumers = [{"uuid": str(uuid4()), **_owner()} for _ in range(count)]
                started = time.perf_counter()
                body = {"request": REQUEST, "consumers": consumers, "dry_run": True}
                service.request_on(connection, "POST", "/claims", body)
                times.append((time.perf_counter() - started) * 1000)
            medians.append(statistics.median(times))
            yield BatchResult(count, medians[-1], medians[0])
