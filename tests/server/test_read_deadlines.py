import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from placement_svc.server.read_deadlines import ReadDeadlines
from tests.support.service import TIMEOUT


@contextmanager
def clients_connecting(deadlines: ReadDeadlines) -> Iterator[None]:
    """Let a client connect whenever the garbage collector runs, when other threads may run too."""

    def connect(phase: str, _: Any) -> None:
        if phase == "start":
            deadlines.begin(cast(Any, object()))

    thresholds = gc.get_threshold()
    gc.callbacks.append(connect)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(connect)


def test_clients_may_connect_while_the_worker_checks_deadlines() -> None:
    deadlines = ReadDeadlines(TIMEOUT)
    # So many that Python cannot take all tuples from its free list, which would not run the collector.
    for _ in range(5000):
        deadlines.begin(cast(Any, object()))
    with clients_connecting(deadlines):
        deadlines.disconnect_expired()
    assert len(deadlines) > 5000
