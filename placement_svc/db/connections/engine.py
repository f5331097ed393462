"""Connections, transactions and their retries."""

import random
import select
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg2  # type: ignore[import-untyped]
from psycopg2.extensions import ISOLATION_LEVEL_REPEATABLE_READ  # type: ignore[import-untyped]
from sqlalchemy import URL, Connection, Engine, Executable, create_engine, event
from sqlalchemy.engine import Compiled
from sqlalchemy.exc import DBAPIError, InvalidatePoolError, ResourceClosedError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, QueuePool
from sqlalchemy.util import LRUCache

from placement_svc.db import names
from placement_svc.db.connections.cancellation import IS_CANCELED, canceled_at_deadline
from placement_svc.db.connections.hang_detection import HangDetector
from placement_svc.db.connections.session_options import as_libpq_option, session_options
from placement_svc.db.connections.terminations import IS_ROLLED_BACK, is_rolled_back
from placement_svc.db.connections.transactions import begin
from placement_svc.db.connections.urls import DRIVER, default_options, host_count, may_be_read_only, parse_url
from placement_svc.db.errors import (
    CONCURRENCY_FAILURES,
    READ_ONLY,
    map_driver_errors,
    shorten_texts,
    sqlstate,
)
from placement_svc.db.prepared import STALE_STATEMENT, Preparation
from placement_svc.db.repeated import RecentKeys
from placement_svc.db.revisions import map_outdated_schema
from placement_svc.domain.execution import request_stats

P = ParamSpec("P")
T = TypeVar("T")

Transaction = Connection
"""The transaction of a function that `Database` runs; layers above `db` only pass it on."""

MAX_ATTEMPTS = 10
"""How often a transaction is attempted that fails for a concurrent one, or loses its connection."""

POOL_TIMEOUT = 10
"""Seconds that a request waits for a connection of the pool; after that, the response is 503."""

PAUSE = 0.02
"""Seconds: the pause before attempt n + 1 is random, of at most n times this."""

RETRIED = CONCURRENCY_FAILURES | STALE_STATEMENT
"""The error codes after which a transaction is attempted again."""

STATEMENT_CACHE_SIZE = 200
"""How many compiled statements are kept; SQLAlchemy's cache may grow to one and a half times this."""

MAX_CACHED_STATEMENT_LENGTH = 10_000
"""Characters of the longest statement that is kept; a search for four groups has 3,000."""


class _StatementCache(LRUCache[Any, Compiled]):
    """A cache of compiled statements that keeps only short ones that are repeated.

    A statement for 500 request groups has 16 MB, and clients can send any number of different ones: together
    they would exhaust the memory.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._recent = RecentKeys()

    def __setitem__(self, key: Any, compiled: Compiled) -> None:
        if len(compiled.string) <= MAX_CACHED_STATEMENT_LENGTH and self._recent.is_repeated(key):
            super().__setitem__(key, compiled)


class _TimedPool(QueuePool):
    """A pool that records in the request statistics how long it takes to get a connection.

    The time includes connecting and checking the connection.
    """

    # SQLAlchemy derives the name of the pool's logger from this.
    __module__ = QueuePool.__module__

    def connect(self) -> PoolProxiedConnection:
        started = perf_counter()
        try:
            return super().connect()
        except (NotImplementedError, ResourceClosedError) as error:
            # SQLAlchemy cannot invalidate the first connection of an engine, which it examines.
            raise psycopg2.OperationalError(
                "server closed the connection unexpectedly at its start"
            ) from error
        finally:
            stats = request_stats.current()
            stats.connections += 1
            stats.connection_seconds += perf_counter() - started


def connect(
    url: str | URL,
    pool_size: int = 10,
    lock_timeout: int = 10,
    statement_timeout: int = 60,
    *,
    prepares_statements: bool = False,
) -> Engine:
    """Return an engine for a PostgreSQL database, without connecting to it.

    A statement fails if it waits for a lock longer than `lock_timeout` seconds, or takes longer than
    `statement_timeout` seconds (0: no timeout). Options in the URL override those of this service. With
    `prepares_statements`, sessions keep the statements of searches prepared.
    """
    parsed = parse_url(url).set(drivername=DRIVER)
    options = as_libpq_option(session_options(lock_timeout, statement_timeout))
    # `_check_alive` costs no round trip, unlike `pool_pre_ping`. `Database` handles a connection that is lost
    # without the check noticing.
    engine = create_engine(
        parsed,
        poolclass=_TimedPool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT,
        query_cache_size=0,
        # Texts of errors are logged, and parameters are the data of clients.
        hide_parameters=True,
        execution_options={
            "compiled_cache": _StatementCache(STATEMENT_CACHE_SIZE),
            **Preparation(prepares_statements).options,
        },
        connect_args=default_options(parsed) | {"options": f"{options} {parsed.query.get('options', '')}"},
    )
    event.listen(engine, "checkout", _check_alive)
    event.listen(engine, "handle_error", _shorten_error)
    event.listen(engine, "handle_error", _mark_disconnect)
    HangDetector(engine)
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


def _shorten_error(context: Any) -> None:
    shorten_texts(context.sqlalchemy_exception or context.original_exception)


def _mark_disconnect(context: Any) -> None:
    """Decide which connections an error makes unusable.

    A canceled read costs only its own connection. If the database has become read-only, all connections are
    discarded: new ones find the new primary, or the only host as soon as it accepts writes again.

    Also mark the error if PostgreSQL has ended the session before the commit: SQLAlchemy then closes the
    connection.
    """
    connection = context.connection
    if connection is not None and connection.info.get(IS_CANCELED):
        context.invalidate_pool_on_disconnect = False
    is_lost = connection is not None and context.is_disconnect and not connection.invalidated
    if is_lost and is_rolled_back(connection.connection.driver_connection):
        setattr(context.original_exception, IS_ROLLED_BACK, True)
    if context.original_exception is not None and is_demoted(context.engine, context.original_exception):
        context.is_disconnect = True


def is_demoted(engine: Engine, error: BaseException) -> bool:
    """Return whether a driver error shows that a server is read-only although the URL asks for another."""
    return getattr(error, "pgcode", None) == READ_ONLY and not may_be_read_only(engine.url)


def discard_connections(engine: Engine, connection: PoolProxiedConnection) -> None:
    """Close a connection, and at their next use, the others of the pool that are as old."""
    # `Engine.dispose` would replace the pool, whose connections the metrics count.
    engine.pool._invalidate(connection)


def driver_rows(
    connection: Connection, statement: Executable, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Return the rows of a statement as the driver returns them.

    Bypasses SQLAlchemy's row objects, which dominate the cost of thousands of rows, and its conversion of
    column types.
    """
    with connection.execute(statement, values) as result:
        cursor: Any = result.cursor
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def each_driver_row(
    connection: Connection, statement: Executable, values: Mapping[str, Any]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as `driver_rows` returns them, each converted to Python objects only when it is due."""
    with connection.execute(statement, values) as result:
        cursor: Any = result.cursor
        yield from cursor


class Database:
    """Runs functions that take a connection, each in a transaction of its own.

    An exception in such a function rolls the transaction back. Standard traits and resource classes are
    synced before the first transaction.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._is_prepared = False
        self._preparing = Lock()

    def read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `query`; all its statements see the same snapshot.

        It is retried like `write`; it must not write. When the deadline of the request passes
        (`placement_svc.db.connections.cancellation`), its statements are canceled.
        """

        def attempt() -> T:
            with self.engine.connect() as connection, canceled_at_deadline(connection):
                use_snapshot(connection)
                return query(connection, *args, **kwargs)

        return self.run_with_retries(attempt)

    def write(self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `change` after the commit.

        The transaction is retried if PostgreSQL rolled it back because of a concurrent one or because it
        ended the session, or the connection was lost before the commit. If the connection is lost during the
        commit otherwise, the outcome is unknown: raises `OutcomeUnknown`. Raises `Unavailable` when the
        attempts are exhausted.
        """
        return self.run_with_retries(partial(self._write_once, change, *args, **kwargs))

    def _write_once(
        self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with begin(self.engine) as connection:
            return change(connection, *args, **kwargs)

    def run_with_retries(self, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`, which runs one transaction on this database.

        It is called again, up to `MAX_ATTEMPTS` times in all, after a `DBAPIError` that left nothing
        committed: a deadlock, a serialization failure, a lost connection, or with several hosts, a primary
        that has become read-only. Other driver errors, and that of the last attempt, are mapped by
        `map_driver_errors` and `map_outdated_schema`.
        """
        self.prepare()
        with map_driver_errors(), map_outdated_schema(self.engine):
            return self._retry(attempt)

    def prepare(self) -> None:
        """Sync the standard traits and resource classes, once per instance; raises `Unavailable`."""
        if self._is_prepared:
            return
        with self._preparing, map_driver_errors():
            if not self._is_prepared:
                self._retry(partial(self._write_once, names.sync_standard))
                self._is_prepared = True

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`, called again after an error that left nothing committed."""
        for number in range(1, MAX_ATTEMPTS + 1):
            try:
                return attempt()
            except DBAPIError as error:
                if number == MAX_ATTEMPTS or not self._may_succeed(error):
                    raise
            request_stats.current().retries += 1
            # The pause is random so that transactions which collided once do not collide again.
            time.sleep(random.uniform(0, PAUSE * number))
        raise AssertionError("the last attempt returns or raises")

    def _may_succeed(self, error: DBAPIError) -> bool:
        """Return whether another attempt may succeed after this error."""
        if sqlstate(error) == READ_ONLY:
            # Another host may be the primary now.
            return error.connection_invalidated and host_count(self.engine.url) > 1
        return error.connection_invalidated or sqlstate(error) in RETRIED


def use_snapshot(connection: Connection) -> None:
    """Begin a transaction that is one read-only snapshot.

    The driver sends the properties with BEGIN. `_check_alive` resets them when the pool hands the connection
    out again. Execution options of SQLAlchemy would do the same and take longer.
    """
    driver_connection: Any = connection.connection.driver_connection
    driver_connection.set_session(isolation_level=ISOLATION_LEVEL_REPEATABLE_READ, readonly=True)
    # Prepared statements bypass SQLAlchemy. It would not know of the transaction, and its pool would only log
    # that the connection is lost at the rollback.
    connection.begin()


def _check_alive(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
    """Reset a connection, and reject an idle one that PostgreSQL has closed: its socket is then readable.

    Raises `InvalidatePoolError`: the pool discards all idle connections and opens a new one, which is not
    checked.
    """
    # `use_snapshot` has set these. The driver keeps them for all later transactions.
    connection.isolation_level = connection.readonly = None
    is_new = not record.info
    record.info["used"] = True
    if is_new:
        return
    poll = select.poll()
    if not connection.closed:
        poll.register(connection.fileno(), select.POLLIN)
    if connection.closed or poll.poll(0):
        raise InvalidatePoolError
