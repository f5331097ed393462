"""What a request costs and finds, counted where it happens and read where requests are reported on."""

from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Any


@dataclass
class RequestStats:
    """Counts of one request: it grows while the request is answered, so it is not frozen."""

    statements: int = 0
    statement_seconds: float = 0.0
    statement_started: float = 0.0
    connections: int = 0
    connection_seconds: float = 0.0
    retries: int = 0
    trees: int = 0
    candidates: int | None = None


_current = ContextVar("_current", default=RequestStats())  # noqa: B039


def start() -> RequestStats:
    """Return a new stats, which is the current one of this thread from now on."""
    stats = RequestStats()
    _current.set(stats)
    return stats


def current() -> RequestStats:
    """Return the stats of the present request; outside of requests one that nobody reads."""
    return _current.get()


def statement_starts(*_: Any) -> None:
    """Count a statement, which takes its time from now on."""
    stats = _current.get()
    stats.statements += 1
    stats.statement_started = perf_counter()


def statement_ends(*_: Any) -> None:
    """Add the time that the present statement took."""
    stats = _current.get()
    stats.statement_seconds += perf_counter() - stats.statement_started
