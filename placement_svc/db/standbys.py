"""Reads on standbys: their data may be some seconds old, and the primary runs what no standby can run."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from threading import Lock, Thread
from time import monotonic
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import URL, Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from placement_svc.db.cancellation import canceled_at_deadline
from placement_svc.db.engine import Database, connect, use_snapshot
from placement_svc.db.errors import QUERY_CANCELED, map_driver_errors, sqlstate
from placement_svc.db.urls import server_name
from placement_svc.domain.errors import BadQueryValue, NotFound, UnknownName
from placement_svc.observability import request_stats

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""Seconds for which a standby that has failed is not tried."""

RECHECK_SECONDS = 1.0
"""Seconds for which a standby that lags too much is not tried."""

UP_TO_DATE_AT = "placement_svc.up_to_date_at"
"""The key in the `info` of a connection for the time at which its server was last up to date."""

# A standby that has replayed all that it has received from the primary is up to date. Otherwise, its data is
# that of the last transaction that it has replayed: the difference of two clocks, which may be negative.
_STATE = text("""
    SELECT pg_is_in_recovery() AS is_standby,
           CASE WHEN EXISTS (SELECT FROM pg_stat_wal_receiver)
                 AND pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn() THEN 0
                ELSE greatest(0, extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()))
           END::float8 AS lag
""")


class Reader(Protocol):
    """Something that runs reads, such as a `Database`."""

    def read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `query`, whose statements see one snapshot."""


class StandbyUnusable(Exception):
    """A standby cannot run a read now."""


class Standby:
    """One server that can run reads, with its connections.

    `lag` is the one that was measured last, in seconds. `problem` tells why the standby is not used, None if
    it is.
    """

    def __init__(
        self,
        url: URL,
        max_lag: float,
        *,
        pool_size: int,
        statement_timeout: int,
        prepares_statements: bool = False,
    ) -> None:
        self.name = server_name(url)
        self.lag: float | None = None
        self.problem: str | None = None
        self._max_lag = max_lag
        self._retry_at = 0.0
        self._lock = Lock()
        self.engine = connect(
            url,
            pool_size=pool_size,
            statement_timeout=statement_timeout,
            prepares_statements=prepares_statements,
        )

    def is_usable(self) -> bool:
        """Return whether the standby can be tried.

        A thread examines a standby that has not been usable for a while, so that no request waits for it.
        """
        with self._lock:
            if self.problem is None:
                return True
            if monotonic() >= self._retry_at:
                self._retry_at = monotonic() + RETRY_SECONDS
                Thread(target=self.check, name="standby-check", daemon=True).start()
        return False

    def check(self) -> None:
        """Connect to the standby, and update `lag` and `problem`."""
        try:
            with suppress(StandbyUnusable), self.snapshot():
                pass
        except DBAPIError as error:
            # The rollback at the end of the snapshot has found that the connection is lost.
            self.note_failure(error)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a connection with a snapshot that is not too old; raise `StandbyUnusable`."""
        try:
            connection = self.engine.connect()
        except (DBAPIError, PoolTimeout) as error:
            raise self._failed(error) from error
        with connection:
            try:
                use_snapshot(connection)
                state = connection.execute(_STATE).one()
            except DBAPIError as error:
                raise self._failed(error) from error
            self._examine(state.is_standby, _bounded_lag(connection, state.lag))
            yield connection

    def _examine(self, is_standby: bool, lag: float | None) -> None:
        """Store the state of the server; raise `StandbyUnusable` if it is not to be used."""
        self.lag = lag if is_standby else None
        if not is_standby:
            raise self._unusable("is not a standby", RETRY_SECONDS)
        if lag is None:
            raise self._unusable("has replayed no transaction yet", RECHECK_SECONDS)
        if lag > self._max_lag:
            raise self._unusable(f"lags more than {self._max_lag:g} s", RECHECK_SECONDS)
        if self.problem is not None:
            log.info("The standby %s is used again", self.name)
        self.problem = None

    def _failed(self, error: Exception) -> StandbyUnusable:
        self.lag = None
        return self._unusable("does not respond", RETRY_SECONDS, error)

    def _unusable(self, problem: str, seconds: float, error: Exception | None = None) -> StandbyUnusable:
        """Do not use the standby for a time; return the error to raise."""
        if self.problem != problem:
            details = f": {' '.join(str(error).split())}" if error else ""
            log.warning("The standby %s %s, so it is not used%s", self.name, problem, details)
        with self._lock:
            self.problem = problem
            self._retry_at = monotonic() + seconds
        return StandbyUnusable(problem)

    def note_failure(self, error: DBAPIError) -> None:
        """Do not use the standby for a while if a statement has lost its connection."""
        if error.connection_invalidated:
            self._failed(error)


def _bounded_lag(connection: Connection, lag: float | None) -> float | None:
    """Return the lag that a server reports, or the time since it was up to date if that is less.

    The server reports the age of its last transaction, which is long ago if the primary was idle.
    """
    if lag == 0:
        connection.info[UP_TO_DATE_AT] = monotonic()
    elif UP_TO_DATE_AT in connection.info:
        age: float = monotonic() - connection.info[UP_TO_DATE_AT]
        return age if lag is None else min(lag, age)
    return lag


class StandbyReads:
    """Runs reads on standbys in turn, and on the primary if no standby can run them."""

    def __init__(self, primary: Database, standbys: Sequence[Standby]) -> None:
        self.standbys = standbys
        self._primary = primary
        self._turns = count()

    def read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `query`; all its statements see the same snapshot, of one server.

        The primary repeats what fails on a standby: for a conflict with the recovery, a lost connection, an
        older schema, or because the standby does not have the object that the request names. It does not
        repeat what took too long.
        """
        for standby in self._usable():
            try:
                with standby.snapshot() as connection, canceled_at_deadline(connection):
                    result = query(connection, *args, **kwargs)
            except StandbyUnusable:
                continue
            except (NotFound, UnknownName, BadQueryValue):
                break
            except DBAPIError as error:
                if sqlstate(error) == QUERY_CANCELED:
                    with map_driver_errors():
                        raise
                log.info("The primary repeats a read that failed on the standby %s: %s", standby.name, error)
                standby.note_failure(error)
                break
            request_stats.current().standby_reads += 1
            return result
        request_stats.current().primary_reads += 1
        return self._primary.read(query, *args, **kwargs)

    def _usable(self) -> Iterator[Standby]:
        """Yield the standbys that can be tried; each call begins with another one."""
        first = next(self._turns)
        for number in range(len(self.standbys)):
            standby = self.standbys[(first + number) % len(self.standbys)]
            if standby.is_usable():
                yield standby
