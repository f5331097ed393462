"""Limit the time for which probes and metrics wait for the database."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

RESPONSE_SECONDS = 5.0
"""Seconds for which a probe or a request for the metrics waits for the database, whatever its servers do.

Prometheus waits 10 seconds by default.
"""


class BackgroundCall(Generic[T]):
    """Runs `call` in a thread, which does not delay the end of the process, at most once at a time.

    So a server that does not respond holds one thread, however often it is asked.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._lock = Lock()
        self._running: Future[T] | None = None

    def start(self) -> Future[T]:
        """Return the call that is running, or else a new one."""
        with self._lock:
            if self._running is None:
                self._running = Future()
                Thread(target=self._run, args=(self._running,), name="background-call", daemon=True).start()
            return self._running

    def _run(self, future: Future[T]) -> None:
        try:
            result = self._call()
        except Exception as error:
            self._forget()
            future.set_exception(error)
        else:
            self._forget()
            future.set_result(result)
        # The traceback of an error refers to this frame.
        del future

    def _forget(self) -> None:
        """Let the next caller start a new call. A kept error would keep alive all that the call has used."""
        with self._lock:
            self._running = None
