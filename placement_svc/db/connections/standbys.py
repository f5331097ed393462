"""Reads on standbys: their data may be some seconds old, and the primary runs what no standby can run."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import ref

from sqlalchemy import URL, Connection, Row, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from placement_svc.db.connections.cancellation import canceled_at_deadline
from placement_svc.db.connections.engine import Database, connect, use_snapshot
from placement_svc.db.connections.primary_watch import PrimaryWatch, WalPosition, is_exhausted
from placement_svc.db.connections.urls import server_name
from placement_svc.db.errors import QUERY_CANCELED, map_driver_errors, sqlstate
from placement_svc.domain.errors import BadQueryValue, NotFound, UnknownName
from placement_svc.domain.execution import request_stats

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

RECHECK_SECONDS = 1.0
"""Seconds after which a thread examines a standby that is not usable, or that no request has used."""

UP_TO_DATE_SECONDS = 3.0
"""Seconds for which a standby that has reached the position of the primary counts as up to date."""

CHECK_SECONDS = 5.0
"""Seconds after which another thread examines a standby whose examination has not ended."""

# The data of a standby is that of the last transaction that it has replayed; `age` is the difference of two
# clocks. `lsn` is the end of what it has both received and replayed: an old primary that was started as a
# standby may have replayed more than it can receive. After a restart, pg_last_wal_receive_lsn() is the start
# of a WAL segment until the primary writes; `written_lsn` is the true position. Only a role with
# pg_read_all_stats sees it, and `timeline`.
_STATE = text("""
    SELECT pg_is_in_recovery() AS is_standby,
           pg_postmaster_start_time() AS started_at,
           EXISTS (SELECT FROM pg_stat_wal_receiver) AS is_connected,
           pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn() AS has_replayed_all,
           received_tli AS timeline,
           (least(pg_last_wal_replay_lsn(), greatest(pg_last_wal_receive_lsn(), written_lsn)) - '0/0')::bigint
               AS lsn,
           extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8 AS age
    FROM (VALUES (true)) AS always LEFT JOIN pg_stat_wal_receiver ON true
""")


class Reader(Protocol):
    """Something that runs reads, such as a `Database`."""

    def read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `query`, whose statements see one snapshot."""


class StandbyUnusable(Exception):
    """A standby cannot run a read now."""


class Standby:
    """One server that can run reads, with its connections.

    `lag` is the one that was measured last, in seconds; time without a primary does not count. `problem`
    tells why the standby is not used, None if it is.
    """

    def __init__(
        self,
        url: URL,
        max_lag: float,
        primary: PrimaryWatch,
        *,
        pool_size: int,
        statement_timeout: int,
        prepares_statements: bool = False,
    ) -> None:
        self.name = server_name(url)
        self.lag: float | None = None
        self.problem: str | None = None
        self._max_lag = max_lag
        self._primary = primary
        self._up_to_date_at: dict[Any, float] = {}
        """When servers were last up to date, by the time of their start: a proxy may choose among several."""
        self._check_at = 0.0
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
        if self.problem is None:
            return True
        self.check_if_due()
        return False

    def is_examined(self) -> bool:
        """Return whether something is known of the standby: a new one is tried before it is."""
        return self.lag is not None or self.problem is not None

    def check_if_due(self) -> None:
        """Start a thread that examines the standby, unless it has been used or examined just before."""
        with self._lock:
            if monotonic() >= self._check_at:
                self._check_at = monotonic() + CHECK_SECONDS
                Thread(target=self.check, name="standby-check", daemon=True).start()

    def check(self) -> None:
        """Connect to the standby, and update `lag` and `problem`, unless all connections are in use."""
        if is_exhausted(self.engine):
            return
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
            self._examine(state)
            yield connection

    def _examine(self, state: Row[Any]) -> None:
        """Store the state of the server; raise `StandbyUnusable` if it is not to be used."""
        if not state.is_standby:
            self.lag = None
            raise self._unusable("is a primary", level=logging.INFO)
        lag = self.lag = self._measured_lag(state)
        if lag is None:
            raise self._unusable("has replayed no transaction yet")
        if lag > self._max_lag:
            raise self._unusable(f"lags more than {self._max_lag:g} s")
        if self.problem is not None:
            log.info("The standby %s is used again", self.name)
        with self._lock:
            self.problem = None
            self._check_at = monotonic() + RECHECK_SECONDS

    def _measured_lag(self, state: Row[Any]) -> float | None:
        """Return how old the data of a standby is, in seconds; None if that is unknown.

        This is the age of its last transaction, which is long ago if the primary was idle, or the time since
        it was up to date if that is less. Without a primary, nothing newer can exist.
        """
        self._primary.check_soon()
        position = self._primary.position
        if position is None and state.is_connected and state.has_replayed_all:
            # No primary has been reached yet: rely on the standby.
            return 0.0
        if position is not None and state.is_connected and _has_reached(state, position):
            self._up_to_date_at[state.started_at] = position.read_at
        ages: list[float] = [] if state.age is None else [state.age]
        if state.started_at in self._up_to_date_at:
            since_up_to_date = monotonic() - self._up_to_date_at[state.started_at]
            if state.is_connected and state.has_replayed_all and since_up_to_date < UP_TO_DATE_SECONDS:
                # It takes a moment to replay what the primary has written since then.
                return 0.0
            ages.append(since_up_to_date)
        lag = min(ages, default=None)
        if lag is None:
            return None
        return max(0.0, lag - self._primary.seconds_without_primary(monotonic() - lag))

    def _failed(self, error: Exception) -> StandbyUnusable:
        self.lag = None
        return self._unusable("does not respond", error)

    def _unusable(
        self, problem: str, error: Exception | None = None, *, level: int = logging.WARNING
    ) -> StandbyUnusable:
        """Do not use the standby for a time; return the error to raise.

        The URL of standbys may name the primary: one of them becomes it at a failover.
        """
        if self.problem != problem:
            details = f": {' '.join(str(error).split())}" if error else ""
            log.log(level, "The standby %s %s, so it is not used%s", self.name, problem, details)
        with self._lock:
            self.problem = problem
            self._check_at = monotonic() + RECHECK_SECONDS
        return StandbyUnusable(problem)

    def note_failure(self, error: DBAPIError) -> None:
        """Do not use the standby for a while if a statement has lost its connection."""
        if error.connection_invalidated:
            self._failed(error)


