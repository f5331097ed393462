"""Measure searches before, during and after a storm of claims and releases.

Each claim leaves old versions of rows and index entries behind until the next vacuum.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from bench.claims import run_claims
from bench.clouds import host_names, uuid_of
from bench.measuring import candidates_path
from bench.scenarios import LIMITS, SMALL
from bench.services import Server, Service

STORM = "storm"
CLIENTS = 4
"""Clients that claim and release while one searches."""

SECONDS = 10.0
"""The duration of each phase."""

BEFORE, DURING, AFTER = "before", "during claims", "after"


@dataclass(frozen=True)
class StormResult:
    """The times in ms of searches with a limit in one phase: the median, and the 99th percentile.

    `first` is the median before the storm, `claims_per_second` the rate of claims that are released.
    """

    service: str
    hosts: int
    limit: int
    phase: str
    median: float
    p99: float
    first: float
    claims_per_second: float

    @property
    def ratio(self) -> float:
        """The median divided by that before the storm."""
        return self.median / self.first


def measure_storm(servers: Sequence[Server], hosts: int, seconds: float = SECONDS) -> Iterator[StormResult]:
    """Yield a result for each service, limit and phase of `seconds`.

    The services must serve the cloud `clouds.unlimited(hosts)`.
    """
    uuids = [uuid_of(name) for name in host_names(hosts)]
    for server in servers:
        times = {BEFORE: _search_for(server.service, seconds)}
        with ThreadPoolExecutor(1) as pool:
            storm = pool.submit(run_claims, server.service, uuids, CLIENTS, seconds, with_release=True)
            times[DURING] = _search_until(server.service, storm.done)
        times[AFTER] = _search_for(server.service, seconds)
        for limit in LIMITS:
            first = statistics.median(times[BEFORE][limit])
            for phase, by_limit in times.items():
                ordered = sorted(by_limit[limit])
                yield StormResult(
                    service=server.service.name,
                    hosts=hosts,
                    limit=limit,
                    phase=phase,
                    median=statistics.median(ordered),
                    p99=ordered[len(ordered) * 99 // 100],
                    first=first,
                    claims_per_second=storm.result().per_second if phase == DURING else 0.0,
                )


def _search_for(service: Service, seconds: float) -> dict[int, list[float]]:
    deadline = time.perf_counter() + seconds
    return _search_until(service, lambda: time.perf_counter() >= deadline)


def _search_until(service: Service, is_over: Callable[[], bool]) -> dict[int, list[float]]:
    """Search with each limit in turn, once at least; return the times in ms."""
    times: dict[int, list[float]] = {limit: [] for limit in LIMITS}
    with closing(service.connect()) as connection:
        while not times[LIMITS[-1]] or not is_over():
            for limit, of_limit in times.items():
                started = time.perf_counter()
                service.request_on(connection, "GET", candidates_path(SMALL, limit))
                of_limit.append((time.perf_counter() - started) * 1000)
    return times
