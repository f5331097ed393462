"""Map errors of the database driver to Placement's errors: no other package handles driver errors."""

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
OUTCOME_UNKNOWN = "The database was lost at the commit: it is not known whether anything has changed."

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

CONCURRENCY_FAILURES = {DEADLOCK, SERIALIZATION_FAILURE}
"""PostgreSQL rolled back a transaction because of a concurrent one."""


def sqlstate(error: DBAPIError) -> str | None:
    """Return PostgreSQL's five-character error code, None if PostgreSQL did not report the error."""
    return getattr(error.orig, "pgcode", None)


@contextmanager
def map_constraints(**errors: PlacementError) -> Iterator[None]:
    """Raise the given error, by constraint name, if the block violates one of these constraints."""
    try:
        yield
    except IntegrityError as error:
        constraint = error.orig.diag.constraint_name  # type: ignore[union-attr]
        if constraint in errors:
            raise errors[constraint] from error
        raise


@contextmanager
def map_driver_errors() -> Iterator[None]:
    """Map driver errors of the block to `Unavailable` or `Invalid`.

    Errors that only a defect of this service can cause, such as a syntax error, pass unchanged.
    """
    try:
        yield
    except PoolTimeout as error:
        log.warning("The database failed: %s", error)
        raise Unavailable(UNREACHABLE) from error
    except OperationalError as error:
        log.warning("The database failed: %s", error)
        raise Unavailable(_message(sqlstate(error) or "")) from error
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


def _message(code: str) -> str:
    """Return the message for an operational error with this code."""
    if code == LOCK_NOT_AVAILABLE:
        return "Another request has held what this one needs for too long."
    if code in CONCURRENCY_FAILURES:
        return "Other requests have been in the way again and again."
    if code.startswith(INSUFFICIENT_RESOURCES):
        return "The database is out of disk space, memory or connections."
    return UNREACHABLE
