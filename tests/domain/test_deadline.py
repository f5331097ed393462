"""The end of the work for a request: at its time limit, or when the client has disconnected."""

import itertools
import time

import pytest

from placement_svc.domain import deadline as module
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.errors import ClientDisconnected, Unavailable


def test_deadline_that_has_not_passed_allows_work():
    Deadline.of(60).check()
    Deadline.of(60, lambda: False).check()


@pytest.mark.parametrize("is_abandoned", [None, lambda: False])
def test_passed_deadline_ends_the_work(is_abandoned):
    deadline = Deadline.of(0, is_abandoned)
    with pytest.raises(Unavailable, match="takes longer than 0 seconds"):
        deadline.check()


def test_work_ends_when_the_client_disconnects(monkeypatch):
    monkeypatch.setattr(module, "CLIENT_CHECK_INTERVAL", 0)
    answers = iter([False, False, True])
    deadline = Deadline.of(60, lambda: next(answers))
    deadline.check()
    deadline.check()
    with pytest.raises(ClientDisconnected):
        deadline.check()


def test_client_is_checked_at_most_ten_times_a_second():
    calls = []
    deadline = Deadline.of(60, lambda: bool(calls.append(None)))
    start = time.monotonic()
    while time.monotonic() < start + 0.5:
        deadline.check()
    assert 1 <= len(calls) <= 5


def test_checked_yields_all_items():
    assert list(Deadline.of(60).checked(range(1000))) == list(range(1000))


def test_checked_ends_at_the_deadline():
    with pytest.raises(Unavailable):
        for _ in Deadline.of(0.01).checked(itertools.count()):
            pass


def test_wait_without_the_turn_is_not_shared() -> None:
    events: list[str] = []
    deadline = Deadline.of(60, share_turn=lambda seconds: events.append("share"))
    deadline.pause_turn = lambda: events.append("pause")
    deadline.resume_turn = lambda seconds: events.append(f"resume within {round(seconds)}")
    deadline.pause()
    deadline.next_event = 0.0
    deadline.resume()
    deadline.check()
    assert events == ["pause", "resume within 60"]


def test_wait_that_takes_until_the_deadline_needs_no_turn() -> None:
    deadline = Deadline.of(0)
    deadline.resume_turn = lambda seconds: pytest.fail("a turn")
    with pytest.raises(Unavailable):
        deadline.resume()
