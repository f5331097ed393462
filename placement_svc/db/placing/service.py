"""Search and claim: finds candidates for consumers, and claims them at once (`docs/spec/extensions.md 5`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TypeVar
from weakref import WeakValueDictionary

from sqlalchemy import Connection, func, select

from placement_svc.db import allocations, consumers, names, providers
from placement_svc.db.claims.refusal import Refusal
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.connections.cancellation import set_deadline
from placement_svc.db.connections.engine import Database
from placement_svc.db.connections.session_options import allow_idle
from placement_svc.db.placing.batch import LostRace
from placement_svc.db.placing.batcher import PlacingBatcher
from placement_svc.db.placing.search import (
    PlacementSearchOptions,
    find_placements,
    find_placements_and_suppliers,
)
from placement_svc.db.placing.stored_rule import StoredRule
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.allocations import (
    Claim,
    InventoryUsages,
    check_generations,
    check_inventories,
    check_providers,
    resource_classes_of,
)
from placement_svc.domain.errors import Conflict, Invalid
from placement_svc.domain.execution import request_stats
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.fair_semaphore import FairSemaphore
from placement_svc.domain.placing.placements import PlacementRequest, Placements

T = TypeVar("T")

MAX_UNLOCKED_ATTEMPTS = 3
"""The number of attempts that lock only what they claim; later ones are exclusive."""

SPARE_TREES = 10
"""The trees that the first exclusive attempt locks besides those that its consumers need.

