"""A semaphore that no thread can get before those that wait for it."""

import math
import time
from collections import deque
from collections.abc import Callable
from threading import Event, Lock

WAIT_INTERVAL = 0.1
"""Seconds between two calls of `is_over` while a thread waits."""


class FairSemaphore:
    """A semaphore that its waiting threads get in the order in which they came.

    At most `max_waiting` threads wait for it (None: any number).
    """

    def __init__(self, value: int = 1, *, max_waiting: int | None = None) -> None:
        self._lock = Lock()
        self._free = value
        self._max_waiting = max_waiting
        self._waiting: deque[Event] = deque()

    def acquire(self, timeout: float = math.inf, is_over: Callable[[], bool] | None = None) -> bool:
        """Get the semaphore; return False after `timeout` seconds, or once `is_over` returns True.

        If too many threads wait already, return False at once.
        """
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            if len(self._waiting) == self._max_waiting:
                return False
            granted = Event()
            self._waiting.append(granted)
        end = time.monotonic() + timeout
        while not granted.wait(max(0.0, min(WAIT_INTERVAL, end - time.monotonic()))):
            if time.monotonic() >= end or (is_over is not None and is_over()):
                break
        with self._lock:
            if granted.is_set():
                return True
            self._waiting.remove(granted)
        return False

    def release(self) -> None:
        """Pass the semaphore on to the thread that has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1
