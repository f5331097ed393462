"""Batches of claims and releases: those that would wait for the same row locks are one transaction."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event, Lock
from time import perf_counter
from typing import Any

from placement_svc.db.claims.refusal import Refusal
from placement_svc.domain.allocations import Claim
from placement_svc.domain.execution import request_stats

ProviderUuids = frozenset[str]


@dataclass(frozen=True, eq=False)
class Release:
    """A request to delete a consumer, which was last known to have allocations on `providers`."""

    consumer_uuid: str
    providers: ProviderUuids


ClaimOrRelease = Claim | Release


@dataclass(eq=False)
class Batch:
    """Changes of different consumers on the same providers; a batch of one change is that change alone.

    Changes are added while the preceding batch on these providers runs. When that ends, `preceding_ended` is
    set, and no change is added any more. Then the thread of the first change, which is the `leader`, runs the
    batch; the threads of the other changes wait for the result, `is_done`.
    """

    changes: dict[str, ClaimOrRelease] = field(default_factory=dict)
    """Changes by consumer uuid, in the order in which they were submitted."""

    leader: ClaimOrRelease | None = None
    """The first change; its thread runs the batch. None until it is added."""

    preceding_ended: Event = field(default_factory=Event)
    is_done: "Future[bool]" = field(default_factory=Future)

    def add(self, change: ClaimOrRelease) -> None:
        """Add a change; the first one leads."""
        self.changes[change.consumer_uuid] = change
        self.leader = self.leader or change

    def run(self, change_batch: Callable[[Sequence[Any]], bool]) -> bool:
        """Make all changes or none, and return which. All threads get the result, or the exception."""
        try:
            is_done = change_batch(list(self.changes.values()))
        except BaseException as error:
            self.is_done.set_exception(error)
            raise
        self.is_done.set_result(is_done)
        return is_done


class ClaimBatcher:
    """Commits claims of new consumers, and releases, that wait for the same providers as one batch.

    While a change runs, further changes on exactly the same set of providers form a batch, which runs next.
    `change_one` returns the refusal of a claim, None if it is granted; for a release, it returns None or
    raises the error of the client. `change_batch` makes all changes and returns True, or none and returns
    False; each is then made by itself, so that every client gets the response that it would have got without
    the batch. If the batch raises an error, all its clients get it. A thread's wait for its batch counts as
    time of SQL statements in the request statistics.
    """

    def __init__(
        self, change_one: Callable[[Any], Refusal | None], change_batch: Callable[[Sequence[Any]], bool]
    ) -> None:
        self._change_one = change_one
        self._change_batch = change_batch
        self._lock = Lock()
        self._next: dict[ProviderUuids, Batch | None] = {}
        """The batch that runs next, None if no change waits, by set of providers.

        A set of providers is a key exactly while a batch on these providers runs or is about to run.
        """

    def submit(self, change: ClaimOrRelease) -> Refusal | None:
        """Claim or release, alone or in a batch; return the refusal, None if the change is made."""
        providers = change.providers if isinstance(change, Release) else frozenset(change.allocations)
        with self._lock:
            must_wait = providers in self._next
            batch = self._join(providers, change) if must_wait else None
            if not must_wait:
                self._next[providers] = None
        if not must_wait:
            return self._lead(providers, change)
        if batch is None:
            return self._change_one(change)
        if batch.leader is change:
            _wait(batch.preceding_ended.wait)
            return self._lead(providers, change, batch)
        return None if _wait(batch.is_done.result) else self._change_one(change)

    def waiting(self) -> int:
        """Return how many changes wait for another one."""
        with self._lock:
            return sum(len(batch.changes) for batch in self._next.values() if batch)

    def _join(self, providers: ProviderUuids, change: ClaimOrRelease) -> Batch | None:
        """Add a change to the next batch and return the batch; the caller holds the lock.

        Return None if the batch has a change of the same consumer already.
        """
        batch = self._next[providers] or Batch()
        if change.consumer_uuid in batch.changes:
            return None
        batch.add(change)
        self._next[providers] = batch
        return batch

    def _lead(
        self, providers: ProviderUuids, change: ClaimOrRelease, batch: Batch | None = None
    ) -> Refusal | None:
        """Run a batch, or a change that did not wait, then let the next batch start."""
        try:
            if batch and len(batch.changes) > 1 and batch.run(self._change_batch):
                return None
            return self._change_one(change)
        finally:
            self._start_next(providers)

    def _start_next(self, providers: ProviderUuids) -> None:
        """Let the leader of the next batch run it; forget the providers if no change waits."""
        with self._lock:
            batch = self._next.pop(providers)
            if batch:
                self._next[providers] = None
        if batch:
            batch.preceding_ended.set()


def _wait(wait: Callable[[], Any]) -> Any:
    """Call a function that waits for other threads; count its time as time of SQL statements."""
    started = perf_counter()
    try:
        return wait()
    finally:
        request_stats.current().statement_seconds += perf_counter() - started
