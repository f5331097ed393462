"""Find out whether claims or a release are stored after their connection was lost during the commit."""

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, text

from placement_svc.db import allocations
from placement_svc.db.connections.engine import Database
from placement_svc.domain.allocations import Allocation, Claim
from placement_svc.domain.errors import Unavailable

# A commit waits for the synchronous standbys only if its transaction has written to the WAL.
_WRITE_TO_WAL = text("SELECT pg_logical_emit_message(true, 'placement-svc', '')")


def are_granted(database: Database, claims: Sequence[Claim]) -> bool:
    """Return whether the stored state is the one that these claims leave, which compare generations.

    Then either they were granted, or another request has made the same change of the same generations. If
    the state differs, the claims may have been granted and changed by another request.
    """
    found = _read_committed(database, [claim.consumer_uuid for claim in claims])
    return found is not None and all(_is_stored(claim, found) for claim in claims)


def is_released(database: Database, uuid: str) -> bool:
    """Return whether a consumer is absent. One that exists may have been released and created again."""
    return _read_committed(database, [uuid]) == []


def _read_committed(database: Database, uuids: Collection[str]) -> list[Allocation] | None:
    """Return the allocations of consumers, None if PostgreSQL is unavailable.

    A failover does not undo what was read: the primary may have committed it without waiting for its
    synchronous standbys, because it stopped meanwhile. Therefore the read is a transaction that waits for
    them. Its commit follows in the WAL, so that a standby that has it has the earlier one too.
    """
    try:
        return database.write(_read_and_write_to_wal, uuids)
    except Unavailable:
        return None


def _read_and_write_to_wal(connection: Connection, uuids: Collection[str]) -> list[Allocation]:
    found = allocations.of_consumers(connection, uuids)
    connection.execute(_WRITE_TO_WAL)
    return found


def _is_stored(claim: Claim, found: Iterable[Allocation]) -> bool:
    """Return whether the consumer of a claim has what the claim demands, and the next generation."""
    generation = (claim.generation or 0) + 1
    wanted = {
        (provider, resource_class, amount)
        for provider, resources in claim.allocations.items()
        for resource_class, amount in resources.items()
    }
    stored = [each for each in found if each.consumer_uuid == claim.consumer_uuid]
    return wanted == {(each.provider_uuid, each.resource_class, each.used) for each in stored} and all(
        (each.consumer_generation, each.project_id, each.user_id)
        == (generation, claim.project_id, claim.user_id)
        and claim.consumer_type in (None, each.consumer_type)
        for each in stored
    )
