"""Whether the service can serve requests, and on what its answers and its commits rely."""

from collections.abc import Iterator, Sequence
from functools import partial

from sqlalchemy import Connection

from placement_svc.db import revisions
from placement_svc.db.connections import time_limit
from placement_svc.db.connections.durability import Durability, read_durability
from placement_svc.db.connections.engine import Database, discard_connections
from placement_svc.db.connections.sessions import is_read_only
from placement_svc.db.connections.standbys import Standby
from placement_svc.db.connections.time_limit import BackgroundCall
from placement_svc.db.connections.urls import may_be_read_only
from placement_svc.domain.errors import Unavailable

READ_ONLY_DATABASE = (
    "The database is read-only: it is a standby, or a primary that was demoted. For a service that only"
    " reads, add target_session_attrs=read-only to PLACEMENT_DATABASE_URL."
)

NO_RESPONSE = "The database has not responded yet."


class Readiness:
    """Examines the database of the service.

    With `requires_sync`, the service is ready only while commits wait for a synchronous standby.
    """

    def __init__(self, database: Database, standbys: Sequence[Standby], *, requires_sync: bool) -> None:
        self._database = database
        self._standbys = standbys
        self._requires_sync = requires_sync
        self._examination = BackgroundCall(partial(database.read, self._examine))

    def state(self) -> tuple[str | None, Sequence[str]]:
        """Return why the service is not ready, None if it is, and a line for each detail.

        Waits at most `RESPONSE_SECONDS` for the database, and not for standbys.
        """
        try:
            problem, durability = self._examination.start().result(time_limit.RESPONSE_SECONDS)
        except Unavailable as error:
            return str(error), ()
        except TimeoutError:
            return NO_RESPONSE, ()
        if problem is None and durability and self._requires_sync:
            problem = durability.problem()
        return problem, [*_commit_lines(durability), *map(_standby_line, self._standbys)]

    def _examine(self, connection: Connection) -> tuple[str | None, Durability | None]:
        """Return why the service is not ready, and the durability of commits unless it makes none."""
        if mismatch := revisions.mismatch(revisions.revision_of(connection)):
            return mismatch, None
        if may_be_read_only(self._database.engine.url):
            return None, None
        if is_read_only(connection):
            # A new session may accept writes.
            discard_connections(self._database.engine, connection.connection)
            return READ_ONLY_DATABASE, None
        return None, read_durability(connection)


def _commit_lines(durability: Durability | None) -> Iterator[str]:
    if durability:
        yield f"commits: {durability}"


def _standby_line(standby: Standby) -> str:
    """Return what is known of a standby, without waiting for it."""
    if not standby.is_examined():
        standby.check_if_due()
        return f"standby {standby.name}: not examined yet"
    if not standby.is_usable():
        return f"standby {standby.name}: not used, {standby.problem}"
    lag = "" if standby.lag is None else f", {standby.lag:.1f} s behind at the last read"
    return f"standby {standby.name}: used{lag}"
