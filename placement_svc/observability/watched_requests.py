"""The metric of watched requests: how often each of them can be claimed (`docs/spec/extensions.md 4`).

The workers of a service share the results in a file, so that one worker computes them for all.
"""

import fcntl
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from placement_svc.db.cancellation import set_deadline
from placement_svc.db.fits import count_fits
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.db.standbys import Reader
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.errors import PlacementError
from placement_svc.domain.fits import FitsRequest
from placement_svc.domain.memory import MEGABYTE, MemoryBudget

log = logging.getLogger(__name__)

MAX_AGE_SECONDS = 60.0
"""The age of the results from which on a request for the metrics has them computed again."""

WAIT_SECONDS = 3.0
"""How long a request for the metrics waits for new results; after that, it gets the previous ones."""

RESULTS = "watched_requests.json"


class WatchedRequests(Collector):
    """Computes how often the requests of `requests` can be claimed, in a thread of its own.

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
        self._own_directory = tempfile.TemporaryDirectory() if directory is None else None
        self._results = (directory or Path(self._own_directory.name)) / RESULTS  # type: ignore[union-attr]
        self._seconds = seconds
        self._memory = memory

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metric without samples, so that its registration computes nothing."""
        return [self._family()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the results; have them computed first if they are too old."""
        family = self._family()
        for name, count in self.results(WAIT_SECONDS).items():
            if count is not None:
                family.add_metric([name], count)
        return [family]

    def results(self, wait_seconds: float) -> Mapping[str, int | None]:
        """Return how often each watched request can be claimed, None if that is not known.

        Results that are too old are computed again; this waits at most `wait_seconds` for them, and then
        returns the previous ones.
        """
        if not self._is_fresh():
            computation = Thread(target=self._compute, name="watched-requests", daemon=True)
            computation.start()
            computation.join(wait_seconds)
        found: dict[str, int] = {}
        with suppress(FileNotFoundError):
            found = json.loads(self._results.read_text())
        return {name: found.get(name) for name in self._requests()}

    def _family(self) -> GaugeMetricFamily:
        text = "How often a watched request can be claimed until it has no candidates."
        return GaugeMetricFamily("placement_request_fits", text, labels=["request"])

    def _is_fresh(self) -> bool:
        try:
            age = time.time() - self._results.stat().st_mtime
        except FileNotFoundError:
            return False
        return 0 <= age < MAX_AGE_SECONDS

    def _compute(self) -> None:
        """Store new results, unless another thread or worker does so or has just done so."""
        with self._lock() as is_locked:
            if not is_locked or self._is_fresh():
                return
            results = {}
            for name, request in self._requests().items():
                try:
                    results[name] = self._count(request)
                except PlacementError as error:
                    log.warning("The watched request %s failed: %s", name, error)
            new = self._results.with_suffix(".new")
            new.write_text(json.dumps(results))
            new.replace(self._results)

    def _count(self, request: FitsRequest) -> int:
        deadline = Deadline.of(self._seconds)
        set_deadline(deadline)
        options = SearchOptions(deadline=deadline, memory=MemoryBudget(self._memory * MEGABYTE))
        return self._reader.read(count_fits, request, options).count

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Yield whether this thread holds the lock of the results; it does not wait for it."""
        descriptor = os.open(self._results.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(descriptor)
