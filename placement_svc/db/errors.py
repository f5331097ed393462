"""Map errors of the database driver to Placement's errors, so that hardly any other package handles them."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InternalError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from placement_svc.domain.errors import Invalid, PlacementError, Unavailable

log = logging.getLogger(__name__)

UNREACHABLE = "The database cannot be reached or did not answer in time."
REFUSED = "The database refuses connections; the log of the service has the reason."
OUTCOME_UNKNOWN = "The database was lost at the commit: it is not known whether anything has changed."

INSUFFICIENT_PRIVILEGE = "42501"
UNDEFINED_FUNCTION = "42883"
UNDEFINED_TABLE = "42P01"
UNDEFINED_COLUMN = "42703"
UNDEFINED = {UNDEFINED_TABLE, UNDEFINED_COLUMN, UNDEFINED_FUNCTION}
"""The schema lacks what a statement names: it is outdated, or the statement is a defect of this service."""

DEADLOCK = "40P01"
SERIALIZATION_FAILURE = "40001"
READ_ONLY = "25006"
LOCK_NOT_AVAILABLE = "55P03"
QUERY_CANCELED = "57014"
INSUFFICIENT_RESOURCES = "53"
"""The class of the codes for a full disk, too little memory and too many connections."""

INTERNAL_ERROR = "XX"
"""The class of the codes for internal errors of PostgreSQL, and for corrupted data and indexes."""

PROGRAM_LIMIT_EXCEEDED = "54"
"""The class of the codes for a statement beyond a limit of PostgreSQL, such as its stack depth.

The statement is a defect of this service: the database is available, and a retry fails again.
"""

_REFUSAL = re.compile(r"^connection to server .* failed: FATAL:", re.MULTILINE)
"""How the message of libpq begins if a server refuses a connection, which has no error code.

The rest may name users and hosts, and is for the log only.
"""

MAX_LOGGED_BYTES = 600
"""Bytes of a statement, and of an error message, that the text of an error contains at most.

Both may have megabytes, and the message may quote a value of a request. As JSON, a character of two bytes
takes six: a log record has less than 2 kB of each.
"""

CONCURRENCY_FAILURES = {DEADLOCK, SERIALIZATION_FAILURE}
"""PostgreSQL rolled back a transaction because of a concurrent one."""


def sqlstate(error: DBAPIError) -> str | None:
    """Return PostgreSQL's five-character error code, None if PostgreSQL did not report the error."""
    return getattr(error.orig, "pgcode", None)


def shorten_texts(error: BaseException) -> None:
    """Shorten the texts of a driver error, or of an SQLAlchemy error and its cause, for the log.

    The code and the diagnostics of PostgreSQL stay complete. No text contains parameters.
    """
    if isinstance(error, SQLAlchemyError):
        # Its text would end with a link to the documentation of SQLAlchemy, for developers.
        error.code = None
    if isinstance(error, StatementError):
        error.hide_parameters = True
        if error.statement is not None:
            error.statement = _shortened(error.statement)
        if error.orig is not None and error.orig is not error:
            shorten_texts(error.orig)
    error.args = tuple(_shortened(arg) if isinstance(arg, str) else arg for arg in error.args)


def _shortened(value: str) -> str:
    """Return a text of at most `MAX_LOGGED_BYTES`, with a note if it was longer."""
    encoded = value.encode(errors="replace")
    if len(encoded) <= MAX_LOGGED_BYTES:
        return value
    note = f" ... ({len(encoded)} bytes)"
    return encoded[: MAX_LOGGED_BYTES - len(note)].decode(errors="ignore") + note


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

    Errors that only a defect of this service can cause, such as a syntax error or a statement beyond a limit
    of PostgreSQL, pass with their texts shortened.
    """
    try:
        with _shorten_errors():
            yield
    except PoolTimeout as error:
        log.warning("The database failed: %s", error)
        raise Unavailable("All database connections of this worker are in use.") from error
    except OperationalError as error:
        if (sqlstate(error) or "").startswith(PROGRAM_LIMIT_EXCEEDED):
            raise
        log.warning("The database failed: %s", error)
        raise Unavailable(_message(error)) from error
    except InternalError as error:
        if sqlstate(error) == READ_ONLY:
            raise Unavailable("The database is read-only at the moment.") from error
        if (sqlstate(error) or "").startswith(INTERNAL_ERROR):
            log.error("The database failed: %s", error)
            raise Unavailable("The database has an internal error or corrupted data.") from error
        raise
    except DataError as error:
        raise Invalid("A value lies outside of what can be stored.") from error
    except ProgrammingError as error:
        if sqlstate(error) == INSUFFICIENT_PRIVILEGE:
            raise Unavailable(
                "The role of the database URL may not use the tables: name the role that owns them, or grant"
                " it the privileges."
            ) from error
        if sqlstate(error) == UNDEFINED_TABLE:
            raise Unavailable("The database has no schema yet: run `placement-svc db upgrade`.") from error
        if sqlstate(error) == UNDEFINED_FUNCTION:
            raise Unavailable("The database has an older schema: run `placement-svc db upgrade`.") from error
        raise


@contextmanager
def _shorten_errors() -> Iterator[None]:
    """Shorten the errors of the block that no engine has shortened, such as those of the driver itself."""
    try:
        yield
    except SQLAlchemyError as error:
        shorten_texts(error)
        raise


def _message(error: OperationalError) -> str:
    """Return the message for an operational error."""
    code = sqlstate(error) or ""
    if code == LOCK_NOT_AVAILABLE:
        return "Another request has held what this one needs for too long."
    if code == QUERY_CANCELED:
        return "The database took too long for a statement of this request: ask for less, or with a limit."
    if code in CONCURRENCY_FAILURES:
        return "Other requests have been in the way again and again."
    if code.startswith(INSUFFICIENT_RESOURCES):
        return "The database is out of disk space, memory or connections."
    if _REFUSAL.search(str(error.orig)):
        return REFUSED
    return UNREACHABLE
