"""Consumers, and the projects, users and types they belong to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import ConcurrentUpdate


@dataclass(frozen=True)
class LockedConsumer:
    """A consumer that nobody else changes until the transaction ends.

    `generation` is what it was before this transaction, None if the consumer was not there.
    """

    id: int
    generation: int | None


_LOCK_AND_RAISE = text("""
    SELECT consumer_uuid, consumer_id, generation_before
      FROM lock_and_increment_consumers(:consumer_uuids, :project_names, :user_names, :type_names)
""")


def lock_and_increment(connection: Connection, claims: Sequence[Claim]) -> dict[str, LockedConsumer]:
    """Lock the consumers of `claims`, create those that are absent, and return them by uuid.

    Each gets the project, the user and, where its claim has one, the type of its claim; and the next
    generation, which of a new one is 1.
    """
    rows = connection.execute(_LOCK_AND_RAISE, owners(claims))
    return {uuid: LockedConsumer(id, generation) for uuid, id, generation in rows}


def owners(claims: Sequence[Claim]) -> dict[str, Any]:
    """Return whose the consumers of `claims` are, as parameters: lists that belong together."""
    return {
        "consumer_uuids": [claim.consumer_uuid for claim in claims],
        "project_names": [claim.project_id for claim in claims],
        "user_names": [claim.user_id for claim in claims],
        "type_names": [claim.consumer_type for claim in claims],
    }


def check_generations(claims: Iterable[Claim], generations: Mapping[str, int | None]) -> None:
    """Refuse claims of clients that do not know the consumer as it is.

    `generations` are those of the consumers by uuid, None for one that was not there. Raises
    `ConcurrentUpdate` for the first one (`docs/spec/allocations.md 5`, A2).
    """
    for claim in claims:
        generation = generations[claim.consumer_uuid]
        if claim.generation != generation:
            expected = "null" if generation is None else generation
            raise ConcurrentUpdate(
                f"consumer generation conflict - expected {expected} but got {claim.generation}"
            )
