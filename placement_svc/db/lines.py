"""Lines: who would wait for the same lock in PostgreSQL waits here, and goes together with the others."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter
from typing import Generic, TypeVar

from placement_svc.observability import request_stats

T = TypeVar("T")


@dataclass(eq=False)
class _Place(Generic[T]):
    """A place in a line. It is called to take others along, or to hear whether it was taken along."""

    item: T
    called: "Future[list[_Place[T]] | bool]" = field(default_factory=Future)


class Lines(Generic[T]):
    """Lines of threads that have something to do, each line for one thing that they would wait for.

    While one thread is at it, others line up. The next one then takes all of these along: what would be
    done for each is done once for all of them. Their wait is tallied as one for SQL statements.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[Hashable, dict[Hashable, _Place[T]]] = {}
        """Who waits, by line and by name; a line is there as long as somebody's turn is."""

    @contextmanager
    def turn(
        self, line: Hashable, name: Hashable, item: T, do_together: Callable[[Sequence[T]], bool]
    ) -> Iterator[bool]:
        """Wait for a turn; give whether `item` has been done, with others. If not, do it in the context.

        `do_together` does several items, or none of them and returns False: they are done one by one
        then, and nobody waits for the others. What it raises is raised for each of them. Items with the
        same `name` are never done together.
        """
        place = self._enter(line, name, item)
        if place is None:
            yield False
            return
        started = perf_counter()
        try:
            called = place.called.result()
        finally:
            request_stats.current().statement_seconds += perf_counter() - started
        if isinstance(called, bool):
            yield called
            return
        try:
            yield bool(called) and _take_along(called, item, do_together)
        finally:
            self._leave(line)

    def _enter(self, line: Hashable, name: Hashable, item: T) -> _Place[T] | None:
        """Return a place at the end of a line; None if somebody of that name waits already."""
        place = _Place(item)
        with self._lock:
            waiting = self._waiting.get(line)
            if waiting is None:
                self._waiting[line] = {}
                place.called.set_result([])
            elif name in waiting:
                return None
            else:
                waiting[name] = place
        return place

    def _leave(self, line: Hashable) -> None:
        """Call the first one who waits to take all others along."""
        with self._lock:
            waiting = self._waiting.pop(line)
            if waiting:
                self._waiting[line] = {}
        if waiting:
            first, *others = waiting.values()
            first.called.set_result(others)


def _take_along(others: Sequence[_Place[T]], item: T, do_together: Callable[[Sequence[T]], bool]) -> bool:
    try:
        is_done = do_together([item, *(place.item for place in others)])
    except BaseException as error:
        for place in others:
            place.called.set_exception(error)
        raise
    for place in others:
        place.called.set_result(is_done)
    return is_done
