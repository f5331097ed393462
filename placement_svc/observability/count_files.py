"""The files in which the workers count for the metrics, with disk space that is allocated in advance.

The library maps its files into memory before the disk has allocated them. If the disk is full then, the
kernel kills the process that writes to them (SIGBUS).
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import mmap
from typing import Any

from prometheus_client import mmap_dict

log = logging.getLogger(__name__)

OVERHEAD = 28
"""The most bytes of an entry besides its key: the length of the key, padding, the value and its time."""


class CountFile(mmap_dict.MmapedDict):
    """A file of counts. If the disk is full, it is in memory, where `/metrics` of other workers misses it."""

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        if read_mode or _allocate(filename, mmap_dict._INITIAL_MMAP_SIZE):
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]
        else:
            with _memory_file() as path:
                super().__init__(path)  # type: ignore[no-untyped-call]

    def _init_value(self, key: str) -> None:
        needed = self._used + len(key.encode()) + OVERHEAD
        size = self._capacity
        while size < needed:
            size *= 2
        if size > self._capacity and not _allocate(self._f.fileno(), size):
            self._move_to_memory()
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _move_to_memory(self) -> None:
        content = self._m[:]
        self.close()  # type: ignore[no-untyped-call]
        with _memory_file() as path:
            self._f = open(path, "a+b")  # noqa: SIM115
        self._f.truncate(self._capacity)
        self._m: Any = mmap(self._f.fileno(), self._capacity)
        self._m[:] = content


def _allocate(file: str | int, size: int) -> bool:
    """Allocate disk space for the first `size` bytes of a file; return False if there is too little."""
    with open(file, "ab", closefd=isinstance(file, str)) as opened:
        length = os.fstat(opened.fileno()).st_size
        try:
            os.posix_fallocate(opened.fileno(), 0, size)
        except OSError as error:
            opened.truncate(length)
            log.warning("A worker counts only for itself from now on, for lack of space: %s", error.strerror)
            return False
    return True


@contextmanager
def _memory_file() -> Iterator[str]:
    """Yield the path of a new file in memory, which is freed when it is closed."""
    descriptor = os.memfd_create("counts")
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
