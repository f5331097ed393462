"""The slots of a worker: short ones, and one for long requests."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from placement_svc.domain.errors import NoLongSlot, Unavailable
from placement_svc.domain.execution.fair_semaphore import FairSemaphore
from placement_svc.server import slots as module
from placement_svc.server.slots import MAX_EXTENSIONS, Slot, Slots
from tests.support.service import TIMEOUT, wait_until


def never() -> bool:
    return False


def long_response(slot: Slot) -> Iterator[bytes]:
    """Yield a response that has taken long after its first piece."""
    yield b"1"
    slot.share(TIMEOUT)
    yield b"2"


def test_semaphore_is_passed_on_in_order() -> None:
    lock, order = FairSemaphore(1), []

    def wait(number: int) -> None:
        assert lock.acquire(TIMEOUT)
        order.append(number)
        lock.release()

    assert lock.acquire()
    with ThreadPoolExecutor(5) as threads:
        for number in range(5):
            threads.submit(wait, number)
            wait_until(lambda number=number: len(lock._waiting) == number + 1)
        lock.release()
    assert order == [0, 1, 2, 3, 4]
    assert lock.acquire(0)


def test_semaphore_that_is_not_released_in_time() -> None:
    lock = FairSemaphore(1)
    assert lock.acquire()
    assert not lock.acquire(0.01)
    lock.release()
    assert lock.acquire(0)


def test_long_request_releases_its_short_slot() -> None:
    slots = Slots(concurrency=1, max_long=1)
    with Slot(slots) as first:
        first.share(TIMEOUT)
        with Slot(slots) as second:
            assert not second.is_long
        assert first.is_long


def test_long_requests_run_one_at_a_time() -> None:
    slots = Slots(concurrency=4, max_long=2)
    running, stop = [], Event()

    def compute(name: str) -> None:
        with Slot(slots) as slot:
            while not stop.is_set():
                slot.share(TIMEOUT)
                running.append(name)
                time.sleep(0.01)
                running.append(name)

    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(compute, name) for name in "ab"]
        wait_until(lambda: {"a", "b"} <= set(running) and len(running) > 20)
        stop.set()
    assert [each.result() for each in done] == [None, None]
    assert running[::2] == running[1::2]


def test_semaphore_has_as_many_holders_as_its_value() -> None:
    semaphore = FairSemaphore(2)
    assert [semaphore.acquire(0) for _ in range(3)] == [True, True, False]
    semaphore.release()
    assert [semaphore.acquire(0) for _ in range(2)] == [True, False]


def test_request_that_becomes_long_while_too_many_are_waits_and_starts_again() -> None:
    slots = Slots(concurrency=2, max_long=1)
    order: list[str] = []

    def wait(slot: Slot, name: str) -> None:
        slot.become_long(TIMEOUT, never)
        slot.share(TIMEOUT)
        order.append(name)
        slot.__exit__()

    with ThreadPoolExecutor(2) as threads:
        with Slot(slots) as first:
            first.share(TIMEOUT)
            others = [Slot(slots) for _ in range(2)]
            for number, other in enumerate(others):
                with other:
                    for _ in range(MAX_EXTENSIONS):
                        other.share(TIMEOUT)
                    with pytest.raises(NoLongSlot):
                        other.share(TIMEOUT)
                threads.submit(wait, other, "ab"[number])
                wait_until(lambda number=number: len(slots.long_requests._waiting) == number + 1)
            # Those that wait hold no short slot.
            with Slot(slots), Slot(slots):
                pass
        wait_until(lambda: order == ["a", "b"])
    with Slot(slots) as last:
        last.share(TIMEOUT)


def test_request_that_becomes_long_while_too_many_are_keeps_its_short_slot_only_if_others_are_free() -> None:
    slots = Slots(concurrency=2, max_long=1)
    with Slot(slots) as first:
        first.share(TIMEOUT)
        with Slot(slots) as second:
            second.share(TIMEOUT)
            assert not second.is_long
            with Slot(slots), pytest.raises(NoLongSlot):
                second.share(TIMEOUT)


def test_request_with_a_large_body_counts_as_long_once_it_shares_its_slot() -> None:
    slots = Slots(concurrency=2, max_long=1)
    first, second = Slot(slots), Slot(slots)
    first.resume(is_long=True)
    first.share(TIMEOUT)
    first.pause()
    second.resume(is_long=True)
    with pytest.raises(NoLongSlot):
        second.share(TIMEOUT)
    first.leave()
    second.share(TIMEOUT)


def test_semaphore_for_which_too_many_wait() -> None:
    lock = FairSemaphore(1, max_waiting=1)
    assert lock.acquire()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lock.acquire, TIMEOUT)
        wait_until(lambda: len(lock._waiting) == 1)
        assert not lock.acquire(TIMEOUT)
        lock.release()
        assert waiting.result()
    lock.release()
    assert lock.acquire(0)


def test_wait_for_a_long_slot_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the time limit, when it is over for another reason, and at once if too many wait."""
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    slots = Slots(concurrency=4, max_long=1)
    with Slot(slots) as first, Slot(slots) as second:
        first.share(TIMEOUT)
        for seconds, is_over in ((0.01, never), (TIMEOUT, lambda: True)):
            with pytest.raises(Unavailable):
                second.become_long(seconds, is_over)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(slots.long_requests.acquire, TIMEOUT)
            wait_until(lambda: slots.long_requests._waiting)
            with pytest.raises(Unavailable):
                second.become_long(TIMEOUT, never)
            assert not waiting.done()
            first.leave()
            assert waiting.result()
    slots.long_requests.release()
    assert slots.long_requests.acquire(0)


