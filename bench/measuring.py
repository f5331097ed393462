"""Measure the times of requests, alternating between the services."""

import json
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from bench.in_process import Floor
from bench.services import VERSION, Server, ServiceError

ROUNDS = 3
"""The largest number of rounds; each round measures every service."""

REQUESTS_PER_ROUND = 3
"""The largest number of consecutive requests to one service.

One request before the first round is not counted. Consecutive requests find warm caches, as in production. If
the services alternated with every request, each would find what the other has left in the caches.
"""

SECONDS_PER_REQUEST = 20.0
"""The total time that a service may use for one request; after that, it is not repeated."""


@dataclass(frozen=True)
class Measurement:
    """The measurement of one request to one service.

    `milliseconds` is the median time until the last byte, and `size` the bytes of the body. If there was no
    response, `failure` gives the reason and the other fields are None.
    """

    milliseconds: float | None = None
    candidates: int | None = None
    size: int | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Result:
    """The measurements of one request; `statements` is the number of SQL statements of this service.

    `compared_with` is the name of another request of the scenario (None: no comparison).
    """

    scenario: str
    request: str
    limit: int
    hosts: int
    statements: int
    ours: Measurement
    reference: Measurement | None
    floor: Floor | None
    compared_with: str | None = None

    @property
    def ratio(self) -> float | None:
        """The time of the reference divided by ours, None if either is missing."""
        if not (self.reference and self.reference.milliseconds and self.ours.milliseconds):
            return None
        return self.reference.milliseconds / self.ours.milliseconds


@dataclass
class _Trial:
    """The times of a request to a service so far, in seconds, and its last response."""

    server: Server
    times: list[float] = field(default_factory=list)
    content: bytes = b""
    failure: str | None = None

    def send(self, path: str, version: str, count: int, timeout: float) -> None:
        """Send the request several times, on one connection if the service keeps it open.

        OpenStack clients reuse connections as well. A service that fails, or does not respond within
        `timeout` seconds, is restarted.
        """
        with closing(self.server.service.connect(timeout)) as connection:
            for _ in range(count):
                if self.failure or sum(self.times) > SECONDS_PER_REQUEST:
                    return
                started = time.perf_counter()
                try:
                    self.content = self.server.service.request_on(connection, "GET", path, version=version)
                    self.times.append(time.perf_counter() - started)
                except TimeoutError:
                    self.failure = f"> {timeout:g} s"
                    self.server.restart()
                except ServiceError as error:
                    self.failure = str(error)
                    self.server.restart()

    def measurement(self) -> Measurement:
        if self.failure:
            return Measurement(failure=self.failure)
        counted = self.times[1:] or self.times
        return Measurement(
            milliseconds=statistics.median(counted) * 1000,
            candidates=_count_candidates(self.content),
            size=len(self.content),
        )


def candidates_path(query: str, limit: int) -> str:
    """Return the path of a request for candidates."""
    return f"/allocation_candidates?{query}&limit={limit}"


def measure(
    servers: Sequence[Server], path: str, timeout: float, version: str = VERSION
) -> list[Measurement]:
    """Return the measurement of GET `path` for each service."""
    trials = [_Trial(server) for server in servers]
    for count in (1, *[REQUESTS_PER_ROUND] * ROUNDS):
        for trial in trials:
            trial.send(path, version, count, timeout)
    return [trial.measurement() for trial in trials]


def _count_candidates(content: bytes) -> int:
    return len(json.loads(content)["allocation_requests"])
