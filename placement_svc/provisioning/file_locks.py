"""File locks between processes, by ``flock``.

The kernel releases the locks of a process when it ends, including when it is killed.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def open_file(path: Path, flags: int = 0) -> int:
    """Open a file for reading and writing, creating it if necessary; return the descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, mode=0o600)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of `path`, waiting for it if necessary."""
    lock = open_file(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        # Closing the file does not release the lock if a child process was forked meanwhile: it has the file
        # open.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


@contextmanager
def try_lock(path: Path, *, create: bool = True) -> Iterator[int | None]:
    """Yield the descriptor of `path` with its exclusive lock held, or None if another process holds the lock.

    On exit the descriptor is closed. That releases the lock, unless a child process inherited the descriptor.
    Without `create`, raises `FileNotFoundError` if the file does not exist.
    """
    lock = open_file(path) if create else os.open(path, os.O_RDWR)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock
    finally:
        os.close(lock)
