"""Requests of one kind that wait for each other: one search and one claim place all of them."""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Condition, Event
from time import monotonic, perf_counter
from typing import Protocol

from placement_svc.db.claims.refusal import Refusal
from placement_svc.domain.allocations import Claim, check_generations, check_inventories, check_providers
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    Invalid,
    NoCandidates,
    OutcomeUnknown,
    Unavailable,
)
from placement_svc.domain.groups import CandidatesRequest
from placement_svc.domain.placements import Placement, PlacementRequest, Placements
from placement_svc.observability import request_stats

MAX_BATCH = 32
"""Requests of a batch, whose hosts one transaction locks."""

MAX_GATHERING = 0.003
"""Seconds for which a batch waits for the clients of the one before, which often come again at once."""

MAX_WAIT = 0.4
"""Seconds that a request waits for the search of others; it then goes on by itself."""

CHECK_INTERVAL = 0.1
"""Seconds between two checks of a waiting request whether its deadline has passed or its client has gone."""


class LostRace(Exception):
    """Another request has used what this one has found, or could have found."""


class PlacingCall(Protocol):
    """One request; its methods run in the thread that calls them."""

    wanted: PlacementRequest
    deadline: Deadline
    searches: int
    """The snapshots that were searched for it."""

    def find(self, wanted: PlacementRequest) -> Placements:
        """Search one snapshot; raise `NoCandidates` if it has too few candidates."""

    def try_to_claim(self, claims: list[Claim]) -> Refusal | None:
        """Claim all or none; return the refusal."""

    def claim_found(self, placements: Placements) -> Placements:
        """Claim what a search has found, and return it."""

    def place_alone(self) -> Placements:
        """Search, and claim what the search has found."""


@dataclass(eq=False)
class _Member:
    """A request of a batch. `ready` is set when it leads the next batch, or when its batch has ended.

    `is_claiming` is whether its claim has been submitted, so that it cannot withdraw any more.
    """

    call: PlacingCall
    ready: Event = field(default_factory=Event)
    leads: bool = False
    searches: int = 0
    """The snapshots that the leader has searched for it."""

    is_paused: bool = False
    """Whether others have its turn."""

    is_alone: bool = False
    """Whether it searches by itself: it waits no longer, or the search of the batch has failed."""

    is_claiming: bool = False
    is_refused: bool = False
    is_granted: bool = False
    placement: Placement | None = None
    error: BaseException | None = None

    @property
    def claim(self) -> Claim:
        """The claim of what the search of the batch has found."""
        assert self.placement is not None
        return self.placement.claim

    @property
    def is_done(self) -> bool:
        """Whether the batch has done all that the request needs."""
        return not self.is_alone and (self.is_granted or self.is_refused or self.error is not None)

    def pause(self) -> None:
        """Let others have the turn of the request while it waits for them."""
        if not self.is_paused:
            self.is_paused = True
            self.call.deadline.pause()

    def resume(self) -> None:
        """Get a turn again; raise what `Deadline.resume` raises."""
        if self.is_paused:
            self.is_paused = False
            self.call.deadline.resume()

    def finish(self) -> Placements:
        """Return the placement that the batch has claimed; do by itself what the batch has not done.

        Raises `LostRace` if others get what was found.
        """
        if self.is_alone:
            return self.call.place_alone()
        if self.error is not None:
            raise self.error
        if self.is_refused:
            raise NoCandidates(placeable=0, wanted=1, explanation=self.call.wanted.explanation)
        if self.placement is None:
            raise LostRace
        placements = Placements([self.placement])
        return placements if self.is_granted else self.call.claim_found(placements)


@dataclass(frozen=True)
class _Ended:
    """A batch that has ended at a time (monotonic clock).

    `expected` is the size of the next batch if the clients of this one come again.
    """

    kind: Hashable
    time: float
    expected: int


