"""The metrics of the primary and its standbys: how durable commits are, and which standbys are used."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from placement_svc.db.durability import read_durability
from placement_svc.db.engine import Database
from placement_svc.db.standbys import Standby, StandbyReads
from placement_svc.domain.errors import Unavailable


class DatabaseCollector(Collector):
    """Metrics that are read from the database; `collect` raises `Unavailable` without it."""

    @abstractmethod
    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without samples, so that their registration reads nothing."""


class DatabaseCollectors(Collector):
    """The metrics of several collectors that read from the database.

    After one raises `Unavailable`, it and the following ones have no samples, so that a request for the
    metrics waits only once for a server that does not respond.
    """

    def __init__(self, *collectors: DatabaseCollector) -> None:
        self._collectors = collectors

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without samples, so that their registration reads nothing."""
        return chain.from_iterable(collector.describe() for collector in self._collectors)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics at this time."""
        is_available = True
        for collector in self._collectors:
            families: Iterable[Metric] = collector.describe()
            if is_available:
                try:
                    families = collector.collect()
                except Unavailable:
                    is_available = False
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


class StandbyCollector(Collector):
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
