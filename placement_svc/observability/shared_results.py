"""Results that are expensive to compute, for metrics that do not depend on the worker.

The workers of a service share the results in a file, so that one worker computes them for all.
"""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

MAX_AGE_SECONDS = 60.0
"""The age of the results from which on a request for the metrics has them computed again."""

WAIT_SECONDS = 3.0
"""How long a request for the metrics waits for new results; after that, it gets the previous ones."""


class SharedResults:
    """The results of `compute`, as JSON in the file `name` of `directory`.

    The workers share `directory` (None: there is one process). `compute` runs in a thread of its own.
    """

    def __init__(self, name: str, directory: Path | None, compute: Callable[[], dict[str, Any]]) -> None:
        self._own_directory = tempfile.TemporaryDirectory() if directory is None else None
        self._file = (directory or Path(self._own_directory.name)) / name  # type: ignore[union-attr]
        self._compute = compute

    def read(self, wait_seconds: float) -> dict[str, Any]:
        """Return the results; empty if there are none yet.

        Results that are too old are computed again; this waits at most `wait_seconds` for them, and then
        returns the previous ones.
        """
        if not self._is_fresh():
            computation = Thread(target=self._update, name=self._file.stem, daemon=True)
            computation.start()
            computation.join(wait_seconds)
        try:
            results: dict[str, Any] = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        return results

    def _is_fresh(self) -> bool:
        try:
            age = time.time() - self._file.stat().st_mtime
        except FileNotFoundError:
            return False
        return 0 <= age < MAX_AGE_SECONDS

    def _update(self) -> None:
        """Store new results, unless another thread or worker does so or has just done so."""
        with self._lock() as is_locked:
            if not is_locked or self._is_fresh():
                return
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps(self._compute()))
            new.replace(self._file)

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Yield whether this thread holds the lock of the results; it does not wait for it."""
        descriptor = os.open(self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(descriptor)
