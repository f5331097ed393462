"""Calls of the stored procedures that change allocations.

Each call is one statement and one round trip, without BEGIN and COMMIT around it: most of the cost of a
claim is Python and the network, so the calls use the driver directly. PostgreSQL commits when the statement
ends. The procedures `claim`, `claim_batch` and `claim_and_release` roll back if they refuse the claims, which
PostgreSQL allows only outside of a transaction block.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import psycopg2  # type: ignore[import-untyped]
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from placement_svc.db import allocations, consumers
from placement_svc.db.claims.refusal import GENERATIONS, Refusal
from placement_svc.db.connections.engine import Database, discard_connections, is_demoted
from placement_svc.db.connections.terminations import forget_notices, is_rolled_back
from placement_svc.db.errors import OUTCOME_UNKNOWN
from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import OutcomeUnknown, Unavailable
from placement_svc.domain.execution import request_stats

_CLAIMS = """
    %(consumer_uuids)s::text[], %(project_names)s::text[], %(user_names)s::text[],
    %(type_names)s::text[], %(compare_generations)s, %(known_generations)s::numeric[],
    %(allocation_consumers)s::text[], %(allocation_providers)s::text[], %(allocation_classes)s::text[],
    %(allocation_amounts)s::numeric[]"""
# The argument NULL is the result: NULL if all claims are granted, else the JSON document of a `Refusal`.
CLAIM = f"CALL claim({_CLAIMS}, NULL)"
CLAIM_BATCH = f"CALL claim_batch({_CLAIMS}, NULL)"
# The second result is whether all claims were granted and all consumers released.
CLAIM_AND_RELEASE = (
    f"CALL claim_and_release({_CLAIMS}, %(released_uuids)s::text[], %(provider_uuids)s::text[], NULL, NULL)"
)
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


def claim_and_release(
    database: Database,
    claims: Sequence[Claim],
    released_uuids: Sequence[str],
    provider_uuids: Collection[str],
) -> bool:
    """Grant claims of new consumers and delete other consumers; return False if nothing was changed.

    All claims name `provider_uuids`, and the consumers to delete have allocations on these providers only.
    Returns False if the claims are refused, or if one of the other consumers does not exist, is locked or has
    further allocations. Raises the same errors as `claim`.
    """
    values = {
        **_claim_values(claims, True),
        "released_uuids": list(released_uuids),
        "provider_uuids": list(provider_uuids),
    }
    # Only claims show that the first call has succeeded.
    _, is_done = _call(database, CLAIM_AND_RELEASE, values, is_repeatable=bool(claims))
    return bool(is_done)


def delete_consumer(database: Database, uuid: str) -> bool:
    """Delete a consumer with its allocations; return whether it existed."""
    [existed] = _execute(database, DELETE_CONSUMER, {"uuid": uuid})
    return bool(existed)


def _claim(
    database: Database, statement: str, claims: Sequence[Claim], compare_generations: bool
) -> Refusal | None:
    values = _claim_values(claims, compare_generations)
    [document] = _call(database, statement, values, is_repeatable=compare_generations)
    return None if document is None else Refusal.from_json(document)


def _claim_values(claims: Sequence[Claim], compare_generations: bool) -> dict[str, Any]:
    return {
        "compare_generations": compare_generations,
        "known_generations": [claim.generation for claim in claims],
        **consumers.columns(claims),
        **allocations.columns(claims),
    }


def _call(
    database: Database, statement: str, values: Mapping[str, Any], *, is_repeatable: bool
) -> tuple[Any, ...]:
    """Call a procedure; if the outcome is unknown and the call `is_repeatable`, call it once more.

    A call is repeatable if it has claims and compares generations. If the first call was applied, the second
    one ends in a generation conflict, unless another request has deleted the consumers meanwhile: the claims
    are then granted after it. After a conflict, the outcome stays unknown, and `outcomes.are_granted`
    compares what is stored.
    """
    try:
        return _execute(database, statement, values)
    except OutcomeUnknown as unknown:
        if not is_repeatable:
            raise
        try:
            results = _execute(database, statement, values)
        except Unavailable:
            raise unknown from None
        if results[0] is not None and results[0].keys() == {GENERATIONS}:
            raise unknown from None
        return results


def _execute(database: Database, statement: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the single row of a statement (driver placeholders), which is a transaction of its own.

    It is retried like `Database.write`, except after a lost connection: that may have been during the
    commit, so it raises `OutcomeUnknown` unless PostgreSQL has certainly rolled back.
    """
    return database.run_with_retries(partial(_execute_once, database.engine, statement, values))


def _execute_once(engine: Engine, statement: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    pooled = None
    try:
        pooled = engine.raw_connection()
        return _fetch_row(pooled, statement, values)
    except psycopg2.Error as error:
        is_lost = engine.dialect.is_disconnect(error, pooled, None)
        if is_lost and pooled is not None:
            may_be_committed = not is_rolled_back(pooled.driver_connection)
            pooled.invalidate(error)
            if may_be_committed:
                raise OutcomeUnknown(OUTCOME_UNKNOWN) from error
        if pooled is not None and is_demoted(engine, error):
            # Nothing was changed. New connections find the new primary, or a database that accepts writes.
            discard_connections(engine, pooled)
            is_lost = True
        raise DBAPIError.instance(
            statement, None, error, psycopg2.Error, connection_invalidated=is_lost
        ) from error
    finally:
        if pooled is not None:
            pooled.close()


def _fetch_row(pooled: PoolProxiedConnection, statement: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the single row of a statement that is sent without BEGIN and COMMIT around it."""
    connection: Any = pooled.driver_connection
    connection.autocommit = True
    forget_notices(connection)
    request_stats.statement_starts()
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            row: tuple[Any, ...] = cursor.fetchone()
        return row
    finally:
        request_stats.statement_ends()
        if not connection.closed:
            connection.autocommit = False
