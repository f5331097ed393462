"""Files that an operator may change while the service runs."""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from placement_svc.domain.errors import SetupError

log = logging.getLogger(__name__)

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """What a file means, read again whenever the file has changed.

    `read` turns the path into the meaning, and raises `SetupError` for a file that it cannot use.
    Such a file does not count, and is told once in the log: its last meaning stays until the next
    change. At first there is none, and `SetupError` is raised.
    """

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        self._path = path
        self._read = read
        self._lock = threading.Lock()
        self._state = self._look()
        self._meaning = read(path)

    def meaning(self) -> T:
        """Return what the file means now."""
        if self._look() != self._state:
            with self._lock:
                # Another thread may have read it meanwhile.
                state = self._look()
                if state != self._state:
                    self._reload()
                    self._state = state
        return self._meaning

    def _reload(self) -> None:
        try:
            self._meaning = self._read(self._path)
        except SetupError as problem:
            log.error("%s; what it said before still counts", problem)
        else:
            log.info("Read %s again", self._path)

    def _look(self) -> tuple[int, ...] | None:
        """Return what differs once the file has changed, whether in place or by another in its place."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns
