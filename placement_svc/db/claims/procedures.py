"""Calls of the stored procedures that change allocations.

Each call is one statement and one round trip, without BEGIN and COMMIT around it: most of the cost of a
claim is Python and the network, so the calls use the driver directly. PostgreSQL commits when the statement
ends. The procedures `claim` and `claim_batch` roll back if they refuse the claims, which PostgreSQL allows
only outside of a transaction block.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import psycopg2  # type: ignore[import-untyped]
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from placement_svc.db import allocations, consumers
from placement_svc.db.claims.refusal import Refusal
from placement_svc.db.engine import Database, is_demoted
from placement_svc.db.errors import OUTCOME_UNKNOWN
from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import OutcomeUnknown, Unavailable
from placement_svc.observability import request_stats

_ARGUMENTS = """(
    %(consumer_uuids)s::text[], %(project_names)s::text[], %(user_names)s::text[],
    %(type_names)s::text[], %(compare_generations)s, %(known_generations)s::numeric[],
    %(allocation_consumers)s::text[], %(allocation_providers)s::text[], %(allocation_classes)s::text[],
    %(allocation_amounts)s::numeric[], NULL
)"""
# The last argument is the result: NULL if all claims are granted, else the JSON document of a `Refusal`.
CLAIM = f"CALL claim{_ARGUMENTS}"
CLAIM_BATCH = f"CALL claim_batch{_ARGUMENTS}"
DELETE_CONSUMER = "SELECT delete_consumer(%(uuid)s)"


def claim(database: Database, claims: Sequence[Claim], *, compare_generations: bool) -> Refusal | None:
    """Replace the allocations of all consumers of `claims`; return a refusal if nothing was changed.

    Raises `Invalid` for a value that PostgreSQL cannot store, and `Unavailable`. Raises `OutcomeUnknown` if
    the connection was lost and it is unknown whether the claims were granted.
    """
    return _claim(database, CLAIM, claims, compare_generations)


def claim_batch(database: Database, claims: Sequence[Claim]) -> Refusal | None:
    """Grant claims of new consumers on the same providers, or return a refusal and change nothing.

    The generations of the providers increase by the number of claims. Raises the same errors as `claim`.
    """
    return _claim(database, CLAIM_BATCH, claims, True)


def delete_consumer(database: Database, uuid: str) -> bool:
    """Delete a consumer with its allocations; return whether it existed."""
    return bool(_execute(database, DELETE_CONSUMER, {"uuid": uuid}))


def _claim(
    database: Database, statement: str, claims: Sequence[Claim], compare_generations: bool
) -> Refusal | None:
    """Call a procedure; if the outcome is unknown and generations are compared, call it once more.

    With generations, the same claim is never granted twice, so the second call is safe. If it ends in a
    generation conflict, the first call may have caused it: the outcome stays unknown.
    """
    values = {
        "compare_generations": compare_generations,
        "known_generations": [claim.generation for claim in claims],
        **consumers.columns(claims),
        **allocations.columns(claims),
    }
    try:
        return _refusal(_execute(database, statement, values))
    except OutcomeUnknown as unknown:
        if not compare_generations:
            raise
        try:
            refusal = _refusal(_execute(database, statement, values))
        except Unavailable:
            raise unknown from None
        if refusal is not None and refusal.is_generation_conflict:
            raise unknown from None
        return refusal


def _refusal(document: Mapping[str, Any] | None) -> Refusal | None:
    return None if document is None else Refusal.from_json(document)


def _execute(database: Database, statement: str, values: Mapping[str, Any]) -> Any:
    """Return the single value of a statement (driver placeholders), which is a transaction of its own.

    It is retried like `Database.write`, except after a lost connection: that may have been during the
    commit, so it raises `OutcomeUnknown`.
    """
    return database.run_with_retries(partial(_execute_once, database.engine, statement, values))


def _execute_once(engine: Engine, statement: str, values: Mapping[str, Any]) -> Any:
    pooled = None
    try:
        pooled = engine.raw_connection()
        return _fetch_value(pooled, statement, values)
    except psycopg2.Error as error:
        is_lost = engine.dialect.is_disconnect(error, pooled, None)
        if is_lost and pooled is not None:
            pooled.invalidate(error)
            raise OutcomeUnknown(OUTCOME_UNKNOWN) from error
        if is_demoted(engine, error):
            # Nothing was changed. The next attempt connects to the new primary.
            engine.dispose(close=False)
            is_lost = True
        raise DBAPIError.instance(
            statement, None, error, psycopg2.Error, connection_invalidated=is_lost
        ) from error
    finally:
        if pooled is not None:
            pooled.close()


def _fetch_value(pooled: PoolProxiedConnection, statement: str, values: Mapping[str, Any]) -> Any:
    """Return the single value of a statement that is sent without BEGIN and COMMIT around it."""
    connection: Any = pooled.driver_connection
    # Reset what a snapshot read has set: the driver would send a statement to apply it in autocommit mode.
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
