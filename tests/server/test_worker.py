"""What a worker does with large bodies, and while clients come and go."""

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
from placement_svc.server.worker import IN_MEMORY, Worker

LARGE = IN_MEMORY + 1


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker that has not begun to work."""
    worker = Worker(0, 0, [], SimpleNamespace(settings=Settings(), turns=1), 30, Config(), None)
    yield worker
    worker.tmp.close()


def read(worker: Worker, body: bytes) -> AbstractContextManager[Any]:
    """Give what a worker gives to the application for a body that it was sent."""
    return worker._read({"CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)})


@pytest.fixture
def short_of_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement_svc.server.worker.SPARE", 2**62)


def test_large_body_is_kept_where_there_is_room(worker: Worker) -> None:
    with read(worker, b"x" * LARGE) as body:
        assert body.read() == b"x" * LARGE


@pytest.mark.usefixtures("short_of_room")
def test_small_body_needs_no_room(worker: Worker) -> None:
    with read(worker, b"x" * IN_MEMORY) as body:
        assert body.read() == b"x" * IN_MEMORY


@pytest.mark.usefixtures("short_of_room")
def test_large_body_without_room_may_succeed_later(app: Flask, worker: Worker) -> None:
    with read(worker, b"x" * LARGE) as body:
        answer = app.test_client().post(
            "/resource_providers",
            content_type="application/json",
            headers={"X-Auth-Token": "admin"},
            environ_overrides={"CONTENT_LENGTH": str(LARGE), "wsgi.input": body},
        )
    assert answer.status_code == 503
    assert "no room for a body of this size" in answer.get_data(as_text=True)


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
