"""Lines of threads: who waits is taken along by the first who waits."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from placement_svc.db.lines import Lines
from placement_svc.observability import request_stats
from tests.support.service import wait_until

PAUSE = 0.1


class Counter:
    """Does items, and remembers which were done together; `answer` is what doing several comes to."""

    def __init__(self) -> None:
        self.lines = Lines[str]()
        self.done: list[list[str]] = []
        self.waited: dict[str, float] = {}
        self.answer: bool | Exception = True

    def do_together(self, items: Sequence[str]) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer:
            self.done.append(sorted(items))
        return self.answer

    def do(self, line: str, item: str, name: str | None = None) -> bool:
        """Do an item of a line; return whether it was done with others."""
        counts = request_stats.start()
        with self.lines.turn(line, name or item, item, self.do_together) as is_done:
            if not is_done:
                self.done.append([item])
            self.waited[item] = counts.statement_seconds
            return is_done


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


Start = Callable[..., Future[bool]]


@contextmanager
def waiting_for(counter: Counter, threads: ThreadPoolExecutor, line: str = "line") -> Iterator[Start]:
    """Hold a turn; give a function that lets a thread wait for it, and returns what `do` will."""

    def start(item: str, name: str | None = None) -> Future[bool]:
        places = counter.lines._waiting[line]
        before = len(places)
        running = threads.submit(counter.do, line, item, name)
        wait_until(lambda: len(places) > before or running.done())
        return running

    with counter.lines.turn(line, "first", "first", counter.do_together) as is_done:
        assert not is_done
        yield start


def test_nobody_waits_for_nobody(counter: Counter) -> None:
    assert [counter.do("line", item) for item in "abc"] == [False] * 3
    assert counter.done == [["a"], ["b"], ["c"]]


def test_those_who_wait_go_together(counter: Counter, threads: ThreadPoolExecutor) -> None:
    with waiting_for(counter, threads) as start:
        running = [start(item) for item in "abc"]
        assert counter.done == []
    assert [each.result() for each in running] == [True] * 3
    assert counter.done == [["a", "b", "c"]]
    assert counter.do("line", "d") is False


def test_waiting_in_line_is_waiting_for_statements(counter: Counter, threads: ThreadPoolExecutor) -> None:
    counter.do("line", "a")
    with waiting_for(counter, threads) as start:
        running = [start(item) for item in "bc"]
        time.sleep(PAUSE)
    assert all(each.result() for each in running)
    assert counter.waited["a"] < PAUSE <= min(counter.waited["b"], counter.waited["c"])


def test_only_one_who_waits_goes_alone(counter: Counter, threads: ThreadPoolExecutor) -> None:
    with waiting_for(counter, threads) as start:
        running = start("a")
    assert running.result() is False
    assert counter.done == [["a"]]


def test_lines_do_not_wait_for_each_other(counter: Counter, threads: ThreadPoolExecutor) -> None:
    with waiting_for(counter, threads):
        assert counter.do("another", "a") is False


def test_what_cannot_be_done_together_is_done_one_by_one(
    counter: Counter, threads: ThreadPoolExecutor
) -> None:
    counter.answer = False
    with waiting_for(counter, threads) as start:
        running = [start(item) for item in "abc"]
    assert [each.result() for each in running] == [False] * 3
    assert sorted(counter.done) == [["a"], ["b"], ["c"]]


def test_one_name_is_not_done_twice_together(counter: Counter, threads: ThreadPoolExecutor) -> None:
    with waiting_for(counter, threads) as start:
        running = [start("a", name="same"), start("b", name="same"), start("c")]
        assert running[1].result() is False
        assert counter.done == [["b"]]
    assert [each.result() for each in running] == [True, False, True]
    assert counter.done == [["b"], ["a", "c"]]


def test_what_fails_together_fails_for_each(counter: Counter, threads: ThreadPoolExecutor) -> None:
    counter.answer = ZeroDivisionError()
    with waiting_for(counter, threads) as start:
        running = [start(item) for item in "abc"]
    for each in running:
        with pytest.raises(ZeroDivisionError):
            each.result()
    assert counter.do("line", "d") is False


def test_who_fails_lets_the_next_go_on(counter: Counter, threads: ThreadPoolExecutor) -> None:
    running: list[Future[bool]] = []

    def fail() -> None:
        with waiting_for(counter, threads) as start:
            running.extend(start(item) for item in "ab")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [each.result() for each in running] == [True, True]
    assert counter.do("line", "d") is False


def test_line_that_nobody_is_in_is_gone(counter: Counter, threads: ThreadPoolExecutor) -> None:
    with waiting_for(counter, threads) as start:
        running = [start(item) for item in "ab"]
    assert all(each.result() for each in running)
    wait_until(lambda: not counter.lines._waiting)
