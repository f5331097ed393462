"""Transactions whose connection may be lost during the commit."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from placement_svc.db.connections.terminations import IS_ROLLED_BACK, forget_notices
from placement_svc.db.errors import OUTCOME_UNKNOWN
from placement_svc.domain.errors import OutcomeUnknown


@contextmanager
def begin(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in a transaction, which is committed at the end of the block.

    Raises `OutcomeUnknown` if the connection is lost during the commit, unless PostgreSQL has certainly
    rolled back.
    """
    is_committing = False
    try:
        with engine.begin() as connection:
            yield connection
            forget_notices(connection.connection.driver_connection)
            is_committing = True
    except DBAPIError as error:
        if is_committing and error.connection_invalidated and not hasattr(error.orig, IS_ROLLED_BACK):
            raise OutcomeUnknown(OUTCOME_UNKNOWN) from error
        raise
