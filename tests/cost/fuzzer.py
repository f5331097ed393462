"""Search for requests that cost too much: draw, measure, keep the most expensive, change these."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any
from zlib import crc32

from sqlalchemy import Engine, create_engine, text

from placement_svc.db import schema
from placement_svc.db.connections.engine import connect
from tests.cost import clouds
from tests.cost.drawing import draw_request
from tests.cost.measuring import MB, Cost, Meter
from tests.cost.minimizing import minimized
from tests.cost.mutations import mutated
from tests.cost.requests import CURRENT, Draw, Request
from tests.cost.restoring import restore, save
from tests.support.service import serving

DEADLINE = 1.0
"""The request deadline of the service, in seconds."""

MAX_READ_SECONDS = DEADLINE + 0.5
MAX_WRITE_SECONDS = 2.0

MAX_BODY = MB
"""The limit on bodies of the service; the longest draws are shorter."""

MAX_MEMORY = 256 * MB
"""By which a worker or a PostgreSQL process may grow during a request."""

KEPT = 6
"""Requests of an operation that are kept for changes."""

ATTEMPTS = int(os.environ.get("COST_FUZZ_ATTEMPTS", "20"))
"""Requests to reduce a finding."""


@dataclass(frozen=True)
class Finding:
    """A request that exceeded a bound, with the cloud in which it did."""

    cloud: str
    cloud_seed: int
    request: Request
    cost: Cost
    problem: str

    def write(self, directory: Path) -> Path:
        """Write the finding to a new file in a directory, and return its path."""
        name = f"{self.cloud}-{self.request.operation}-{self.problem.split()[0]}".replace("/", "_").replace(
            " ", ""
        )
        path = directory / f"{name}-{crc32(self.request.target.encode()) % 10**6}.json"
        path.write_text(json.dumps(asdict(self), indent=1))
        return path

    def __str__(self) -> str:
        return f"{self.problem}: {self.request.operation} in {self.cloud}/{self.cloud_seed}: {self.cost}"


def read_case(path: Path) -> tuple[str, int, Request]:
    """Return cloud, seed and request of a file that `Finding.write` has written."""
    content = json.loads(path.read_text())
    request = content["request"]
    pairs = tuple((key, value) for key, value in request.pop("pairs"))
    return content["cloud"], content["cloud_seed"], Request(**request, pairs=pairs)


def problem(request: Request, cost: Cost) -> str:
    """Return which bound a request exceeded, or an empty string."""
    if cost.status == 0:
        return "connection: no response"
    if not cost.is_complete and not (request.is_read and cost.wall_seconds > DEADLINE):
        return "incomplete response"
    if cost.status >= 500 and not (
        cost.status == 503 and request.has_deadline and cost.wall_seconds > DEADLINE
    ):
        return f"status {cost.status}"
    if cost.seconds > (MAX_READ_SECONDS if request.is_read else MAX_WRITE_SECONDS):
        return f"time {cost.seconds:.2f} s"
    if max(cost.worker_memory, cost.server_memory) > MAX_MEMORY:
        return f"memory {max(cost.worker_memory, cost.server_memory) / MB:.0f} MB"
    return ""


@dataclass
class Service:
    """A service with one worker on a database with a cloud."""

    cloud: clouds.Cloud
    engine: Engine
    meter: Meter

    def send(self, request: Request) -> Cost:
        """Send a request with the current generations, measure it, and undo its changes."""
        generations = {}
        if request.body is not None and CURRENT in json.dumps(request.body):
            with self.engine.connect() as connection:
                rows = connection.execute(text("SELECT uuid, generation FROM resource_providers"))
                generations = {row.uuid: row.generation for row in rows}
        cost = self.meter.send(request.method, request.target, request.content(generations), request.version)
        if not request.is_read and not 400 <= cost.status < 500:
            with self.engine.begin() as connection:
                restore(connection)
        return cost

    def warm_up(self) -> None:
        """Open the connections of the service and fill its caches."""
        for path in ("/traits", "/resource_classes", "/allocation_candidates"):
            self.send(Request("GET", path, (("resources", "VCPU:1"), ("limit", "1")) if "_c" in path else ()))

    def send_on_new_connections(self, request: Request) -> Cost:
        """Send a request after the service's PostgreSQL processes have been replaced.

        A PostgreSQL process keeps memory that it has once used: the same request does not make it grow
        a second time.
        """
        with self.engine.connect() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        self.warm_up()
        return self.send(request)


@contextmanager
def service_with(server_url: str, postmaster: int, name: str, seed: int) -> Iterator[Service]:
    """Run a service on a new database with a cloud."""
    admin = create_engine(server_url, isolation_level="AUTOCOMMIT")
    database = f"cost_{name}_{seed}"
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)"))
        connection.execute(text(f"CREATE DATABASE {database}"))
    engine = connect(admin.url.set(database=database))
    try:
        schema.upgrade(engine)
        cloud = clouds.build(name, seed)
        cloud.load(engine)
        with engine.begin() as connection:
            save(connection)
        url = engine.url.render_as_string(hide_password=False)
        with serving(
            1, 2, database_url=url, request_deadline=DEADLINE, max_body=MAX_BODY, log_level="error"
        ) as service:
            running = Service(cloud, engine, Meter(service.port, service.workers()[0], postmaster))
            running.warm_up()
            yield running
    finally:
        engine.dispose()
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {database} WITH (FORCE)"))
        admin.dispose()


@dataclass
class Population:
    """The most expensive requests so far, by operation."""

    kept: dict[str, list[tuple[float, Request]]] = field(default_factory=dict)

    def add(self, request: Request, cost: Cost) -> None:
        """Keep a request if it is among the most expensive per byte, or in all."""
        share = max(
            cost.seconds / MAX_WRITE_SECONDS, max(cost.worker_memory, cost.server_memory) / MAX_MEMORY
        )
        score = share + 1000 * share / (cost.request_bytes + 200)
        kept = self.kept.setdefault(request.operation, [])
        kept.append((score, request))
        kept.sort(key=lambda pair: -pair[0])
        del kept[KEPT:]

    def pick(self, draw: Draw) -> Request:
        """Draw one of the requests: of any operation, or rather of an expensive one."""
        operations = list(self.kept)
        costs = [self.kept[operation][0][0] for operation in operations]
        [operation] = draw.random.choices(operations, None if draw.chance(40) else costs)
        request: Request = draw.pick(*self.kept[operation])[1]
        return request


def fuzz(running: Service, random: Random, until: float) -> Iterator[tuple[Request, Cost]]:
    """Yield requests with their costs until a time of the monotonic clock."""
    draw, population = Draw(random, running.cloud), Population()
    sent = 0
    while monotonic() < until:
        if sent < 30 or draw.chance(25):
            request = draw_request(draw)
        else:
            request = mutated(population.pick(draw), population.pick(draw), draw)
        cost = running.send(request)
        sent += 1
        # Refused requests are kept too: they must not be expensive either.
        population.add(request, cost)
        yield request, cost


def confirmed(running: Service, request: Request) -> Finding | None:
    """Send a request again and reduce it; return nothing if it does not exceed a bound again.

    A bound may be exceeded by coincidence once, for example when a table has just been analyzed.
    """

    def is_expensive(candidate: Request) -> bool:
        return bool(problem(candidate, running.send_on_new_connections(candidate)))

    if not is_expensive(request):
        return None
    request = minimized(request, is_expensive, ATTEMPTS)
    cost = running.send_on_new_connections(request)
    found = problem(request, cost) or "intermittent"
    return Finding(running.cloud.name, running.cloud.seed, request, cost, found)


def as_text(request: Request) -> str:
    """Return a request for a report, shortened."""
    body: Any = request.text if request.text is not None else json.dumps(request.body) if request.body else ""
    line = f"{request.method} {request.target} {body}"
    return line if len(line) < 1500 else f"{line[:1500]}... ({len(line)} characters)"
