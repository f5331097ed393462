"""The entry point for claims."""

from collections.abc import Sequence

from placement_svc.db.claims import outcomes, procedures
from placement_svc.db.claims.batcher import ClaimBatcher, ClaimOrRelease, Release
from placement_svc.db.claims.recent_claims import RecentClaims
from placement_svc.db.claims.refusal import Refusal, raise_reason
from placement_svc.db.connections.engine import Database
from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import Invalid, NotFound, OutcomeUnknown
from placement_svc.domain.execution import request_stats

MAX_ATTEMPTS = 10
"""How often claims are tried that are refused for no reason: if resource classes are being renamed."""


class ClaimService:
    """Replaces the allocations of consumers. One instance per process and database batches the changes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._recent_claims = RecentClaims()
        self.batcher = ClaimBatcher(self._change_one, self._change_batch)

    def replace_allocations(
        self, claims: Sequence[Claim], *, compare_generations: bool, unknown_class_message: str
    ) -> None:
        """Replace the allocations of each consumer by those of its claim: of all consumers, or of none.

        With `compare_generations`, a claim must have its consumer's stored generation. Raises
        `ConcurrentUpdate` if one has not, `Invalid` for an unknown provider or resource class
        (`unknown_class_message` with its name for ``{}``), and `Conflict` if the inventories cannot grant
        the claims.

        PostgreSQL grants or refuses by one call of a procedure, however many amounts are claimed. Only a
        refusal costs more: its reason is found here. If there is none any more, the claims are tried again.
        """
        for _ in range(MAX_ATTEMPTS):
            refusal = self.try_to_replace(claims, compare_generations=compare_generations)
            if refusal is None:
                return
            raise_reason(self._database, claims, refusal, unknown_class_message)
            request_stats.current().retries += 1
        raise AssertionError(
            f"PostgreSQL refuses claims that the rules of this service grant: {refusal!s:.600}"
        )

    def try_to_replace(self, claims: Sequence[Claim], *, compare_generations: bool) -> Refusal | None:
        """Replace the allocations like `replace_allocations`, but return a refusal without its reason."""
        try:
            if compare_generations and len(claims) == 1 and _is_of_new_consumer(claims[0]):
                refusal = self.batcher.submit(claims[0])
            else:
                refusal = procedures.claim(self._database, claims, compare_generations=compare_generations)
        except OutcomeUnknown:
            if not (compare_generations and outcomes.are_granted(self._database, claims)):
                raise
            refusal = None
        if refusal is None:
            self._recent_claims.add(claims)
        return refusal

    def delete_consumer(self, uuid: str) -> None:
        """Delete a consumer with its allocations; raises `NotFound` if it does not exist."""
        providers = self._recent_claims.take(uuid)
        try:
            if providers:
                self.batcher.submit(Release(uuid, providers))
            else:
                self._release(uuid)
        except OutcomeUnknown:
            if not outcomes.is_released(self._database, uuid):
                raise

    def _change_one(self, change: ClaimOrRelease) -> Refusal | None:
        if isinstance(change, Release):
            self._release(change.consumer_uuid)
            return None
        return procedures.claim(self._database, [change], compare_generations=True)

    def _release(self, uuid: str) -> None:
        if not procedures.delete_consumer(self._database, uuid):
            raise NotFound(f"No allocations for consumer '{uuid}'")

    def _change_batch(self, changes: Sequence[ClaimOrRelease]) -> bool:
        """Return whether all changes were made; a value that cannot be stored refuses all of them."""
        claims = [change for change in changes if isinstance(change, Claim)]
        releases = [change for change in changes if isinstance(change, Release)]
        try:
            if not releases:
                return procedures.claim_batch(self._database, claims) is None
            uuids = [release.consumer_uuid for release in releases]
            return procedures.claim_and_release(self._database, claims, uuids, releases[0].providers)
        except Invalid:
            return False


def _is_of_new_consumer(claim: Claim) -> bool:
    """Return whether the claim is granted only to a new consumer: it then replaces no allocations."""
    return claim.generation is None and bool(claim.allocations)
