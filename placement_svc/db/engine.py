"""Connections and transactions."""

from collections.abc import Callable
from threading import Lock
from time import perf_counter
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from placement_svc.db import names, tally
from placement_svc.db.errors import DEADLOCK, SERIALIZATION_FAILURE, sqlstate, translated

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS = 10
"""How often a transaction is tried that PostgreSQL ends in favour of another one."""

SESSION_OPTIONS = "-c jit=off -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s"
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


def connect(url: str | URL, pool_size: int = 10) -> Engine:
    """Return an engine for a PostgreSQL; nothing is connected yet."""
    # Which driver a URL means that names none is another one from release to release of SQLAlchemy.
    parsed = make_url(url).set(drivername="postgresql+psycopg2")
    defaults = {"connect_timeout": 5, "options": SESSION_OPTIONS}
    engine = create_engine(
        parsed,
        poolclass=_TimedPool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=10,
        pool_pre_ping=True,
        connect_args={k: v for k, v in defaults.items() if k not in parsed.query},
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
        with translated(), self._snapshots.begin() as connection:
            return query(connection, *args, **kwargs)

    def write(self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `change` returns, once it is committed.

        PostgreSQL resolves a deadlock by ending one of its transactions: that one is tried again.
        """
        self.prepare()
        with translated():
            return self._write(change, *args, **kwargs)

    def _write(self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self.engine.begin() as connection:
                    return change(connection, *args, **kwargs)
            except DBAPIError as error:
                if sqlstate(error) not in (DEADLOCK, SERIALIZATION_FAILURE) or attempt == ATTEMPTS:
                    raise
                tally.current().retries += 1
        raise AssertionError("the last attempt returns or raises")

    def prepare(self) -> None:
        """Bring the standard names up to date, once; raises `Unavailable` when that cannot be."""
        if self._ready:
            return
        with self._readying, translated():
            if not self._ready:
                self._write(names.sync_standard)
                self._ready = True
