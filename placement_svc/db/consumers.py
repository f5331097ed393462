"""Consumers, and the projects, users and types they belong to."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, text
from sqlalchemy.dialects.postgresql import insert

from placement_svc.db.tables import consumer_types, projects, users
from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import ConcurrentUpdate


@dataclass(frozen=True)
class LockedConsumer:
    """A consumer that nobody else changes until the transaction ends.

    `generation` is what it was before this transaction, None if the consumer was not there.
    """

    id: int
    generation: int | None


# The rows are changed in the order of their uuids, whoever changes them, so that two requests never wait
# for each other. The upsert waits for whoever else inserts or changes the same consumer, and then sees
# their work: there is no moment at which two requests could both find the consumer absent.
_LOCK_AND_RAISE = text("""
    WITH claim AS (
        SELECT claimed.uuid, project.id AS project_id, owner.id AS user_id, type.id AS consumer_type_id,
               project.id IS NOT NULL AND owner.id IS NOT NULL
               AND (claimed.type IS NULL OR type.id IS NOT NULL) AS is_known
          FROM unnest(
                   CAST(:uuids AS text[]), CAST(:projects AS text[]),
                   CAST(:users AS text[]), CAST(:types AS text[])
               ) AS claimed (uuid, project, owner, type)
          LEFT JOIN projects AS project ON project.external_id = claimed.project
          LEFT JOIN users AS owner ON owner.external_id = claimed.owner
          LEFT JOIN consumer_types AS type ON type.name = claimed.type
    )
    INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, generation)
    SELECT uuid, project_id, user_id, consumer_type_id, 1
      FROM claim
     -- All of them or none: the names that are not there yet come first.
     WHERE (SELECT bool_and(is_known) FROM claim)
     ORDER BY uuid COLLATE "C"
        ON CONFLICT (uuid) DO UPDATE
       SET project_id = excluded.project_id,
           user_id = excluded.user_id,
           consumer_type_id = coalesce(excluded.consumer_type_id, consumers.consumer_type_id),
           generation = consumers.generation + 1
    -- A row that was there has been locked by the upsert; one that it has inserted never was.
    RETURNING id, uuid, generation, xmax = 0 AS inserted
""")


def lock_and_raise(connection: Connection, claims: Sequence[Claim]) -> dict[str, LockedConsumer]:
    """Lock the consumers of `claims`, create those that are absent, and return them by uuid.

    Each gets the project, the user and, where its claim has one, the type of its claim; and the next
    generation, which of a new one is 1. One statement, unless a project, user or type is new.
    """
    if not claims:
        return {}
    wanted = {
        "uuids": [claim.consumer_uuid for claim in claims],
        "projects": [claim.project_id for claim in claims],
        "users": [claim.user_id for claim in claims],
        "types": [claim.consumer_type for claim in claims],
    }
    rows = connection.execute(_LOCK_AND_RAISE, wanted).all()
    if not rows:
        _add(connection, projects.c.external_id, {claim.project_id for claim in claims})
        _add(connection, users.c.external_id, {claim.user_id for claim in claims})
        types = {claim.consumer_type for claim in claims if claim.consumer_type is not None}
        _add(connection, consumer_types.c.name, types)
        rows = connection.execute(_LOCK_AND_RAISE, wanted).all()
    return {row.uuid: LockedConsumer(row.id, None if row.inserted else row.generation - 1) for row in rows}


def _add(connection: Connection, column: Column[Any], names: Collection[str]) -> None:
    """Store those of `names` that `column` does not have yet, in one order; they are never deleted."""
    if names:
        rows = [{column.name: name} for name in sorted(names)]
        connection.execute(insert(column.table).on_conflict_do_nothing(), rows)


def check_generations(claims: Iterable[Claim], locked: dict[str, LockedConsumer]) -> None:
    """Refuse claims of clients that do not know the consumer as it is.

    Raises `ConcurrentUpdate` for the first one (`spec/allocations.md 5`, A2).
    """
    for claim in claims:
        generation = locked[claim.consumer_uuid].generation
        if claim.generation != generation:
            expected = "null" if generation is None else generation
            raise ConcurrentUpdate(
                f"consumer generation conflict - expected {expected} but got {claim.generation}"
            )
