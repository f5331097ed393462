"""Times of requests, asked of both services in turn."""

import json
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from bench.in_process import Floor
from bench.services import Server, ServiceError

TURNS = 3
"""How many turns a service has at most."""

IN_A_ROW = 3
"""How often a service is asked in each of its turns at most; once more, before, is not counted.

Services in use find in the caches what they work with, and not what another one has left there.
"""

SECONDS_A_REQUEST = 20.0
"""A service that has used so much time for a request is not asked it again."""


@dataclass(frozen=True)
class Answer:
    """What a service answered to a request.

    `milliseconds` is the median time to the last byte; instead of it, `problem` says why there is none.
    """

    milliseconds: float | None = None
    candidates: int | None = None
    size: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Result:
    """Both answers to a request; `statements` is the number of SQL statements that ours took."""

    scenario: str
    request: str
    limit: int
    hosts: int
    statements: int
    ours: Answer
    reference: Answer | None
    floor: Floor | None

    @property
    def ratio(self) -> float | None:
        """How many times faster ours is, if both have answered."""
        if not (self.reference and self.reference.milliseconds and self.ours.milliseconds):
            return None
        return self.reference.milliseconds / self.ours.milliseconds


@dataclass
class _Trial:
    """The times of a request to a service so far, in seconds."""

    server: Server
    taken: list[float] = field(default_factory=list)
    content: bytes = b""
    problem: str | None = None

    def ask(self, path: str, times: int, give_up: float) -> None:
        """Ask some times more, on one connection if the service keeps it, as clients of OpenStack do.

        A service that has no answer, or none in `give_up` seconds, is started again.
        """
        with closing(self.server.service.connect(give_up)) as connection:
            for _ in range(times):
                if self.problem or sum(self.taken) > SECONDS_A_REQUEST:
                    return
                started = time.perf_counter()
                try:
                    self.content = self.server.service.ask_on(connection, "GET", path)
                    self.taken.append(time.perf_counter() - started)
                except TimeoutError:
                    self.problem = f"> {give_up:g} s"
                    self.server.restart()
                except ServiceError as error:
                    self.problem = str(error)
                    self.server.restart()

    def answer(self) -> Answer:
        if self.problem:
            return Answer(problem=self.problem)
        counted = self.taken[1:] or self.taken
        return Answer(statistics.median(counted) * 1000, _count(self.content), len(self.content))


def candidates_path(query: str, limit: int) -> str:
    """Return the path of a request for candidates."""
    return f"/allocation_candidates?{query}&limit={limit}"


def measure(servers: Sequence[Server], path: str, give_up: float) -> list[Answer]:
    """Return the answer of each service to GET `path`, asked in turns until there are enough."""
    trials = [_Trial(server) for server in servers]
    for times in (1, *[IN_A_ROW] * TURNS):
        for trial in trials:
            trial.ask(path, times, give_up)
    return [trial.answer() for trial in trials]


def _count(content: bytes) -> int:
    return len(json.loads(content)["allocation_requests"])
