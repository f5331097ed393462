"""Calls in the background, which run at most once at a time."""

from contextlib import suppress
from threading import Event
from weakref import ref

import pytest

from placement_svc.db.connections.time_limit import BackgroundCall
from tests.support.service import wait_until


def test_a_call_that_runs_is_not_started_again() -> None:
    calls: list[int] = []
    may_end = Event()

    def call() -> int:
        calls.append(len(calls))
        may_end.wait(30)
        return calls[-1]

    background = BackgroundCall(call)
    first = background.start()
    assert background.start() is first
    assert not first.done()
    may_end.set()
    assert first.result(30) == 0
    assert background.start().result(30) == 1


def test_the_error_of_a_call_is_that_of_its_result() -> None:
    def fail() -> None:
        raise LookupError

    background = BackgroundCall(fail)
    for _ in range(2):
        with pytest.raises(LookupError):
            background.start().result(30)


def test_nothing_of_a_failed_call_is_kept() -> None:
    class Used:
        """Something that the call uses."""

    references: list[ref[Used]] = []

    def fail() -> None:
        used = Used()
        references.append(ref(used))
        raise LookupError

    background = BackgroundCall(fail)
    with suppress(LookupError):
        background.start().result(30)
    wait_until(lambda: references[0]() is None)