class PlacingBatcher:
    """Places requests of the same kind together, each of which places one new consumer.

    While a batch of requests is placed, further requests of its kind wait. When it ends, they are the next
    batch, and the thread of the first one, the leader, places all: one search, whose snapshot is taken after
    each of them has arrived, and one claim. Each request gets a response that it could have got alone.

    The leader first waits until the batch is as large as expected, for `MAX_GATHERING` at most. Without that,
    a few clients that send one request after the other would form two groups that take turns, and a search
    would serve only half of them.
    """

    def __init__(self) -> None:
        self._condition = Condition()
        self._waiting: dict[Hashable, list[_Member]] = {}
        """The requests that wait, by kind; a kind is a key while a batch of it is gathered or placed."""

        self._last = _Ended((), 0.0, 0)

    def place(self, call: PlacingCall) -> Placements:
        """Place the consumer of a request, alone or in a batch; raise `LostRace` if it has to try again."""
        kind = _kind(call.wanted.request)
        member = _Member(call)
        if not self._join(kind, member):
            return call.place_alone()
        if not member.leads:
            self._wait(kind, member)
        if member.leads:
            return self._lead(kind, member)
        call.searches += member.searches
        if not member.is_done:
            member.resume()
        return member.finish()

    def waiting(self) -> int:
        """Return how many requests wait for a batch to end."""
        with self._condition:
            return sum(map(len, self._waiting.values()))

    def _join(self, kind: Hashable, member: _Member) -> bool:
        """Add a request to those that wait; let it lead a batch if none is gathered or placed.

        Return False if a request for the same consumer waits.
        """
        with self._condition:
            waiting = self._waiting.get(kind)
            if waiting is None:
                member.leads = True
                self._waiting[kind] = [member]
                return True
            if any(_uuid(other) == _uuid(member) for other in waiting):
                return False
            waiting.append(member)
            if self._is_gathered(kind):
                self._condition.notify_all()
            return True

    def _wait(self, kind: Hashable, member: _Member) -> None:
        """Wait until a request leads or its batch has ended; withdraw it if that takes too long.

        Others have its turn meanwhile, so that further requests can join the batch.
        """
        member.pause()
        started = perf_counter()
        end = monotonic() + MAX_WAIT
        while not member.ready.wait(CHECK_INTERVAL):
            is_over = monotonic() >= end or member.call.deadline.is_over()
            if is_over and self._withdraw(kind, member):
                break
        request_stats.current().statement_seconds += perf_counter() - started

    def _withdraw(self, kind: Hashable, member: _Member) -> bool:
        """Withdraw a request unless it leads, is being claimed or is done; return whether that is so."""
        with self._condition:
            if member.is_claiming or member.ready.is_set():
                return False
            member.is_alone = True
            with suppress(ValueError):
                self._waiting[kind].remove(member)
            return True

    def _lead(self, kind: Hashable, leader: _Member) -> Placements:
        """Place a batch, then let the next one start."""
        batch = self._gather(kind, leader)
        try:
            leader.resume()
            if len(batch) == 1:
                return leader.call.place_alone()
            _search(leader.call, batch)
            self._claim(leader.call, batch)
        except BaseException:
            for member in batch:
                member.is_alone = not member.is_claiming
            raise
        finally:
            for member in batch:
                member.ready.set()
            self._start_next(kind, len(batch))
        return leader.finish()

    def _gather(self, kind: Hashable, leader: _Member) -> list[_Member]:
        """Return the requests of a batch, the leader among them, once as many have come as expected."""
        with self._condition:
            seconds = self._last.time + MAX_GATHERING - monotonic()
            if seconds > 0 and not self._is_gathered(kind):
                leader.pause()
                self._condition.wait_for(lambda: self._is_gathered(kind), seconds)
            waiting = self._waiting[kind]
            self._waiting[kind] = waiting[MAX_BATCH:]
            return waiting[:MAX_BATCH]

    def _is_gathered(self, kind: Hashable) -> bool:
        """Return whether as many requests of a kind wait as the last batch lets expect."""
        return self._last.kind != kind or len(self._waiting[kind]) >= self._last.expected

    def _start_next(self, kind: Hashable, size: int) -> None:
        """Let the requests that wait be placed after a batch of this size; forget the kind if none waits."""
        with self._condition:
            waiting = self._waiting[kind]
            self._last = _Ended(kind, monotonic(), min(size + len(waiting), MAX_BATCH))
            if waiting:
                waiting[0].leads = True
                waiting[0].ready.set()
            else:
                del self._waiting[kind]

    def _claim(self, call: PlacingCall, batch: Sequence[_Member]) -> None:
        """Claim what the search has found; after a refusal, once more without the claims that cause it."""
        with self._condition:
            claiming = [each for each in batch if each.placement is not None and not each.is_alone]
            for each in claiming:
                each.is_claiming = True
        refusal = _claim_together(call, claiming)
        if refusal is not None:
            granted = [each for each in claiming if _is_granted(each, refusal)]
            if len(granted) < len(claiming):
                _claim_together(call, granted)


def _search(call: PlacingCall, batch: Sequence[_Member]) -> None:
    """Find placements for the first members of a batch, or refuse all if there is none for the first."""
    consumers = [consumer for each in batch for consumer in each.call.wanted.consumers]
    for each in batch:
        each.searches = 1
    try:
        found = call.find(replace(call.wanted, consumers=consumers, min_count=1))
    except NoCandidates:
        for each in batch:
            each.is_refused = True
    except (ConcurrentUpdate, Invalid):
        # It may be the error of another member.
        for each in batch:
            each.is_alone = True
    else:
        for each, placement in zip(batch, found.placed, strict=False):
            each.placement = placement


def _claim_together(call: PlacingCall, members: Sequence[_Member]) -> Refusal | None:
    """Claim what was found for members: for all, or for none, and return the refusal."""
    if not members:
        return None
    try:
        refusal = call.try_to_claim([each.claim for each in members])
    except OutcomeUnknown as error:
        for each in members:
            each.error = error
        return None
    except (Invalid, Unavailable):
        # Nothing was claimed. It may be the error of another member, so each claims by itself.
        return None
    if refusal is None:
        for each in members:
            each.is_granted = True
    return refusal


def _is_granted(member: _Member, refusal: Refusal) -> bool:
    """Return whether a member's claim is no reason for a refusal.

    If the claim would be refused alone, because others have used the amounts, forget the placement.
    """
    try:
        check_generations([member.claim], refusal.generations)
        if not refusal.is_generation_conflict:
            check_providers([member.claim], refusal.provider_ids)
            check_inventories([member.claim], refusal.usages)
    except ConcurrentUpdate:
        return False
    except (Conflict, Invalid):
        member.placement = None
        return False
    return True


def _uuid(member: _Member) -> str:
    return member.call.wanted.consumers[0].consumer_uuid


def _kind(request: CandidatesRequest) -> Hashable:
    """Return a key that only equal requests have."""
    return replace(request, groups=()), tuple(
        (
            group.suffix,
            tuple(group.resources.items()),
            group.required,
            group.member_of,
            group.in_tree,
            group.not_in_tree,
        )
        for group in request.groups
    )
