"""Read the WAL position of the primary, and detect how long none has been reachable.

A standby is up to date if it has replayed the WAL up to this position. Without a primary, it does not fall
behind.
"""

import logging
from dataclasses import dataclass
from threading import Lock, Thread
from time import monotonic

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from placement_svc.db.connections.urls import may_be_read_only

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds from the start of a check of the primary to the next one."""

VALID_SECONDS = 10.0
"""Seconds for which the result of a check holds."""

_IS_STANDBY = text("SELECT pg_is_in_recovery()")

# A standby receives only what is flushed. The name of a WAL file begins with its timeline, in eight digits.
_POSITION = text("""
    SELECT ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::int AS timeline,
           (pg_current_wal_flush_lsn() - '0/0')::bigint AS lsn
""")


@dataclass(frozen=True)
class WalPosition:
    """The end of the primary's WAL; `read_at` is a time of the monotonic clock, just before it was read."""

    timeline: int
    lsn: int
    read_at: float


@dataclass(frozen=True)
class _Outage:
    """A time without a primary, by the monotonic clock; `end` is None while it lasts.

    It begins with the first check that has failed.
    """

    start: float
    end: float | None = None


class PrimaryWatch:
    """Checks in the background, when asked to, whether the engine of the primary reaches one.

    `position` is that of the latest check that has reached a primary, None before. An engine whose URL
    accepts standbys needs only reach a server, and no position is read.
    """

    def __init__(self, engine: Engine) -> None:
        self.position: WalPosition | None = None
        self._engine = engine
        self._lock = Lock()
        self._next_check = 0.0
        self._check_started: float | None = None
        """When the check that runs has started; None if none runs."""
        self._check_ended = 0.0
        self._outage: _Outage | None = None
        """The latest outage."""

    def check_soon(self) -> None:
        """Start a check, unless one runs or has started within `INTERVAL`; do not wait for it.

        If all connections of the engine are in use, nothing is checked.
        """
        with self._lock:
            now = monotonic()
            if self._check_started is not None or now < self._next_check or is_exhausted(self._engine):
                return
            if self._lasts() and now - self._check_ended > VALID_SECONDS:
                self._end_outage(self._check_ended)
            Thread(target=self._check, name="primary-check", daemon=True).start()
            self._check_started, self._next_check = now, now + INTERVAL

    def seconds_without_primary(self, since: float) -> float:
        """Return for how many of the seconds since a time of the monotonic clock there was no primary.

        Only the latest outage counts. A running check counts as failed.
        """
        with self._lock:
            now = monotonic()
            times = []
            if self._outage is not None:
                times.append((self._outage.start, self._outage.end or self._known_until(now)))
            if self._check_started is not None and not self._lasts():
                times.append((self._check_started, now))
        return sum(max(0.0, end - max(start, since)) for start, end in times)

    def _lasts(self) -> bool:
        return self._outage is not None and self._outage.end is None

    def _known_until(self, now: float) -> float:
        """Return the time up to which the current outage is certain."""
        is_known = self._check_started is not None or now - self._check_ended <= VALID_SECONDS
        return now if is_known else self._check_ended

    def _end_outage(self, moment: float) -> None:
        if self._outage is not None and self._outage.end is None:
            self._outage = _Outage(self._outage.start, moment)

    def _check(self) -> None:
        is_reachable = False
        try:
            is_reachable = self._reaches_primary()
        finally:
            self._store(is_reachable)

    def _store(self, is_reachable: bool) -> None:
        """Store the result of a check, and log a change."""
        with self._lock:
            self._check_ended = monotonic()
            was_lost = self._lasts()
            if is_reachable:
                self._end_outage(self._check_ended)
            elif not was_lost and self._check_started is not None:
                self._outage = _Outage(self._check_started)
            self._check_started = None
        if is_reachable and was_lost:
            log.info("A primary is reachable again")
        elif not is_reachable and not was_lost:
            log.warning("No primary is reachable; standbys that were up to date remain in use")

    def _reaches_primary(self) -> bool:
        try:
            with self._engine.connect() as connection:
                if may_be_read_only(self._engine.url):
                    return True
                if not connection.scalar(_IS_STANDBY):
                    read_at = monotonic()
                    timeline, lsn = connection.execute(_POSITION).one()
                    self.position = WalPosition(timeline, lsn, read_at)
                    return True
                # A primary that was demoted: the next check connects anew.
                connection.invalidate()
        except PoolTimeout:
            return True
        except DBAPIError:
            pass
        return False


def is_exhausted(engine: Engine) -> bool:
    """Return whether all connections of an engine are in use, so that one more would have to wait."""
    pool = engine.pool
    return pool.checkedout() >= pool.size()  # type: ignore[attr-defined, no-any-return]
