"""Configuration files that an operator may change while the service runs."""

import errno
import logging
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from placement_svc.domain.errors import SetupError

log = logging.getLogger(__name__)

T = TypeVar("T")


def read_regular_file(path: Path) -> bytes:
    """Return the content of a file; raise `OSError` if it cannot be read or is not a regular file.

    Reading a named pipe or a device could wait forever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


class WatchedFile(Generic[T]):
    """The parsed content of a file, reloaded whenever the file has changed.

    `read` parses the file at a path, and raises `SetupError` if it cannot. Such a change is logged once,
    and the value before it stays in effect until the next change. The constructor raises `SetupError`.
    """

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        self._path = path
        self._read = read
        self._lock = threading.Lock()
        self._version = self._stat()
        self._value = read(path)

    def value(self) -> T:
        """Return the current value; reload the file first if it has changed."""
        if self._stat() != self._version:
            with self._lock:
                # Another thread may have reloaded it in the meantime.
                version = self._stat()
                if version != self._version:
                    self._reload()
                    self._version = version
        return self._value

    def _reload(self) -> None:
        try:
            self._value = self._read(self._path)
        except SetupError as error:
            log.error("%s; its previous content stays in effect", error)
        else:
            log.info("Reloaded %s", self._path)

    def _stat(self) -> tuple[int, ...] | None:
        """Return a value that differs after the file was changed or replaced, None if it does not exist."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns
