"""Connections and transactions."""

import random
import select
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg2  # type: ignore[import-untyped]
from sqlalchemy import URL, Connection, Engine, Executable, create_engine, event, make_url
from sqlalchemy.engine import Compiled
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, QueuePool
from sqlalchemy.util import LRUCache

from placement_svc.db import names
from placement_svc.db.errors import UNDONE, map_driver_errors, sqlstate
from placement_svc.db.lines import Lines
from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import OutcomeUnknown
from placement_svc.observability import request_stats

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS = 10
"""How often a transaction is tried that gave way to another one, or whose connection was lost."""

PAUSE = 0.02
"""Seconds by which the longest pause before an attempt grows from one to the next."""

LOST = "The database was lost at the commit: it is not known whether anything has changed."

SESSION_OPTIONS = " ".join(
    f"-c {option}"
    for option in (
        # Compiling our short queries takes longer than running them.
        "jit=off",
        # Who waited for a lock sees what was committed meanwhile, whatever is usual in this database.
        r"default_transaction_isolation=read\ committed",
        # Nothing may wait for ever; and nobody for a claim whose worker was killed.
        "idle_in_transaction_session_timeout=60s",
        "client_connection_check_interval=1s",
    )
)
"""What every session is told."""

KEPT = 200
"""Statements, or half as many again, that are kept as they were compiled."""

LONGEST_KEPT = 10_000
"""Characters of such a statement; those of a search for four groups are 3,000."""

SECRET_OPTIONS = ("password", "sslpassword")
"""Options of libpq that a URL may carry and nobody else is to see."""


def shown(url: str | URL) -> str:
    """Return a URL without what is secret in it."""
    return make_url(url).difference_update_query(SECRET_OPTIONS).render_as_string(hide_password=True)


class _ShortStatements(LRUCache[Any, Compiled]):
    """Statements that are compiled, for the next time; long ones would take up all memory in the end.

    One of 500 request groups has 16 MB, and there may be any number of those.
    """

    def __setitem__(self, key: Any, compiled: Compiled) -> None:
        if len(compiled.string) <= LONGEST_KEPT:
            super().__setitem__(key, compiled)


class _TimedPool(QueuePool):
    """A pool that tallies how long each connection was waited for, new ones and checks included."""

    # SQLAlchemy names its log after this: it is not ours.
    __module__ = QueuePool.__module__

    def connect(self) -> PoolProxiedConnection:
        started = perf_counter()
        try:
            return super().connect()
        finally:
            waits = request_stats.current()
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
    # That costs no round trip; of a connection that is lost in another way `Database` notices.
    engine = create_engine(
        parsed,
        poolclass=_TimedPool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=10,
        query_cache_size=0,
        execution_options={"compiled_cache": _ShortStatements(KEPT)},
        connect_args={"options": options}
        | ({} if "connect_timeout" in parsed.query else {"connect_timeout": 5}),
    )
    event.listen(engine, "checkout", _check_alive)
    _count_statements(engine)
    return engine


def _count_statements(engine: Engine) -> None:
    """Count the statements that `engine` runs in the statistics of the current request."""
    event.listen(engine, "before_cursor_execute", request_stats.statement_starts)
    event.listen(engine, "after_cursor_execute", request_stats.statement_ends)
    event.listen(engine, "handle_error", _count_failed_statement)


def _count_failed_statement(context: Any) -> None:
    if context.statement is not None:
        request_stats.statement_ends()


