"""The metrics of the primary and its standbys: how durable commits are, and which standbys are used."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import suppress
from itertools import chain

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from placement_svc.db.connections import time_limit
from placement_svc.db.connections.durability import read_durability
from placement_svc.db.connections.engine import Database
from placement_svc.db.connections.standbys import Standby, StandbyReads
from placement_svc.db.connections.time_limit import BackgroundCall
from placement_svc.domain.errors import Unavailable


class DatabaseCollector(Collector):
    """Metrics that are read from the database; `collect` raises `Unavailable` without it."""

    @abstractmethod
    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without samples, so that their registration reads nothing."""


class DatabaseCollectors(Collector):
    """The metrics of several collectors that read from the database, at the same time.

    Those that the database does not return within `RESPONSE_SECONDS` have no samples.
    """

    def __init__(self, collectors: Sequence[DatabaseCollector]) -> None:
        self._collectors = collectors
        self._collections = [BackgroundCall(collector.collect) for collector in collectors]

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without samples, so that their registration reads nothing."""
        return chain.from_iterable(collector.describe() for collector in self._collectors)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics at this time."""
        collections = [collection.start() for collection in self._collections]
        wait(collections, time_limit.RESPONSE_SECONDS)
        for collector, collection in zip(self._collectors, collections, strict=True):
            families: Iterable[Metric] = collector.describe()
            if collection.done():
                with suppress(Unavailable):
                    families = collection.result()
            yield from families


class DurabilityCollector(DatabaseCollector):
    """How durable commits are on the primary."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without samples."""
        return self._families()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics at this time."""
        families = self._families()
        durability = self._database.read(read_durability)
        level, required, connected = families
        level.add_metric([durability.synchronous_commit], 1)
        required.add_metric([], durability.required)
        if durability.connected is not None:
            connected.add_metric([], durability.connected)
        return families

    def _families(self) -> list[GaugeMetricFamily]:
        return [
            GaugeMetricFamily(
                "placement_synchronous_commit",
                "1 for the value of synchronous_commit in the sessions of the service.",
                labels=["value"],
            ),
            GaugeMetricFamily(
                "placement_synchronous_standbys_required",
                "Standbys that each commit waits for.",
            ),
            GaugeMetricFamily(
                "placement_synchronous_standbys_connected",
                "Synchronous standbys that are connected to the primary.",
            ),
        ]


class StandbyCollector(DatabaseCollector):
    """Which standbys are used for reads, and how far each lags behind."""

    def __init__(self, reads: StandbyReads) -> None:
        self._standbys = reads.standbys

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without samples, so that their registration connects to nothing."""
        return self._families()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics; the lag of a standby that is in use is measured now."""
        families = self._families()
        for standby in self._standbys:
            if standby.is_usable():
                standby.check()
            self._add(standby, *families)
        return families

    def _add(self, standby: Standby, used: GaugeMetricFamily, lag: GaugeMetricFamily) -> None:
        used.add_metric([standby.name], standby.problem is None)
        if standby.lag is not None:
            lag.add_metric([standby.name], standby.lag)

    def _families(self) -> list[GaugeMetricFamily]:
        return [
            GaugeMetricFamily(
                "placement_standby_used", "Whether a standby is used for reads.", labels=["server"]
            ),
            GaugeMetricFamily(
                "placement_standby_lag_seconds",
                "How far a standby lags behind the primary.",
                labels=["server"],
            ),
        ]
