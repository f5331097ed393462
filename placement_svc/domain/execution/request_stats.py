"""Statistics of the current request: its SQL statements, connections, retries and search results.

The layers update them where the events happen; the access log and the metrics read them.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any


@dataclass
class RequestStats:
    """The statistics of one request; mutable, because they are updated while the request is processed."""

    statements: int = 0
    statement_seconds: float = 0.0
    statement_started: float = 0.0
    connections: int = 0
    connection_seconds: float = 0.0
    retries: int = 0
    anchors: int = 0
    """The roots where each demand of the search has a supplier, so that it had to combine them."""
    candidates: int | None = None
    is_claim: bool = False
    """Whether the request claims resources: it is no dry run, and releases are not all that it does."""
    standby_reads: int = 0
    """The reads that may use a standby, and did."""
    primary_reads: int = 0
    """The reads that may use a standby, and used the primary."""


_current = ContextVar("_current", default=RequestStats())  # noqa: B039


def start() -> RequestStats:
    """Create new statistics, make them current in this thread and return them."""
    stats = RequestStats()
    _current.set(stats)
    return stats


def current() -> RequestStats:
    """Return the statistics of the current request, or unused ones outside of a request."""
    return _current.get()


def work_seconds() -> float:
    """Return a time that passes while the request of this thread computes, or waits for a statement."""
    return thread_time() + _current.get().statement_seconds


def statement_starts(*_: Any) -> None:
    """Count a statement and start measuring its time."""
    stats = _current.get()
    stats.statements += 1
    stats.statement_started = perf_counter()


def statement_ends(*_: Any) -> None:
    """Add the time of the statement that ended."""
    stats = _current.get()
    stats.statement_seconds += perf_counter() - stats.statement_started
