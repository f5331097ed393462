"""The metrics, in the terms of Prometheus; `docs/operations.md` says what to watch.

Processes that serve together count together, in files of one directory; whoever is asked adds up.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import cast

from flask import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
    multiprocess,
    values,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import QueuePool, event

from placement_svc.db import usages
from placement_svc.db.engine import Database
from placement_svc.domain.errors import ConcurrentUpdate, Conflict, OverCapacity, PlacementError, Unavailable
from placement_svc.domain.inventory import Totals
from placement_svc.observability.access_log import Answered

# One process alone would tell when it began to count, several would not.
disable_created_metrics()  # type: ignore[no-untyped-call]

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which the library knows where processes count together."""

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
WAITS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
STATEMENTS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50)
COUNTS = (0, 1, 10, 100, 1000, 10_000, 100_000)

TOTALS_SECONDS = 15.0
"""How old the totals of the inventories may be: adding them up reads every inventory."""

METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS"})

CLAIMS = frozenset({"allocations.replace_allocations", "allocations.replace_consumer_allocations"})
"""The endpoints that claim."""


@contextmanager
def shared() -> Iterator[None]:
    """Let this process and those that it forks from now on count together, in a directory of their own."""
    directory = tempfile.mkdtemp(prefix="placement-metrics-")
    owner = os.getpid()
    os.environ[DIRECTORY] = directory
    # The library looked for the variable when it was imported.
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        # A forked process comes by here as well when it exits.
        if os.getpid() == owner:
            del os.environ[DIRECTORY]
            values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
            shutil.rmtree(directory, ignore_errors=True)


def forget(pid: int) -> None:
    """Take back what a process that ended said of its present state; what it counted stays."""
    multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of an application."""

    def __init__(self, database: Database) -> None:
        self.registry = CollectorRegistry()
        self.totals = _Totals(database)
        self.registry.register(self.totals)
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry, multiprocess_mode="livesum")
        histogram = partial(Histogram, registry=self.registry)
        route = ("method", "route")
        self.requests = counter(
            "placement_requests", "Requests answered.", (*route, "status", "microversion")
        )
        self.seconds = histogram(
            "placement_request_duration_seconds",
            "Time from the start of a request to the last byte of its answer.",
            (*route, "status"),
            buckets=SECONDS,
        )
        self.statements = histogram(
            "placement_request_sql_statements", "SQL statements of a request.", route, buckets=STATEMENTS
        )
        self.statement_seconds = histogram(
            "placement_request_sql_duration_seconds",
            "Time that a request waited for its SQL statements.",
            route,
            buckets=SECONDS,
        )
        self.retries = counter(
            "placement_transaction_retries",
            "Transactions tried again after PostgreSQL ended them in favour of others.",
            route,
        )
        self.claims = counter("placement_claims", "Claims by outcome.", ("outcome",))
        self.candidates = histogram("placement_candidates", "Candidates in an answer.", buckets=COUNTS)
        self.trees = histogram(
            "placement_candidates_trees_examined",
            "Provider trees examined for a request for candidates.",
            buckets=COUNTS,
        )
        self.connection_seconds = histogram(
            "placement_pool_wait_seconds",
            "Time that a request waited for database connections.",
            buckets=WAITS,
        )
        self.checked_out = gauge("placement_pool_checked_out_connections", "Database connections in use.")
        self.series: dict[tuple[str, ...], tuple[Counter, Histogram, Histogram, Histogram]] = {}
        assert isinstance(database.engine.pool, QueuePool)
        self.pool = database.engine.pool
        size = gauge("placement_pool_size_connections", "Database connections that can be in use at once.")
        size.set(self.pool.size())
        event.listen(self.pool, "checkout", lambda *_: self._note_connections())
        # The connection that comes back still counts as one that is out.
        event.listen(self.pool, "checkin", lambda *_: self._note_connections(-1))

    def _note_connections(self, change: int = 0) -> None:
        self.checked_out.set(self.pool.checkedout() + change)

    def count(self, answered: Answered) -> None:
        """Count a request that has been answered."""
        method = answered.method if answered.method in METHODS else "other"
        route, stats = answered.route, answered.stats
        series = (method, route, str(answered.status), answered.microversion or "none")
        # To find the four by their labels takes longer than to count.
        if series not in self.series:
            self.series[series] = (
                self.requests.labels(*series),
                self.seconds.labels(*series[:3]),
                self.statements.labels(method, route),
                self.statement_seconds.labels(method, route),
            )
        requests, seconds, statements, statement_seconds = self.series[series]
        requests.inc()
        seconds.observe(answered.seconds)
        statements.observe(stats.statements)
        statement_seconds.observe(stats.statement_seconds)
        if stats.retries:
            self.retries.labels(method, route).inc(stats.retries)
        if stats.connections:
            self.connection_seconds.observe(stats.connection_seconds)
            # Of two that came back at the same moment each has left out only itself.
            self._note_connections()
        if answered.endpoint in CLAIMS and (outcome := _outcome(answered)):
            self.claims.labels(outcome).inc()
        if stats.candidates is not None:
            self.candidates.observe(stats.candidates)
            self.trees.observe(stats.trees)

    def answer(self) -> Response:
        """Return the metrics of all processes that count together, as Prometheus reads them."""
        registry = self.registry
        if DIRECTORY in os.environ:
            registry = CollectorRegistry()
            registry.register(_Together(Path(os.environ[DIRECTORY])))
            registry.register(self.totals)
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _outcome(answered: Answered) -> str | None:
    """Return what became of a claim, None if it was none."""
    match answered.error:
        case None:
            return "won" if answered.status == 204 else None
        case OverCapacity():
            return "over_capacity"
        case ConcurrentUpdate():
            return "conflict"
        case Conflict():
            return "refused"
        case PlacementError():
            return None


class _Together(Collector):
    """What all processes have counted that count together in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def collect(self) -> Iterable[Metric]:
        # A process makes a file before it writes to it, and may be killed in between: the library's own
        # collector fails then (prometheus/client_python#1199).
        files = [str(path) for path in self.directory.glob("*.db") if _has_begun(path)]
        merge = multiprocess.MultiProcessCollector.merge
        return cast(Iterable[Metric], merge(files))  # type: ignore[no-untyped-call]


def _has_begun(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


class _Totals(Collector):
    """What all inventories come to, not older than `TOTALS_SECONDS`; nothing without a database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.found: dict[str, Totals] = {}
        self.expires = 0.0
        self.finding = Lock()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return self._families({})

    def collect(self) -> Iterable[GaugeMetricFamily]:
        with self.finding:
            if self.expires <= time.monotonic():
                try:
                    self.found = self.database.read(usages.totals)
                except Unavailable:
                    return self._families({})
                self.expires = time.monotonic() + TOTALS_SECONDS
        return self._families(self.found)

    def _families(self, found: dict[str, Totals]) -> list[GaugeMetricFamily]:
        families = {
            "capacity": "What can be allocated of a resource class, by all inventories together.",
            "used": "What is allocated of a resource class.",
            "reserved": "What is reserved of a resource class, and no part of its capacity.",
        }
        made = []
        for name, about in families.items():
            family = GaugeMetricFamily(f"placement_inventory_{name}", about, labels=["resource_class"])
            for resource_class, totals in found.items():
                family.add_metric([resource_class], getattr(totals, name))
            made.append(family)
        return made
