"""A worker buffers large bodies, and checks deadlines while clients connect."""

import gc
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask
from gunicorn.config import Config

from placement_svc.config import Settings
from placement_svc.server.worker import MAX_BODY_IN_MEMORY, Worker

LARGE = MAX_BODY_IN_MEMORY + 1


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker that has not started."""
    worker = Worker(0, 0, [], SimpleNamespace(settings=Settings(), concurrency=1), 30, Config(), None)
    yield worker
    worker.tmp.close()


def buffered(worker: Worker, body: bytes) -> AbstractContextManager[Any]:
    """Yield the body that the application reads when a client sends `body`."""
    return worker._buffered_body({"CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)})


@pytest.fixture
def disk_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement_svc.server.worker.MIN_FREE_BYTES", 2**62)


def test_large_body_is_buffered(worker: Worker) -> None:
    with buffered(worker, b"x" * LARGE) as body:
        assert body.read() == b"x" * LARGE


@pytest.mark.usefixtures("disk_full")
def test_small_body_is_buffered_although_the_disk_is_full(worker: Worker) -> None:
    with buffered(worker, b"x" * MAX_BODY_IN_MEMORY) as body:
        assert body.read() == b"x" * MAX_BODY_IN_MEMORY


@pytest.mark.usefixtures("disk_full")
def test_large_body_gets_503_while_the_disk_is_full(app: Flask, worker: Worker) -> None:
    with buffered(worker, b"x" * LARGE) as body:
        response = app.test_client().post(
            "/resource_providers",
            content_type="application/json",
            headers={"X-Auth-Token": "admin"},
            environ_overrides={"CONTENT_LENGTH": str(LARGE), "wsgi.input": body},
        )
    assert response.status_code == 503
    assert "no room for a body of this size" in response.get_data(as_text=True)


@contextmanager
def clients_connecting(worker: Worker) -> Iterator[None]:
    """Let a client connect whenever the garbage collector runs, when other threads may run too."""

    def connect(phase: str, _: Any) -> None:
        if phase == "start":
            worker.read_deadlines[object()] = math.inf

    thresholds = gc.get_threshold()
    gc.callbacks.append(connect)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(connect)


def test_clients_may_connect_while_the_worker_checks_deadlines(worker: Worker) -> None:
    # So many that Python cannot take all tuples from its free list, which would not run the collector.
    earlier = {object(): math.inf for _ in range(5000)}
    worker.read_deadlines |= earlier
    with clients_connecting(worker):
        worker.notify()
    assert worker.read_deadlines.keys() > earlier.keys()
