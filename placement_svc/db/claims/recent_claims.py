"""The providers of recent claims: a release names only its consumer, and is batched by its providers."""

from collections.abc import Sequence
from threading import Lock

from placement_svc.db.claims.batcher import ProviderUuids
from placement_svc.domain.allocations import Claim

MAX_CONSUMERS = 10_000
"""Consumers whose providers a worker remembers; they take about 6 MB, and at most some 25 MB."""

MAX_PROVIDERS = 16
"""The most providers of a consumer that a worker remembers; hardly any other consumer has the same ones."""


class RecentClaims:
    """The providers of the last claim of each of `MAX_CONSUMERS` consumers that `ClaimService` has granted.

    It records no claim of more than `MAX_PROVIDERS`. Other workers, moves, and claims into placement groups
    change allocations too, so the providers of a consumer may be others by now.
    """

    def __init__(self) -> None:
        self._providers: dict[str, ProviderUuids] = {}
        self._lock = Lock()

    def add(self, claims: Sequence[Claim]) -> None:
        """Record granted claims; forget the oldest ones beyond `MAX_CONSUMERS`."""
        with self._lock:
            for claim in claims:
                self._providers.pop(claim.consumer_uuid, None)
                if 0 < len(claim.allocations) <= MAX_PROVIDERS:
                    self._providers[claim.consumer_uuid] = frozenset(claim.allocations)
            while len(self._providers) > MAX_CONSUMERS:
                del self._providers[next(iter(self._providers))]

    def take(self, consumer_uuid: str) -> ProviderUuids | None:
        """Return the providers of a consumer, None if they are unknown, and forget them."""
        with self._lock:
            return self._providers.pop(consumer_uuid, None)
