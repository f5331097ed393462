"""The metrics of watched aggregates: their amounts by resource class (`docs/spec/extensions.md 6.4`)."""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily

from placement_svc.db import capacity
from placement_svc.db.connections.cancellation import set_deadline
from placement_svc.db.connections.standbys import Reader
from placement_svc.domain.capacity import Amounts
from placement_svc.domain.errors import PlacementError
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.observability import shared_results
from placement_svc.observability.database_metrics import DatabaseCollector
from placement_svc.observability.shared_results import SharedResults

log = logging.getLogger(__name__)

_HELP = {
    "capacity": "Capacity for a resource class in a watched aggregate.",
    "used": "Allocated amount of a resource class in a watched aggregate.",
    "reserved": "Reserved amount of a resource class in a watched aggregate.",
}


class WatchedAggregates(DatabaseCollector):
    """The amounts of the aggregates whose uuids `uuids` returns by name.

    `directory` is the one that the workers share (None: there is one process). The computation may take
    `seconds`. If it fails, that is logged, and there are no samples.
    """

    def __init__(
        self,
        reader: Reader,
        uuids: Callable[[], Mapping[str, str]],
        directory: Path | None,
        *,
        seconds: float,
    ) -> None:
        self._reader = reader
        self._uuids = uuids
        self._results = SharedResults("watched_aggregates.json", directory, self._compute)
        self._seconds = seconds

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without samples, so that their registration computes nothing."""
        return self._families().values()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the amounts; have them computed first if they are too old."""
        families = self._families()
        found = self._results.read(shared_results.WAIT_SECONDS)
        for name, uuid in self._uuids().items():
            for resource_class, amounts in found.get(uuid, {}).items():
                for amount, family in families.items():
                    family.add_metric([name, resource_class], amounts[amount])
        return families.values()

    def _families(self) -> dict[str, GaugeMetricFamily]:
        labels = ["aggregate", "resource_class"]
        return {
            amount: GaugeMetricFamily(f"placement_aggregate_{amount}", text, labels=labels)
            for amount, text in _HELP.items()
        }

    def _compute(self) -> dict[str, Amounts]:
        set_deadline(Deadline.of(self._seconds))
        try:
            return self._reader.read(capacity.of_aggregates, set(self._uuids().values()))
        except PlacementError as error:
            log.warning("The watched aggregates failed: %s", error)
            return {}
