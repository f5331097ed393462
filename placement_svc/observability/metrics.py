"""The Prometheus metrics; `docs/operations.md` describes them and what to watch.

The workers of a service write their counts to files in a shared directory. The worker that receives a request
for `/metrics` adds them up.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
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
from placement_svc.db.connections.engine import Database
from placement_svc.db.connections.standbys import Reader, StandbyReads
from placement_svc.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    NoCandidates,
    OverCapacity,
    PlacementError,
)
from placement_svc.domain.inventory import Totals
from placement_svc.domain.placement_groups import POLICIES
from placement_svc.observability.access_log import CompletedRequest
from placement_svc.observability.count_files import CountFile
from placement_svc.observability.database_metrics import (
    DatabaseCollector,
    DatabaseCollectors,
    DurabilityCollector,
    StandbyCollector,
)

# The library would export creation times for a single process, but not for several.
disable_created_metrics()  # type: ignore[no-untyped-call]

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the shared directory to the library."""

DURATION_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
POOL_WAIT_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
STATEMENT_BUCKETS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50)
COUNT_BUCKETS = (0, 1, 10, 100, 1000, 10_000, 100_000)

TOTALS_SECONDS = 15.0
"""Maximum age of the inventory totals: adding them up reads every inventory."""

METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS"})


@contextmanager
def multiprocess_dir(directory: Path) -> Iterator[None]:
    """Make this process and its future child processes share their counts, in `directory`."""
    owner = os.getpid()
    os.environ[DIRECTORY] = str(directory)
    if sys.platform == "linux":
        values.MmapedDict = CountFile  # type: ignore[attr-defined]
    # The library reads the variable only when it is imported.
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        # A forked child also runs this when it exits.
        if os.getpid() == owner:
            del os.environ[DIRECTORY]
            values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]


def shared_directory() -> Path | None:
    """Return the directory that the processes share, None if there is one process."""
    return Path(os.environ[DIRECTORY]) if DIRECTORY in os.environ else None


