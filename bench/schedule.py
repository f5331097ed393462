"""Measure schedulers that place and release servers at the same time, with POST /claims and in a loop.

The loop is the usual way: GET candidates, choose one, PUT its allocations, and start again after a 409.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from uuid import uuid4

from bench.clouds import Cloud, flat, free_slots
from bench.loading import CONSUMER_TYPE, PROJECT, USER
from bench.services import Server, Service, ServiceError

SCHEDULE = "schedule"
SCHEDULERS = (1, 8, 32)
"""Numbers of concurrent schedulers."""

SECONDS = 5.0
"""The duration of each measurement."""

MAX_HOSTS = 1000
MAX_TRIES = 20
"""Rounds of the loop after which a scheduler gives up."""

REQUEST = "resources=VCPU:1,MEMORY_MB:512,DISK_GB:10"
BATCHES = (1, 100)
"""Numbers of servers that one request places."""

CLOUDS: dict[str, Callable[[int], Cloud]] = {"empty": flat, "nearly full": free_slots}


@dataclass(frozen=True)
class ScheduleResult:
    """The placements of one way to schedule, per second; `failed` counts the servers without a host.

    `requests` is the number of requests for each placement, releases not counted.
    """

    cloud: str
    way: str
    service: str
    schedulers: int
    per_second: float
    requests: float
    failed: int


@dataclass
class Tally:
    """The servers that one scheduler has placed, its requests, and the servers without a host."""

    placed: int = 0
    requests: int = 0
    failed: int = 0


class _Scheduler:
    """Places servers through one service, on one connection."""

    def __init__(self, service: Service, connection: HTTPConnection, tally: Tally) -> None:
        self._service = service
        self._connection = connection
        self._tally = tally

    def _send(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        self._tally.requests += 1
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

    def release(self, uuid: str) -> None:
        """Delete the allocations of a server."""
        status, content = self._service.send(self._connection, "DELETE", f"/allocations/{uuid}")
        if status != 204:
            raise ServiceError(f"{self._service.name}: the release of {uuid} returned {status}: {content!r}")


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
                tallies, elapsed = run_schedulers(server.service, place, schedulers, SECONDS)
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
    service: Service, place: Place, schedulers: int, seconds: float
) -> tuple[list[Tally], float]:
    """Run schedulers for a number of seconds; return the tally of each, and the seconds it took."""
    with ThreadPoolExecutor(schedulers) as pool:
        started = time.perf_counter()
        deadline = started + seconds
        tallies = list(pool.map(lambda _: _place_until(service, place, deadline), range(schedulers)))
        return tallies, time.perf_counter() - started


def _place_until(service: Service, place: Place, deadline: float) -> Tally:
    """Place servers and release each of them, once at least and until the deadline."""
    tally = Tally()
    with closing(service.connect()) as connection:
        scheduler = _Scheduler(service, connection, tally)
        while not tally.requests or time.perf_counter() < deadline:
            uuid = str(uuid4())
            if place(scheduler, uuid):
                tally.placed += 1
                scheduler.release(uuid)
            else:
                tally.failed += 1
    return tally


def measure_batches(service: Service, cloud: str) -> Iterator[tuple[int, float]]:
    """Yield the milliseconds of a dry run of POST /claims for each of `BATCHES`, as the median of ten.

    The last `BATCHES` do not fit into the nearly full cloud.
    """
    if cloud != "empty":
        return
    with closing(service.connect()) as connection:
        for count in BATCHES:
            times = []
            for _ in range(10):
                consumers = [{"uuid": str(uuid4()), **_owner()} for _ in range(count)]
                started = time.perf_counter()
                body = {"request": REQUEST, "consumers": consumers, "dry_run": True}
                service.request_on(connection, "POST", "/claims", body)
                times.append((time.perf_counter() - started) * 1000)
            yield count, sorted(times)[len(times) // 2]
