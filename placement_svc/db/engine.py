"""Connections and transactions."""

import random
import time
from collections.abc import Callable
from threading import Lock
from time import perf_counter
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from placement_svc.db import names, tally
from placement_svc.db.errors import UNDONE, sqlstate, translated
from placement_svc.domain.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS = 10
"""How often a transaction is tried that gave way to another one, or whose connection was lost."""

PAUSE = 0.02
"""Seconds by which the longest pause before an attempt grows from one to the next."""

SESSION_OPTIONS = "-c jit=off -c idle_in_transaction_session_timeout=60s"
"""Compiling our short queries takes longer than running them; and nothing may wait for ever."""


SECRET_OPTIONS = ("password", "sslpassword")
"""Options of libpq that a URL may carry and nobody else is to see."""


def shown(url: str | URL) -> str:
    """Return a URL without what is secret in it."""
    return make_url(url).difference_update_query(SECRET_OPTIONS).render_as_string(hide_password=True)


class _TimedPool(QueuePool):
    """A pool that tallies how long each connection was waited for, new ones and checks included."""

    # SQLAlchemy names its log after this: it is not ours.
    __module__ = QueuePool.__module__

    def connect(self) -> PoolProxiedConnection:
        started = perf_counter()
        try:
            return super().connect()
        finally:
            waits = tally.current()
            waits.connections += 1
            waits.connection_seconds += perf_counter() - started


def connect(
    url: str | URL, pool_size: int = 10, lock_timeout: int = 10, statement_timeout: int = 60
) -> Engine:
    """Return an engine for a PostgreSQL; nothing is connected yet.

    A statement fails that waits for a lock longer than `lock_timeout` seconds, or takes longer than
    `statement_timeout` (0: it never does). Options in the URL stand, and come after those of this service.
    """
    # Which driver a URL means that names none is another one from release to release of SQLAlchemy.
    parsed = make_url(url).set(drivername="postgresql+psycopg2")
    timeouts = f"-c lock_timeout={lock_timeout}s -c statement_timeout={statement_timeout}s"
    options = f"{SESSION_OPTIONS} {timeouts} {parsed.query.get('options', '')}"
    # No connection is asked whether it is alive before it is used: `Database` notices, and takes another.
    engine = create_engine(
        parsed,
        poolclass=_TimedPool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=10,
        connect_args={"options": options}
        | ({} if "connect_timeout" in parsed.query else {"connect_timeout": 5}),
    )
    tally.count_statements(engine)
    return engine


class Database:
    """Where the data is: runs functions that take a connection, each in a transaction of its own.

    What such a function raises undoes all it did. Nothing that it says of the data is seen before
    the standard names of traits and resource classes are there.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._snapshots = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._ready = False
        self._readying = Lock()

    def read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `query` finds; all its statements see the same snapshot."""
        self.prepare()
        with translated():
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    with self._snapshots.connect() as connection:
                        return query(connection, *args, **kwargs)
                except DBAPIError as error:
                    _pause_or_raise(error, attempt)
        raise AssertionError("the last attempt returns or raises")

    def write(self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `change` returns, once it is committed.

        It is tried again, a few times, when PostgreSQL has ended it in favour of another transaction,
        or its connection was lost before the commit: then nothing of it is done. When the connection
        is lost at the commit, nobody knows; that raises `Unavailable`, as all does that fails for good.
        """
        self.prepare()
        with translated():
            return self._write(change, *args, **kwargs)

    def _write(self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        for attempt in range(1, ATTEMPTS + 1):
            is_committing = False
            try:
                with self.engine.begin() as connection:
                    result = change(connection, *args, **kwargs)
                    is_committing = True
                return result
            except DBAPIError as error:
                if is_committing and error.connection_invalidated:
                    raise Unavailable(
                        "The database was lost at the commit: it is not known whether anything has changed."
                    ) from error
                _pause_or_raise(error, attempt)
        raise AssertionError("the last attempt returns or raises")

    def prepare(self) -> None:
        """Bring the standard names up to date, once; raises `Unavailable` when that cannot be."""
        if self._ready:
            return
        with self._readying, translated():
            if not self._ready:
                self._write(names.sync_standard)
                self._ready = True


def _pause_or_raise(error: DBAPIError, attempt: int) -> None:
    """Wait a moment after an attempt of which nothing is done; raise `error` if no other one makes sense."""
    if attempt == ATTEMPTS or not (error.connection_invalidated or sqlstate(error) in UNDONE):
        raise error
    tally.current().retries += 1
    # Whoever met once must not meet again at the same pace.
    time.sleep(random.uniform(0, PAUSE * attempt))
