"""Measure the fixed cost of a request: a search of limit 10 in comparison with GET /, which does nothing."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from bench import clouds
from bench.clouds import Cloud
from bench.costs import cpu_seconds
from bench.environment import Environment
from bench.measuring import candidates_path
from bench.scenarios import NESTED, SMALL
from bench.services import Server

FIXED = "fixed"
VERSIONS = "GET /"
CLOUDS: dict[str, Callable[[int], Cloud]] = {"flat": clouds.flat, "nested": clouds.nested}
QUERIES = {"flat": SMALL, "nested": NESTED.query}
"""The query of the search in each of `CLOUDS`."""

LIMIT = 10
ROUNDS = 5
REQUESTS_PER_ROUND = 60
"""Consecutive requests of one kind; those of the first round are not counted."""


@dataclass(frozen=True)
class FixedResult:
    """The median time and the mean processor time of a request, and those of GET /, in ms.

    Processor time is that of the service and of PostgreSQL, which must run on this machine.
    """

    service: str
    cloud: str
    request: str
    hosts: int
    milliseconds: float
    cpu_milliseconds: float
    first: tuple[float, float]

    @property
    def time_ratio(self) -> float:
        """The time divided by that of GET /."""
        return self.milliseconds / self.first[0]

    @property
    def cpu_ratio(self) -> float:
        """The processor time divided by that of GET /."""
        return self.cpu_milliseconds / self.first[1]


def measure_fixed(environment: Environment, cloud: str, hosts: int) -> Iterator[FixedResult]:
    """Yield a result of GET / and one of the search for each service; requests are sent alternately."""
    postmaster = _postmaster(environment.url)
    paths = {VERSIONS: "/", f"limit={LIMIT}": candidates_path(QUERIES[cloud], LIMIT)}
    for server in environment.servers:
        times: dict[str, list[float]] = {name: [] for name in paths}
        processor: dict[str, float] = dict.fromkeys(paths, 0.0)
        for number in range(1 + ROUNDS):
            for name, path in paths.items():
                before = cpu_seconds(server.pid) + cpu_seconds(postmaster)
                sent = _send(server, path)
                if number > 0:
                    times[name] += sent
                    processor[name] += cpu_seconds(server.pid) + cpu_seconds(postmaster) - before
        costs = {
            name: (statistics.median(times[name]) * 1000, processor[name] * 1000 / len(times[name]))
            for name in paths
        }
        for name, (milliseconds, cpu_milliseconds) in costs.items():
            yield FixedResult(
                service=server.service.name,
                cloud=cloud,
                request=name,
                hosts=hosts,
                milliseconds=milliseconds,
                cpu_milliseconds=cpu_milliseconds,
                first=costs[VERSIONS],
            )


def _send(server: Server, path: str) -> list[float]:
    """Send a request several times on one connection; return the times in seconds."""
    times = []
    with closing(server.service.connect()) as connection:
        for _ in range(REQUESTS_PER_ROUND):
            started = time.perf_counter()
            server.service.request_on(connection, "GET", path)
            times.append(time.perf_counter() - started)
    return times


def _postmaster(url: str) -> int:
    """Return the process id of the PostgreSQL server: the parent of the process of a connection."""
    with create_engine(url, poolclass=NullPool).connect() as connection:
        backend = connection.scalar(text("SELECT pg_backend_pid()"))
        return int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])