def driver_rows(
    connection: Connection, statement: Executable, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Return what a statement finds as the driver gives it.

    Of thousands of rows, SQLAlchemy's take longer to make and to take apart; columns that it has to convert
    have none of that here.
    """
    with connection.execute(statement, values) as result:
        cursor: Any = result.cursor
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


class Database:
    """Where the data is: runs functions that take a connection, each in a transaction of its own.

    What such a function raises undoes all it did. Nothing that it says of the data is seen before
    the standard names of traits and resource classes are there.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.claims = Lines[Claim]()
        """Claims of new consumers that wait for others on the same providers."""
        self._snapshots = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._ready = False
        self._readying = Lock()

    def read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `query` finds; all its statements see the same snapshot."""

        def attempt() -> T:
            with self._snapshots.connect() as connection:
                return query(connection, *args, **kwargs)

        self.prepare()
        with map_driver_errors():
            return _repeat(attempt)

    def write(self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `change` returns, once it is committed.

        It is tried again, a few times, when PostgreSQL has ended it in favour of another transaction,
        or its connection was lost before the commit: then nothing of it is done. When the connection
        is lost at the commit, nobody knows: `OutcomeUnknown`. What fails for good raises `Unavailable`.
        """
        self.prepare()
        with map_driver_errors():
            return self._write(change, *args, **kwargs)

    def _write(self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def attempt() -> T:
            is_committing = False
            try:
                with self.engine.begin() as connection:
                    result = change(connection, *args, **kwargs)
                    is_committing = True
                return result
            except DBAPIError as error:
                if is_committing and error.connection_invalidated:
                    raise OutcomeUnknown(LOST) from error
                raise

        return _repeat(attempt)

    def call(self, statement: str, values: Mapping[str, Any]) -> Any:
        """Return the one value of a `statement` in the driver's form, a transaction of its own.

        It is tried again, and fails, as by `write`; but when its connection is lost, that is always at the
        commit.
        """
        self.prepare()
        with map_driver_errors():
            return _repeat(partial(self._call, statement, values))

    def _call(self, statement: str, values: Mapping[str, Any]) -> Any:
        # What a claim costs is for the most part Python: so the driver is asked, and no one in between.
        pooled = None
        try:
            pooled = self.engine.raw_connection()
            return _value(pooled, statement, values)
        except psycopg2.Error as error:
            is_lost = self.engine.dialect.is_disconnect(error, pooled, None)
            if is_lost and pooled is not None:
                pooled.invalidate(error)
                raise OutcomeUnknown(LOST) from error
            raise DBAPIError.instance(
                statement, None, error, psycopg2.Error, connection_invalidated=is_lost
            ) from error
        finally:
            if pooled is not None:
                pooled.close()

    def prepare(self) -> None:
        """Bring the standard names up to date, once; raises `Unavailable` when that cannot be."""
        if self._ready:
            return
        with self._readying, map_driver_errors():
            if not self._ready:
                self._write(names.sync_standard)
                self._ready = True


def _value(pooled: PoolProxiedConnection, statement: str, values: Mapping[str, Any]) -> Any:
    """Return the one value of a statement that is sent as it is, without BEGIN and COMMIT around it."""
    connection: Any = pooled.driver_connection
    # As it has read before: the driver would ask PostgreSQL to keep to that.
    connection.isolation_level = connection.readonly = None
    connection.autocommit = True
    request_stats.statement_starts()
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            [value] = cursor.fetchone()
        return value
    finally:
        request_stats.statement_ends()
        if not connection.closed:
            connection.autocommit = False


def _check_alive(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
    """Refuse an idle connection that PostgreSQL has ended: of that there is something to read.

    Raises `InvalidatePoolError`: the pool gives up all that are idle then, and takes a new one as it is.
    """
    is_new = not record.info
    record.info["used"] = True
    if is_new:
        return
    poll = select.poll()
    if not connection.closed:
        poll.register(connection.fileno(), select.POLLIN)
    if connection.closed or poll.poll(0):
        raise InvalidatePoolError


def _repeat(attempt: Callable[[], T]) -> T:
    """Return what `attempt` returns; it is made again, a few times, when nothing of it is done."""
    for number in range(1, ATTEMPTS + 1):
        try:
            return attempt()
        except DBAPIError as error:
            may_succeed = error.connection_invalidated or sqlstate(error) in UNDONE
            if number == ATTEMPTS or not may_succeed:
                raise
        request_stats.current().retries += 1
        # Whoever met once must not meet again at the same pace.
        time.sleep(random.uniform(0, PAUSE * number))
    raise AssertionError("the last attempt returns or raises")
