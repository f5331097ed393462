"""Consumers, and the projects, users and types they belong to."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, delete, func, literal_column, select
from sqlalchemy.dialects.postgresql import insert

from placement_svc.db.filters import is_any
from placement_svc.db.tables import consumer_types, consumers, projects, users
from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import ConcurrentUpdate


@dataclass(frozen=True)
class LockedConsumer:
    """A consumer that nobody else changes until the transaction ends.

    `generation` is what it was before this transaction, None if the consumer was not there.
    """

    id: int
    generation: int | None


def lock_and_raise(connection: Connection, claims: Sequence[Claim]) -> dict[str, LockedConsumer]:
    """Lock the consumers of `claims`, create those that are absent, and return them by uuid.

    Each gets the project, the user and, where its claim has one, the type of its claim; and the next
    generation, which of a new one is 1.
    """
    if not claims:
        return {}
    project_ids = _find_or_add(connection, projects.c.external_id, {claim.project_id for claim in claims})
    user_ids = _find_or_add(connection, users.c.external_id, {claim.user_id for claim in claims})
    types = {claim.consumer_type for claim in claims if claim.consumer_type is not None}
    type_ids = _find_or_add(connection, consumer_types.c.name, types)
    # Everybody writes consumers first, and in this order, so that two requests never wait for each other.
    rows = [
        {
            "uuid": claim.consumer_uuid,
            "project_id": project_ids[claim.project_id],
            "user_id": user_ids[claim.user_id],
            "consumer_type_id": claim.consumer_type and type_ids[claim.consumer_type],
            "generation": 1,
        }
        for claim in sorted(claims, key=lambda claim: claim.consumer_uuid)
    ]
    new = insert(consumers)
    # An upsert waits for whoever else inserts or changes the same consumer, and then sees their work:
    # there is no moment at which two requests could both find the consumer absent.
    upsert = new.on_conflict_do_update(
        index_elements=[consumers.c.uuid],
        set_={
            "project_id": new.excluded.project_id,
            "user_id": new.excluded.user_id,
            "consumer_type_id": func.coalesce(new.excluded.consumer_type_id, consumers.c.consumer_type_id),
            "generation": consumers.c.generation + 1,
        },
    ).returning(
        consumers.c.id,
        consumers.c.uuid,
        consumers.c.generation,
        # A row that was there has been locked by the upsert; one that it has inserted never was.
        literal_column("consumers.xmax = 0").label("inserted"),
    )
    return {
        row.uuid: LockedConsumer(row.id, None if row.inserted else row.generation - 1)
        for row in connection.execute(upsert, rows)
    }


def _find_or_add(connection: Connection, column: Column[Any], names: Collection[str]) -> dict[str, int]:
    """Return the id of each row of which `column` is one of `names`, which is never deleted."""
    table = column.table
    query = select(column, table.c.id).where(is_any(column, names))
    found: dict[str, int] = dict(connection.execute(query).all())
    missing = sorted(set(names) - found.keys())
    if missing:
        rows = [{column.name: name} for name in missing]
        connection.execute(insert(table).on_conflict_do_nothing(), rows)
        found = dict(connection.execute(query).all())
    return found


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


def remove(connection: Connection, ids: Iterable[int]) -> None:
    """Delete locked consumers that hold nothing any more."""
    connection.execute(delete(consumers).where(is_any(consumers.c.id, ids)))
