"""What a request costs and finds, counted where it happens and read where requests are reported on."""

from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from sqlalchemy import Engine, event


@dataclass
class Tally:
    """Counts of one request: it grows while the request is answered, so it is not frozen."""

    statements: int = 0
    statement_seconds: float = 0.0
    statement_started: float = 0.0
    connections: int = 0
    connection_seconds: float = 0.0
    retries: int = 0
    trees: int = 0
    candidates: int | None = None


_current = ContextVar("_current", default=Tally())  # noqa: B039


def start() -> Tally:
    """Return a new tally, which is the current one of this thread from now on."""
    tally = Tally()
    _current.set(tally)
    return tally


def current() -> Tally:
    """Return the tally of the present request; outside of requests one that nobody reads."""
    return _current.get()


def statement_starts(*_: Any) -> None:
    """Count a statement, which takes its time from now on."""
    tally = _current.get()
    tally.statements += 1
    tally.statement_started = perf_counter()


def statement_ends(*_: Any) -> None:
    """Add the time that the present statement took."""
    tally = _current.get()
    tally.statement_seconds += perf_counter() - tally.statement_started


def _statement_fails(context: Any) -> None:
    if context.statement is not None:
        statement_ends()


def count_statements(engine: Engine) -> None:
    """Let the statements that `engine` runs count in the current tally."""
    event.listen(engine, "before_cursor_execute", statement_starts)
    event.listen(engine, "after_cursor_execute", statement_ends)
    event.listen(engine, "handle_error", _statement_fails)