def test_long_response_is_sent_while_too_many_requests_are_long() -> None:
    slots = Slots(concurrency=1, max_long=1)
    sending = Slot(slots)

    with Slot(slots) as long:
        long.share(TIMEOUT)
        long.pause()
        assert list(sending.pieces(long_response(sending))) == [b"1", b"2"]


def test_waiting_counts_against_the_deadline() -> None:
    slots = Slots(concurrency=4, max_long=2)
    with Slot(slots) as first, Slot(slots) as second:
        first.share(TIMEOUT)
        with pytest.raises(Unavailable, match="Other long requests took the time"):
            second.share(0.01)


def test_pieces_of_a_long_response_are_sent_without_a_slot() -> None:
    slots = Slots(concurrency=1, max_long=1)
    closed = Event()

    class Response:
        def __iter__(self) -> Iterator[bytes]:
            yield b"1"
            yield b"2"

        def close(self) -> None:
            closed.set()

    with Slot(slots) as slot:
        slot.share(TIMEOUT)
    pieces = slot.pieces(Response())
    for expected in (b"1", b"2"):
        assert next(pieces) == expected
        assert slots.long.acquire(0)
        slots.long.release()
    assert next(pieces, None) is None
    assert closed.is_set()


def test_request_that_becomes_long_while_its_response_is_sent() -> None:
    slots = Slots(concurrency=1, max_long=1)
    slot = Slot(slots)

    for _ in slot.pieces(long_response(slot)):
        assert slots.long.acquire(0)
        slots.long.release()
    assert slot.is_long
    with Slot(slots) as other:
        other.share(TIMEOUT)


def test_writes_leave_a_slot_for_reads() -> None:
    slots = Slots(concurrency=2, max_long=1, reads=1)
    with (
        ThreadPoolExecutor(1) as threads,
        Slot(slots, is_write=True),
        Slot(slots) as read,
    ):
        with Slot(slots, is_write=True):
            read.pause()
            third = Slot(slots, is_write=True)
            waiting = threads.submit(third.__enter__)
            with Slot(slots):
                assert not waiting.done()
        waiting.result(TIMEOUT)
        third.pause()


