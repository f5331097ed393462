"""The end of the work for a request: at its time limit, or when the client has disconnected."""

import itertools
import time
from collections.abc import Callable

import pytest

from placement_svc.domain.errors import ClientDisconnected, NoLongSlot, Unavailable
from placement_svc.domain.execution import deadline as module
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.fair_semaphore import FairSemaphore
from tests.support.slots import RecordedSlot


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
    start = time.monotonic()
    deadline = Deadline.of(60, lambda: bool(calls.append(None)))
    while len(calls) < 5:
        deadline.check()
    assert time.monotonic() - start >= 0.5


def test_checked_yields_all_items():
    assert list(Deadline.of(60).checked(range(1000))) == list(range(1000))


def test_checked_ends_at_the_deadline():
    with pytest.raises(Unavailable):
        for _ in Deadline.of(0.01).checked(itertools.count()):
            pass


def test_request_that_has_hardly_worked_keeps_its_slot() -> None:
    events: list[str] = []
    work = itertools.accumulate([7, 0.3 * module.MIN_WORK, 0.8 * module.MIN_WORK, 0, 0.9 * module.MIN_WORK])
    deadline = Deadline.of(60, slot=RecordedSlot(events), work_seconds=lambda: next(work))
    for expected in ([], ["share"], ["share"]):
        deadline.next_event = 0.0
        deadline.check()
        assert events == expected


def test_wait_without_the_slot_is_not_shared() -> None:
    events: list[str] = []
    deadline = Deadline.of(60, slot=RecordedSlot(events))
    deadline.pause()
    deadline.next_event = 0.0
    deadline.resume()
    deadline.check()
    assert events == ["pause", "resume"]


def test_wait_that_takes_until_the_deadline_needs_no_slot() -> None:
    events: list[str] = []
    deadline = Deadline.of(0, slot=RecordedSlot(events))
    with pytest.raises(Unavailable):
        deadline.resume()
    assert not events


def test_semaphore_that_is_free_is_acquired_with_the_slot() -> None:
    events: list[str] = []
    semaphore = FairSemaphore()
    deadline = Deadline.of(60, slot=RecordedSlot(events))
    deadline.wait_for(semaphore)
    assert not events
    assert not semaphore.acquire(0)


def test_others_have_the_slot_of_a_request_that_waits_for_a_semaphore() -> None:
    events: list[str] = []
    semaphore = FairSemaphore(0)

    class Releasing(RecordedSlot):
        def pause(self) -> None:
            super().pause()
            semaphore.release()

    Deadline.of(60, slot=Releasing(events)).wait_for(semaphore)
    assert events == ["pause", "resume"]
    assert not semaphore.acquire(0)


def test_semaphore_is_released_if_the_slot_comes_too_late() -> None:
    semaphore = FairSemaphore(0)

    class Late(RecordedSlot):
        def pause(self) -> None:
            semaphore.release()

        def resume(self, seconds: float) -> None:
            raise Unavailable("too late")

    with pytest.raises(Unavailable, match="too late"):
        Deadline.of(60, slot=Late([])).wait_for(semaphore)
    assert semaphore.acquire(0)


def test_wait_for_a_semaphore_ends_at_the_deadline() -> None:
    with pytest.raises(Unavailable, match="takes longer than 0 seconds"):
        Deadline.of(0).wait_for(FairSemaphore(0))


def test_read_that_gets_no_long_slot_runs_again_when_one_is_free() -> None:
    events: list[str] = []
    deadline = Deadline.of(60, slot=RecordedSlot(events))

    def read() -> int:
        events.append("read")
        if events == ["read"]:
            raise NoLongSlot("no slot")
        return 7

    assert deadline.run(read) == 7
    assert events == ["read", "become long", "read"]
    # The slot is new, so it is not shared at once.
    deadline.check()
    assert events[3:] == []


def test_read_does_not_wait_for_a_long_slot_after_the_deadline() -> None:
    events: list[str] = []
    deadline = Deadline.of(0, slot=RecordedSlot(events))

    def read() -> None:
        raise NoLongSlot("no slot")

    with pytest.raises(Unavailable, match="takes longer than 0 seconds"):
        deadline.run(read)
    assert not events


def test_client_that_disconnects_ends_the_wait_for_a_long_slot() -> None:
    is_gone = False

    class Waiting(RecordedSlot):
        def become_long(self, seconds: float, is_over: Callable[[], bool]) -> None:
            nonlocal is_gone
            assert not is_over()
            is_gone = True
            assert is_over()
            raise Unavailable("no slot")

    def read() -> None:
        raise NoLongSlot("no slot")

    deadline = Deadline.of(60, lambda: is_gone, Waiting([]))
    with pytest.raises(ClientDisconnected):
        deadline.run(read)


def test_request_has_no_slot_while_it_waits_for_a_semaphore() -> None:
    events: list[str] = []
    semaphore = FairSemaphore(1)
    Deadline.of(60, slot=RecordedSlot(events)).acquire(semaphore, "busy")
    assert events == ["leave", "become long"]
    assert not semaphore.acquire(0)


def test_semaphore_is_free_again_if_the_request_gets_no_long_slot() -> None:
    class NoSlot(RecordedSlot):
        def become_long(self, seconds: float, is_over: Callable[[], bool]) -> None:
            raise Unavailable("no slot")

    semaphore = FairSemaphore(1)
    with pytest.raises(Unavailable, match="no slot"):
        Deadline.of(60, slot=NoSlot([])).acquire(semaphore, "busy")
    assert semaphore.acquire(0)