Others may claim some between its search and its locks. Each further attempt locks as many trees more.
"""

CLAIM_LOCK = 8780
"""The key of the advisory lock of exclusive attempts."""


@dataclass(frozen=True, kw_only=True)
class PlacingOptions:
    """How a call is processed: the options of its searches, and the rule that it has to keep."""

    search: SearchOptions
    rule: StoredRule | None = None


@dataclass(frozen=True)
class PlacingResult:
    """The placements of a call, and the number of snapshots that were searched for them."""

    placements: Placements
    attempts: int


class _LockingQueues:
    """The queues of the attempts that search while they hold locks.

    Such an attempt uses two connections, so at most `max_attempts` of them run. Those for the same placement
    group, and exclusive ones, run one after the other: they would wait for the lock of the group, or for
    the claim lock, and keep slots and connections.
    """

    def __init__(self, max_attempts: int) -> None:
        self._attempts = FairSemaphore(max_attempts)
        self._exclusive = FairSemaphore()
        self._lock = Lock()
        self._by_group: WeakValueDictionary[str, FairSemaphore] = WeakValueDictionary()

    @contextmanager
    def entered(self, rule: StoredRule | None, deadline: Deadline, *, is_exclusive: bool) -> Iterator[None]:
        """Wait in the queues, without a slot, and then run; raise what `Deadline.check` raises."""
        with ExitStack() as stack:
            queues = [self._of_group(rule.uuid)] if rule else []
            queues += [self._exclusive] if is_exclusive else []
            for queue in [*queues, self._attempts]:
                deadline.wait_for(queue)
                stack.callback(queue.release)
            yield

    def _of_group(self, uuid: str) -> FairSemaphore:
        """Return the queue of a group, which exists as long as a request uses it."""
        with self._lock:
            return self._by_group.setdefault(uuid, FairSemaphore())


class PlacingService:
    """Places consumers. One instance per process and database."""

    def __init__(self, database: Database, claim_service: ClaimService) -> None:
        self._database = database
        self._claim_service = claim_service
        self.batcher = PlacingBatcher()
        self._queues = _LockingQueues(max(1, database.engine.pool.size() // 2))  # type: ignore[attr-defined]

    def find(self, wanted: PlacementRequest, options: PlacingOptions) -> PlacingResult:
        """Return the placements that `place` would make now, without a change or a lock.

        Raises the same errors.
        """
        search = PlacementSearchOptions(search=options.search, rule=options.rule, checks_generations=True)
        return PlacingResult(_read(self._database, find_placements, wanted, search), 1)

    def place(self, wanted: PlacementRequest, options: PlacingOptions) -> PlacingResult:
        """Place as many consumers as possible, at least `wanted.min_count`, and claim in one transaction.

        Raises `ConcurrentUpdate` for an outdated consumer generation, `Invalid` for an unknown trait or
        resource class, `NoCandidates` if a snapshot has too few candidates, and `Unavailable` at the
        deadline.
        """
        call = _Call(self._database, self._claim_service, self._queues, wanted, options)
        return call.run(self.batcher if _may_join_batch(wanted, options) else None)


class _Call:
    """One call: attempts to place its consumers until one succeeds or is refused. A `PlacingCall`."""

    def __init__(
        self,
        database: Database,
        claim_service: ClaimService,
        queues: _LockingQueues,
        wanted: PlacementRequest,
        options: PlacingOptions,
    ) -> None:
        self.wanted = wanted
        self.deadline = options.search.deadline
        self._database = database
        self._claim_service = claim_service
        self._queues = queues
        self._options = options
        self.searches = 0

    def run(self, batcher: PlacingBatcher | None) -> PlacingResult:
        """Return the result of the first attempt that claims what it has found.

        With `batcher`, an attempt may be one for several calls.
        """
        attempts = 0
        while True:
            self.deadline.run(self.deadline.check)
            spare_trees = SPARE_TREES * max(0, attempts - MAX_UNLOCKED_ATTEMPTS + 1)
            attempts += 1
            try:
                if spare_trees or self._options.rule is not None:
                    placements = self._place_locked(spare_trees)
                elif batcher is not None:
                    placements = batcher.place(self)
                else:
                    placements = self.place_alone()
            except LostRace:
                request_stats.current().retries += 1
                continue
            return PlacingResult(placements, self.searches)

    def place_alone(self) -> Placements:
        """Search, then claim what the search has found; raise `LostRace` if that is not free any more."""
        return self.claim_found(self.find(self.wanted))

    def find(self, wanted: PlacementRequest) -> Placements:
        """Return the placements of consumers in one snapshot."""
        return self._search(find_placements, wanted, PlacementSearchOptions(search=self._options.search))

    def claim_found(self, placements: Placements) -> Placements:
        """Claim what a search has found, and return it; raise `LostRace` if that is not free any more."""
        claims = placements.claims
        if self.wanted.moves:
            self._database.write(_replace, claims)
        elif refusal := self.try_to_claim(claims):
            if refusal.is_generation_conflict:
                check_generations(claims, refusal.generations)
            raise LostRace
        return placements

    def try_to_claim(self, claims: list[Claim]) -> Refusal | None:
        """Claim for new consumers: for all, or for none, and return the refusal."""
        return self._claim_service.try_to_replace(claims, compare_generations=True)

    def _place_locked(self, spare_trees: int) -> Placements:
        """Lock the rule and the consumers, search, then lock and claim what the search has found.

        With `spare_trees`, the attempt is exclusive. It locks so many trees besides, and if what it has found
        is not free any more, it claims what another search finds among all that it has locked. Exclusive
        attempts wait for each other before they search, so they take nothing from each other meanwhile.
        """
        with self._queues.entered(self._options.rule, self.deadline, is_exclusive=spare_trees > 0):
            return self._database.write(self._place_in_transaction, spare_trees)

    def _place_in_transaction(self, connection: Connection, spare_trees: int) -> Placements:
        rule, wanted = self._options.rule, self.wanted
        # It does nothing while another connection searches.
        allow_idle(connection, self.deadline.remaining())
        if rule is not None:
            rule.lock(connection)
        if spare_trees:
            connection.execute(select(func.pg_advisory_xact_lock(CLAIM_LOCK)))
        locked = consumers.lock_and_increment(connection, wanted.consumers)
        consumer_ids = {uuid: consumer.id for uuid, consumer in locked.items()}
        # The search does not wait for the slots of other requests, which may wait for these locks.
        search = replace(self._options.search, deadline=replace(self.deadline, slot=None))
        options = PlacementSearchOptions(
            search=search, rule=rule, is_repeatable=spare_trees > 0, spare_trees=spare_trees
        )
        placements, suppliers = self._search(find_placements_and_suppliers, wanted, options)
        # As in a dry run, an unknown name is reported before an outdated generation.
        check_generations(wanted.consumers, _generations(locked))
        provider_ids = _lock_providers(
            connection, suppliers if spare_trees else _named_providers(placements.claims)
        )
        names.resource_class_ids(connection, resource_classes_of(placements.claims), lock=True)
        usages = allocations.release(connection, list(consumer_ids.values()), provider_ids)
        if spare_trees and not _fit(placements.claims, provider_ids, usages):
            placements = self._search(find_placements, wanted, options)
        _allocate(connection, placements.claims, consumer_ids, provider_ids, usages)
        if rule is not None:
            rule.save(connection, placements, consumer_ids)
        return placements

    def _search(
        self,
        search: Callable[[Connection, PlacementRequest, PlacementSearchOptions], T],
        wanted: PlacementRequest,
        options: PlacementSearchOptions,
    ) -> T:
        self.searches += 1
        return _read(self._database, search, wanted, options)


def _may_join_batch(wanted: PlacementRequest, options: PlacingOptions) -> bool:
    """Return whether a request may be placed together with others: for one new consumer, in any order.

    Without an order, each candidate is as good as any other, also if that of another request is not claimed.
    """
    request = wanted.request
    has_order = request.order_by is not None or bool(request.preferred)
    return options.rule is None and len(wanted.consumers) == 1 and not wanted.moves and not has_order


def _read(
    database: Database,
    search: Callable[[Connection, PlacementRequest, PlacementSearchOptions], T],
    wanted: PlacementRequest,
    options: PlacementSearchOptions,
) -> T:
    """Return the result of a search in one snapshot, which is canceled at the deadline."""
    deadline = options.search.deadline
    set_deadline(deadline)
    try:
        return deadline.run(partial(database.read, search, wanted, options))
    finally:
        set_deadline(None)


def _generations(locked: Mapping[str, consumers.LockedConsumer]) -> dict[str, int | None]:
    return {uuid: consumer.generation for uuid, consumer in locked.items()}


def _named_providers(claims: Iterable[Claim]) -> list[str]:
    return list(dict.fromkeys(uuid for claim in claims for uuid in claim.allocations))


def _lock_providers(connection: Connection, uuids: Iterable[str]) -> dict[str, int]:
    """Lock providers and return the ids of those that exist, by uuid."""
    return {uuid: provider.id for uuid, provider in providers.lock_all(connection, uuids).items()}


def _replace(connection: Connection, claims: list[Claim]) -> None:
    """Replace the allocations of consumers, but in no inventory that is used beyond its capacity.

    Raises `ConcurrentUpdate` for an outdated generation, and `LostRace` if an amount is not free.
    """
    locked = consumers.lock_and_increment(connection, claims)
    check_generations(claims, _generations(locked))
    provider_ids = _lock_providers(connection, _named_providers(claims))
    names.resource_class_ids(connection, resource_classes_of(claims), lock=True)
    consumer_ids = {uuid: consumer.id for uuid, consumer in locked.items()}
    usages = allocations.release(connection, list(consumer_ids.values()), provider_ids)
    _allocate(connection, claims, consumer_ids, provider_ids, usages)


def _fit(claims: list[Claim], provider_ids: Mapping[str, int], usages: InventoryUsages) -> bool:
    """Return whether the locked providers have all amounts of claims free."""
    try:
        check_providers(claims, provider_ids)
        check_inventories(claims, usages, tolerates_overuse=False)
    except (Conflict, Invalid):
        return False
    return True


def _allocate(
    connection: Connection,
    claims: list[Claim],
    consumer_ids: Mapping[str, int],
    provider_ids: Mapping[str, int],
    usages: InventoryUsages,
) -> None:
    """Insert the allocations of claims on locked providers; delete the consumers that get none."""
    if not _fit(claims, provider_ids, usages):
        raise LostRace
    placed = {claim.consumer_uuid for claim in claims}
    allocations.allocate(
        connection,
        claims,
        consumers_to_delete=[id_ for uuid, id_ in consumer_ids.items() if uuid not in placed],
        providers_to_increment=[provider_ids[uuid] for uuid in _named_providers(claims)],
    )
