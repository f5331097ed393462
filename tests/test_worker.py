"""Where a worker keeps large bodies, room may be short."""

from contextlib import AbstractContextManager
from io import BytesIO
from threading import Lock
from typing import Any

import pytest
from flask import Flask

from placement_svc import worker
from placement_svc.config import Settings

LARGE = worker.IN_MEMORY + 1


def read(body: bytes) -> AbstractContextManager[Any]:
    """Give what a worker gives to the application for a body that it was sent."""
    reader = worker.Worker.__new__(worker.Worker)
    reader.settings, reader.keeping = Settings(), Lock()
    return reader._read({"CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)})


@pytest.fixture
def short_of_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SPARE", 2**62)


def test_large_body_is_kept_where_there_is_room() -> None:
    with read(b"x" * LARGE) as body:
        assert body.read() == b"x" * LARGE


@pytest.mark.usefixtures("short_of_room")
def test_small_body_needs_no_room() -> None:
    with read(b"x" * worker.IN_MEMORY) as body:
        assert body.read() == b"x" * worker.IN_MEMORY


@pytest.mark.usefixtures("short_of_room")
def test_large_body_without_room_may_succeed_later(app: Flask) -> None:
    with read(b"x" * LARGE) as body:
        answer = app.test_client().post(
            "/resource_providers",
            content_type="application/json",
            headers={"X-Auth-Token": "admin"},
            environ_overrides={"CONTENT_LENGTH": str(LARGE), "wsgi.input": body},
        )
    assert answer.status_code == 503
    assert "no room for a body of this size" in answer.get_data(as_text=True)
