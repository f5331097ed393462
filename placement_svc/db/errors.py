"""From the driver's errors to Placement's: nothing above this package sees the driver."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InternalError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from placement_svc.domain.errors import Invalid, PlacementError, Unavailable

log = logging.getLogger(__name__)

UNREACHABLE = "The database cannot be reached or did not answer in time."

INSUFFICIENT_PRIVILEGE = "42501"
UNDEFINED_FUNCTION = "42883"
UNDEFINED_TABLE = "42P01"
DEADLOCK = "40P01"
SERIALIZATION_FAILURE = "40001"
READ_ONLY = "25006"
LOCK_NOT_AVAILABLE = "55P03"
QUERY_CANCELED = "57014"
INSUFFICIENT_RESOURCES = "53"
"""The class of the codes for a full disk, too little memory and too many connections."""

UNDONE = {DEADLOCK, SERIALIZATION_FAILURE}
"""PostgreSQL has undone a transaction because of another one."""


def sqlstate(error: DBAPIError) -> str | None:
    """Return PostgreSQL's five-character code of `error`, None if it never reached PostgreSQL."""
    return getattr(error.orig, "pgcode", None)


@contextmanager
def map_constraints(**meaning: PlacementError) -> Iterator[None]:
    """Raise, for a constraint that the block breaks, the error given for that constraint's name."""
    try:
        yield
    except IntegrityError as error:
        constraint = error.orig.diag.constraint_name  # type: ignore[union-attr]
        if constraint in meaning:
            raise meaning[constraint] from error
        raise


@contextmanager
def map_driver_errors() -> Iterator[None]:
    """Turn what the database itself says into what it means for the request."""
    try:
        yield
    except PoolTimeout as error:
        log.warning("The database failed: %s", error)
        raise Unavailable(UNREACHABLE) from error
    except OperationalError as error:
        log.warning("The database failed: %s", error)
        raise Unavailable(_meaning(sqlstate(error) or "")) from error
    except InternalError as error:
        if sqlstate(error) == READ_ONLY:
            raise Unavailable("The database is read-only for the moment.") from error
        raise
    except DataError as error:
        raise Invalid("A value lies outside of what can be stored.") from error
    except ProgrammingError as error:
        if sqlstate(error) == INSUFFICIENT_PRIVILEGE:
            raise Unavailable("The database does not let this service use its tables.") from error
        if sqlstate(error) == UNDEFINED_TABLE:
            raise Unavailable("The database has no schema yet: run `placement-svc db upgrade`.") from error
        if sqlstate(error) == UNDEFINED_FUNCTION:
            raise Unavailable("The database has an older schema: run `placement-svc db upgrade`.") from error
        raise


def _meaning(code: str) -> str:
    """Return what an operational error of this code means for the request."""
    if code == LOCK_NOT_AVAILABLE:
        return "Another request has held what this one needs for too long."
    if code in UNDONE:
        return "Other requests have been in the way again and again."
    if code.startswith(INSUFFICIENT_RESOURCES):
        return "The database is out of disk space, memory or connections."
    return UNREACHABLE
