"""The metric of watched requests: how often each of them can be claimed (`docs/spec/extensions.md 4`)."""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily

from placement_svc.db.connections.cancellation import set_deadline
from placement_svc.db.connections.standbys import Reader
from placement_svc.db.fits import count_fits
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.errors import PlacementError
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MEGABYTE, MemoryBudget
from placement_svc.domain.fits import FitsRequest
from placement_svc.observability import shared_results
from placement_svc.observability.database_metrics import DatabaseCollector
from placement_svc.observability.shared_results import SharedResults

log = logging.getLogger(__name__)

RESULTS = "watched_requests.json"


class WatchedRequests(DatabaseCollector):
    """How often the requests of `requests` can be claimed.

    `directory` is the one that the workers share (None: there is one process). The computation of each
    request may take `seconds`, and `memory` megabytes. A request that fails is logged, and has no sample.
    """

    def __init__(
        self,
        reader: Reader,
        requests: Callable[[], Mapping[str, FitsRequest]],
        directory: Path | None,
        *,
        seconds: float,
        memory: int,
    ) -> None:
        self._reader = reader
        self._requests = requests
        self._results = SharedResults(RESULTS, directory, self._compute)
        self._seconds = seconds
        self._memory = memory

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metric without samples, so that its registration computes nothing."""
        return [self._family()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the results; have them computed first if they are too old."""
        family = self._family()
        for name, count in self.results(shared_results.WAIT_SECONDS).items():
            if count is not None:
                family.add_metric([name], count)
        return [family]

    def results(self, wait_seconds: float) -> Mapping[str, int | None]:
        """Return how often each watched request can be claimed, None if that is not known.

        Waits at most `wait_seconds` for new results.
        """
        found = self._results.read(wait_seconds)
        return {name: found.get(name) for name in self._requests()}

    def _family(self) -> GaugeMetricFamily:
        text = "How often a watched request can be claimed until it has no candidates."
        return GaugeMetricFamily("placement_request_fits", text, labels=["request"])

    def _compute(self) -> dict[str, int]:
        results = {}
        for name, request in self._requests().items():
            try:
                results[name] = self._count(request)
            except PlacementError as error:
                log.warning("The watched request %s failed: %s", name, error)
        return results

    def _count(self, request: FitsRequest) -> int:
        deadline = Deadline.of(self._seconds)
        set_deadline(deadline)
        options = SearchOptions(deadline=deadline, memory=MemoryBudget(self._memory * MEGABYTE))
        return self._reader.read(count_fits, request, options).count
