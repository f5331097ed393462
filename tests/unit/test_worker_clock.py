"""What the main thread of a worker does while others come and go."""

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config

from placement_svc.config import Settings
from placement_svc.worker import Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker that has not begun to work."""
    worker = Worker(0, 0, [], SimpleNamespace(settings=Settings(), turns=1), 30, Config(), None)
    yield worker
    worker.tmp.close()


@contextmanager
def clients_arriving(worker: Worker) -> Iterator[None]:
    """Let clients arrive whenever garbage is looked for: what closes then lets other threads run."""

    def arrive(phase: str, _: Any) -> None:
        if phase == "start":
            worker.reading[object()] = math.inf

    thresholds = gc.get_threshold()
    gc.callbacks.append(arrive)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(arrive)


def test_clients_may_arrive_while_the_worker_looks_at_the_clock(worker: Worker) -> None:
    # Python has a stock of pairs, which are made without looking for garbage.
    there = {object(): math.inf for _ in range(5000)}
    worker.reading |= there
    with clients_arriving(worker):
        worker.notify()
    assert worker.reading.keys() > there.keys()