def test_paused_request_continues_when_a_slot_is_free() -> None:
    slots = Slots(concurrency=1, max_long=1, reads=1)
    with Slot(slots, is_write=True) as first:
        first.pause()
        with Slot(slots, is_write=True):
            with pytest.raises(Unavailable):
                first.resume(0.01)
            with Slot(slots):
                pass
        first.resume(TIMEOUT)
        assert not slots.short_writes.acquire(blocking=False)
        assert not first.is_long
    assert slots.short_writes.acquire(blocking=False)


def test_paused_request_that_waits_for_reads_leaves_the_slot_of_writes() -> None:
    slots = Slots(concurrency=1, max_long=1)
    first = Slot(slots, is_write=True)
    with Slot(slots):
        with pytest.raises(Unavailable):
            first.resume(0.01)
        assert slots.short_writes.acquire(blocking=False)


def test_long_request_continues_in_the_long_slot_after_a_pause() -> None:
    slots = Slots(concurrency=1, max_long=2)
    with Slot(slots) as first:
        first.share(TIMEOUT)
        first.pause()
        assert slots.long.acquire(0)
        with pytest.raises(Unavailable):
            first.resume(0.01)
        slots.long.release()
        first.resume(TIMEOUT)
        assert not slots.long.acquire(0)


@pytest.mark.parametrize(
    ("method", "uri", "on_standby"),
    [
        ("GET", "/allocation_candidates?resources=VCPU:1&stale=ok", True),
        ("GET", "/traits?stale=ok&name=in:A", True),
        ("GET", "/console", True),
        ("HEAD", "/console/hosts?sort=name", True),
        ("GET", "/allocation_candidates?resources=VCPU:1", False),
        ("GET", "/traits?name=stale=ok", False),
        ("GET", "/traits?stale=okay", False),
        ("GET", "/consoles", False),
        ("POST", "/console/hosts", False),
        ("PUT", "/traits/CUSTOM_A?stale=ok", False),
    ],
)
def test_reads_on_standbys_run_while_the_primary_holds_all_other_slots(
    method: str, uri: str, on_standby: bool
) -> None:
    slots = Slots(concurrency=1, max_long=1, reads=1, standby_reads=1)
    with slots.of_request("PUT", "/traits/CUSTOM_A"), slots.of_request("GET", "/traits"):
        slot = slots.of_request(method, uri)
        if on_standby:
            slot.resume(0)
            slot.pause()
        else:
            with pytest.raises(Unavailable):
                slot.resume(0.01)


def test_a_long_read_on_a_standby_does_not_wait_for_one_on_the_primary() -> None:
    slots = Slots(concurrency=1, max_long=3, standby_reads=1)
    on_standby = "/traits?stale=ok"
    with slots.of_request("GET", "/traits") as primary, slots.of_request("GET", on_standby) as standby:
        primary.share(0.01)
        standby.share(0.01)
        with slots.of_request("GET", on_standby) as other, pytest.raises(Unavailable):
            other.share(0.01)


def test_without_standbys_all_reads_have_the_same_slots() -> None:
    slots = Slots(concurrency=1, max_long=1)
    with slots.of_request("GET", "/traits"), pytest.raises(Unavailable):
        slots.of_request("GET", "/traits?stale=ok").resume(0.01)


def test_pieces_of_a_long_response_share_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have the slot after so many bytes, or so much time, and while the response is sent."""
    monkeypatch.setattr(module, "MAX_SENDING_BYTES", 3)
    monkeypatch.setattr(module, "SENDING_SECONDS", TIMEOUT)
    slots = Slots(concurrency=1, max_long=1)
    slot = Slot(slots)
    slot.is_long = True
    generated: list[int] = []

    def response() -> Iterator[bytes]:
        for number in range(7):
            generated.append(number)
            yield b"x"

    counts = []
    for _ in slot.pieces(response()):
        assert slots.long.acquire(0)
        slots.long.release()
        counts.append(len(generated))
    assert counts == [3, 3, 3, 6, 6, 6, 7]
    monkeypatch.setattr(module, "SENDING_SECONDS", 0)
    generated.clear()
    assert [len(generated) for _ in slot.pieces(response())] == [1, 2, 3, 4, 5, 6, 7]
