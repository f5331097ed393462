"""Consumers, with their projects, users and types."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, text

from placement_svc.db.filters import is_any
from placement_svc.db.tables import consumers
from placement_svc.domain.allocations import Claim


@dataclass(frozen=True)
class LockedConsumer:
    """A consumer whose row is locked until the end of the transaction.

    `generation` is the one before this transaction, None if this transaction created the consumer.
    """

    id: int
    generation: int | None


_LOCK_AND_INCREMENT = text("""
    SELECT consumer_uuid, consumer_id, generation_before
      FROM lock_and_increment_consumers(:consumer_uuids, :project_names, :user_names, :type_names)
""")


def lock_and_increment(connection: Connection, claims: Sequence[Claim]) -> dict[str, LockedConsumer]:
    """Lock the consumers of `claims` in the order of their uuids and return them by uuid.

    Create the missing ones. Set project, user and, where the claim has one, type; increment the
    generation, which is 1 for a new consumer.
    """
    rows = connection.execute(_LOCK_AND_INCREMENT, columns(claims))
    return {uuid: LockedConsumer(id, generation) for uuid, id, generation in rows}


def columns(claims: Sequence[Claim]) -> dict[str, Any]:
    """Return the consumers of `claims` as statement parameters: arrays of equal length."""
    return {
        "consumer_uuids": [claim.consumer_uuid for claim in claims],
        "project_names": [claim.project_id for claim in claims],
        "user_names": [claim.user_id for claim in claims],
        "type_names": [claim.consumer_type for claim in claims],
    }


def without_allocations(claims: Iterable[Claim], locked: Mapping[str, LockedConsumer]) -> list[int]:
    """Return the ids of the consumers whose claims have no allocations: these consumers are deleted."""
    return [locked[claim.consumer_uuid].id for claim in claims if not claim.allocations]


def generations(connection: Connection, uuids: Collection[str]) -> dict[str, int | None]:
    """Return the generation of each of these consumers, None for one that does not exist."""
    query = select(consumers.c.uuid, consumers.c.generation).where(is_any(consumers.c.uuid, uuids))
    stored = {row.uuid: row.generation for row in connection.execute(query)}
    return {uuid: stored.get(uuid) for uuid in uuids}