def mark_worker_dead(pid: int) -> None:
    """Remove the gauges of a worker that has ended; its counters remain."""
    multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of an application. Their names and labels are part of its interface."""

    def __init__(
        self, database: Database, reads: StandbyReads, others: Sequence[DatabaseCollector] = ()
    ) -> None:
        self.registry = CollectorRegistry()
        self.database_collectors = DatabaseCollectors(
            [_InventoryTotals(reads), DurabilityCollector(database), StandbyCollector(reads), *others]
        )
        """The metrics of the cloud and of the database; they do not depend on the worker."""
        self.registry.register(self.database_collectors)
        self.series: dict[tuple[str, ...], tuple[Counter, Histogram, Histogram, Histogram]] = {}
        self._create_request_metrics()
        self._create_stale_reads()
        self._create_placement_metrics()
        assert isinstance(database.engine.pool, QueuePool)
        self._create_pool_metrics(database.engine.pool)

    def _create_request_metrics(self) -> None:
        """Create the metrics of all requests, by route."""
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        route = ("method", "route")
        self.requests = counter(
            "placement_requests", "Completed requests.", (*route, "status", "microversion")
        )
        self.seconds = histogram(
            "placement_request_duration_seconds",
            "Time from the start of a request to the last byte of its response.",
            (*route, "status"),
            buckets=DURATION_BUCKETS,
        )
        self.statements = histogram(
            "placement_request_sql_statements",
            "SQL statements of a request.",
            route,
            buckets=STATEMENT_BUCKETS,
        )
        self.statement_seconds = histogram(
            "placement_request_sql_duration_seconds",
            "Time that a request spent in SQL statements.",
            route,
            buckets=DURATION_BUCKETS,
        )
        self.aborted = counter("placement_responses_aborted", "Responses whose body ended early.", route)
        self.retries = counter(
            "placement_transaction_retries",
            "Transactions retried after a deadlock, a serialization failure or a lost connection.",
            route,
        )

    def _create_stale_reads(self) -> None:
        """Create the metric of the reads that a standby may run."""
        self.stale_reads = Counter(
            "placement_stale_reads",
            "Reads of requests that allow stale data, by the role of the server that ran them.",
            ("role",),
            registry=self.registry,
        )
        for role in ("primary", "standby"):
            self.stale_reads.labels(role)

    def _create_placement_metrics(self) -> None:
        """Create the metrics of claims and of searches for allocation candidates."""
        histogram = partial(Histogram, registry=self.registry)
        self.claims = Counter("placement_claims", "Claims by outcome.", ("outcome",), registry=self.registry)
        self.empty_searches = Counter(
            "placement_empty_searches",
            "Searches for allocation candidates that found none, by reason.",
            ("reason",),
            registry=self.registry,
        )
        self.group_refusals = Counter(
            "placement_group_refusals",
            "Calls of POST /claims that had enough candidates without their placement group, by its policy.",
            ("policy",),
            registry=self.registry,
        )
        # A series that begins at 0 lets Prometheus see its first increase.
        for outcome in ("won", "over_capacity", "no_candidates", "conflict", "refused"):
            self.claims.labels(outcome)
        for reason in ("no_supplier", "combination"):
            self.empty_searches.labels(reason)
        for policy in POLICIES:
            self.group_refusals.labels(policy)
        self.candidates = histogram(
            "placement_candidates", "Allocation candidates in a response.", buckets=COUNT_BUCKETS
        )
        self.trees = histogram(
            "placement_candidates_trees_examined",
            "Provider trees with a supplier for each request group, whose suppliers a search has combined.",
            buckets=COUNT_BUCKETS,
        )

    def _create_pool_metrics(self, pool: QueuePool) -> None:
        """Create the metrics of the connection pool, and update them on its events."""
        gauge = partial(Gauge, registry=self.registry, multiprocess_mode="livesum")
        self.connection_seconds = Histogram(
            "placement_pool_wait_seconds",
            "Time that a request waited for database connections.",
            buckets=POOL_WAIT_BUCKETS,
            registry=self.registry,
        )
        self.checked_out = gauge("placement_pool_checked_out_connections", "Database connections in use.")
        self.pool = pool
        size = gauge(
            "placement_pool_size_connections",
            "Largest number of connections that the pools of the workers can open.",
        )
        size.set(self.pool.size())
        event.listen(self.pool, "checkout", lambda *_: self._update_checked_out())
        # During this event the pool still counts the returned connection as checked out.
        event.listen(self.pool, "checkin", lambda *_: self._update_checked_out(-1))

    def _update_checked_out(self, change: int = 0) -> None:
        self.checked_out.set(self.pool.checkedout() + change)

    def count(self, completed: CompletedRequest) -> None:
        """Count a completed request, and what it did."""
        self._count_request(completed)
        self._count_database_work(completed)
        self._count_claim(completed)
        self._count_search(completed)

    def _count_request(self, completed: CompletedRequest) -> None:
        method = completed.method if completed.method in METHODS else "other"
        route, stats = completed.route, completed.stats
        series = (method, route, str(completed.status), completed.microversion or "none")
        # Looking up the four metrics by their labels costs more than updating them.
        if series not in self.series:
            self.series[series] = (
                self.requests.labels(*series),
                self.seconds.labels(*series[:3]),
                self.statements.labels(method, route),
                self.statement_seconds.labels(method, route),
            )
        requests, seconds, statements, statement_seconds = self.series[series]
        requests.inc()
        seconds.observe(completed.seconds)
        statements.observe(stats.statements)
        statement_seconds.observe(stats.statement_seconds)
        if completed.aborted:
            self.aborted.labels(method, route).inc()
        if stats.retries:
            self.retries.labels(method, route).inc(stats.retries)

    def _count_database_work(self, completed: CompletedRequest) -> None:
        stats = completed.stats
        if stats.primary_reads or stats.standby_reads:
            self.stale_reads.labels("primary").inc(stats.primary_reads)
            self.stale_reads.labels("standby").inc(stats.standby_reads)
        if stats.connections:
            self.connection_seconds.observe(stats.connection_seconds)
            # If two connections are returned at the same time, each event has subtracted only its own.
            self._update_checked_out()

    def _count_claim(self, completed: CompletedRequest) -> None:
        if completed.stats.is_claim and (outcome := _outcome(completed)):
            self.claims.labels(outcome).inc()
        if isinstance(completed.error, NoCandidates) and completed.error.group is not None:
            self.group_refusals.labels(completed.error.group.policy).inc()

    def _count_search(self, completed: CompletedRequest) -> None:
        stats = completed.stats
        if stats.candidates is not None:
            self.candidates.observe(stats.candidates)
            self.trees.observe(stats.anchors)
        if completed.is_empty_search:
            self.empty_searches.labels("combination" if stats.anchors else "no_supplier").inc()

    def response(self) -> Response:
        """Return the metrics of all workers in the Prometheus text format."""
        registry = self.registry
        if directory := shared_directory():
            registry = CollectorRegistry()
            registry.register(_MultiprocessCollector(directory))
            registry.register(self.database_collectors)
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _outcome(completed: CompletedRequest) -> str | None:
    """Return the outcome of a claim, None if it failed for other reasons."""
    match completed.error:
        case None:
            return "won" if completed.status in (200, 204) else None
        case OverCapacity():
            return "over_capacity"
        case NoCandidates():
            return "no_candidates"
        case ConcurrentUpdate():
            return "conflict"
        case Conflict():
            return "refused"
        case PlacementError():
            return None


class _MultiprocessCollector(Collector):
    """The sums over all processes that write their counts to a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def collect(self) -> Iterable[Metric]:
        # A process may be killed between creating a file and writing to it. The library's own collector fails
        # on the empty file (prometheus/client_python#1199).
        files = [str(path) for path in self.directory.glob("*.db") if _has_content(path)]
        merge = multiprocess.MultiProcessCollector.merge
        return cast(Iterable[Metric], merge(files))  # type: ignore[no-untyped-call]


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


class _InventoryTotals(DatabaseCollector):
    """The inventory totals of each resource class, at most `TOTALS_SECONDS` old."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.cached: dict[str, Totals] = {}
        self.expires = 0.0
        self.lock = Lock()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return self._families({})

    def collect(self) -> Iterable[GaugeMetricFamily]:
        with self.lock:
            if self.expires <= time.monotonic():
                self.cached = self.reader.read(usages.totals)
                self.expires = time.monotonic() + TOTALS_SECONDS
        return self._families(self.cached)

    def _families(self, totals: dict[str, Totals]) -> list[GaugeMetricFamily]:
        helps = {
            "capacity": "Capacity for a resource class, summed over all inventories.",
            "used": "Allocated amount of a resource class.",
            "reserved": "Reserved amount of a resource class, which is not part of its capacity.",
        }
        families = []
        for name, text in helps.items():
            family = GaugeMetricFamily(f"placement_inventory_{name}", text, labels=["resource_class"])
            for resource_class, total in totals.items():
                family.add_metric([resource_class], getattr(total, name))
            families.append(family)
        return families