def _has_reached(state: Row[Any], position: WalPosition) -> bool:
    """Return whether a standby has replayed all that the primary had written at this position.

    After a failover, a standby of the old timeline may have what the new primary lacks, and lack the rest.
    """
    is_on_timeline = state.timeline is None or state.timeline >= position.timeline
    return is_on_timeline and state.lsn is not None and state.lsn >= position.lsn


class StandbyReads:
    """Runs reads on standbys in turn, and on the primary if no standby can run them.

    From the first read on, a thread examines standbys that no request uses. Therefore it
    is also known of an idle standby whether it was up to date when the primary was lost.
    """

    def __init__(self, primary: Database, standbys: Sequence[Standby]) -> None:
        self.standbys = standbys
        self._primary = primary
        self._read_numbers = count()
        self._is_watched = not standbys
        self._lock = Lock()

    def read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `query`; all its statements see the same snapshot, of one server.

        A read that fails on a standby is repeated on the others, then on the primary. It fails there for a
        conflict with the recovery, a lost connection, an older schema, or because the standby does not have
        the object that the request names. A read that took too long is not repeated. Raises
        `Unavailable` if no server can run it: without the primary, a standby alone does not decide that an
        object does not exist.
        """
        self._watch()
        for standby in self._usable():
            try:
                with standby.snapshot() as connection, canceled_at_deadline(connection):
                    result = query(connection, *args, **kwargs)
            except (StandbyUnusable, NotFound, UnknownName, BadQueryValue):
                continue
            except DBAPIError as error:
                if sqlstate(error) == QUERY_CANCELED:
                    with map_driver_errors():
                        raise
                log.info("A read that failed on the standby %s is repeated: %s", standby.name, error)
                standby.note_failure(error)
                continue
            request_stats.current().standby_reads += 1
            return result
        request_stats.current().primary_reads += 1
        return self._primary.read(query, *args, **kwargs)

    def _watch(self) -> None:
        """Start the thread that examines idle standbys, once per process."""
        if self._is_watched:
            return
        with self._lock:
            if not self._is_watched:
                self._is_watched = True
                Thread(target=_examine_idle, args=(ref(self),), name="standby-watch", daemon=True).start()

    def _usable(self) -> Iterator[Standby]:
        """Yield the standbys that can be tried; each call begins with another one."""
        first = next(self._read_numbers)
        for number in range(len(self.standbys)):
            standby = self.standbys[(first + number) % len(self.standbys)]
            if standby.is_usable():
                yield standby


def _examine_idle(reference: ref[StandbyReads]) -> None:
    """Examine the standbys that have not been used for a while, until the application is discarded."""
    while True:
        # Twice as often as a standby is due, so that none is examined much too late.
        sleep(RECHECK_SECONDS / 2)
        reads = reference()
        if reads is None:
            return
        for standby in reads.standbys:
            standby.check_if_due()
        # The application is not kept.
        del reads
