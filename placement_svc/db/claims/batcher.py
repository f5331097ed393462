"""Batches of claims: claims that would wait for the same row locks are committed in one transaction."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event, Lock
from time import perf_counter
from typing import Any

from placement_svc.db.claims.refusal import Refusal
from placement_svc.domain.allocations import Claim
from placement_svc.observability import request_stats

ProviderUuids = frozenset[str]


@dataclass(eq=False)
class Batch:
    """Claims of different consumers on the same providers; a batch of one claim is that claim alone.

    Claims are added while the preceding batch on these providers runs. When that ends, `preceding_ended` is
    set, and no claim is added any more. Then the thread of the first claim, which is the `leader`, runs the
    batch; the threads of the other claims wait for the result, `is_granted`.
    """

    claims: dict[str, Claim] = field(default_factory=dict)
    """Claims by consumer uuid, in the order in which they were submitted."""

    leader: Claim | None = None
    """The first claim; its thread runs the batch. None while the batch is empty."""

    preceding_ended: Event = field(default_factory=Event)
    is_granted: "Future[bool]" = field(default_factory=Future)

    def add(self, claim: Claim) -> None:
        """Add a claim; the first one leads."""
        self.claims[claim.consumer_uuid] = claim
        self.leader = self.leader or claim

    def run(self, claim_batch: Callable[[Sequence[Claim]], bool]) -> bool:
        """Claim all or none, and return which. The threads of all claims get the result, or the exception."""
        try:
            is_granted = claim_batch(list(self.claims.values()))
        except BaseException as error:
            self.is_granted.set_exception(error)
            raise
        self.is_granted.set_result(is_granted)
        return is_granted


class ClaimBatcher:
    """Commits claims of new consumers that wait for the same providers as one batch.

    While a claim runs, further claims on exactly the same set of providers form a batch, which runs next.
    `claim_one` returns the refusal of a claim, None if it is granted. `claim_batch` grants all claims and
    returns True, or none and returns False; each is then claimed by itself, so that every client gets the
    response that it would have got without the batch. A thread's wait for its batch counts as time of SQL
    statements in the request statistics.
    """

    def __init__(
        self, claim_one: Callable[[Claim], Refusal | None], claim_batch: Callable[[Sequence[Claim]], bool]
    ) -> None:
        self._claim_one = claim_one
        self._claim_batch = claim_batch
        self._lock = Lock()
        self._next: dict[ProviderUuids, Batch] = {}
        """The batch that runs next, perhaps still empty, by set of providers.

        A set of providers is a key exactly while a batch on these providers runs or is about to run.
        """

    def submit(self, claim: Claim) -> Refusal | None:
        """Claim, alone or in a batch; return the refusal, None if the claim is granted."""
        providers = frozenset(claim.allocations)
        batch = self._join(providers, claim)
        if batch is None:
            return self._claim_one(claim)
        if batch.leader is claim:
            return self._lead(providers, batch, claim)
        return None if _wait(batch.is_granted.result) else self._claim_one(claim)

    def waiting(self) -> int:
        """Return how many claims wait for another one."""
        with self._lock:
            return sum(len(batch.claims) for batch in self._next.values())

    def _join(self, providers: ProviderUuids, claim: Claim) -> Batch | None:
        """Add a claim to the next batch, or to a new one that can run at once, and return the batch.

        Return None if the next batch has a claim of the same consumer already.
        """
        with self._lock:
            is_running = providers in self._next
            batch = self._next[providers] if is_running else Batch()
            if not is_running:
                batch.preceding_ended.set()
                self._next[providers] = Batch()
            elif claim.consumer_uuid in batch.claims:
                return None
            batch.add(claim)
        return batch

    def _lead(self, providers: ProviderUuids, batch: Batch, claim: Claim) -> Refusal | None:
        """Run a batch after the preceding one, then let the next one start."""
        _wait(batch.preceding_ended.wait)
        try:
            if len(batch.claims) > 1 and batch.run(self._claim_batch):
                return None
            return self._claim_one(claim)
        finally:
            self._start_next(providers)

    def _start_next(self, providers: ProviderUuids) -> None:
        """Let the leader of the next batch run it; forget the providers if no claim waits."""
        with self._lock:
            batch = self._next.pop(providers)
            if batch.claims:
                self._next[providers] = Batch()
        batch.preceding_ended.set()


def _wait(wait: Callable[[], Any]) -> Any:
    """Call a function that waits for other threads; count its time as time of SQL statements."""
    started = perf_counter()
    try:
        return wait()
    finally:
        request_stats.current().statement_seconds += perf_counter() - started
