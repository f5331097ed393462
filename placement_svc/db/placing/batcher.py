"""The queue of requests of one kind that wait for each other, to be placed as one batch."""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from threading import Condition
from time import monotonic, perf_counter

from placement_svc.db.placing.batch import BatchMember, PlacingCall, claim_for, search_for
from placement_svc.domain.execution import request_stats
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from placement_svc.domain.placing.placements import Placements

MAX_BATCH = 32
"""Requests of a batch, whose hosts one transaction locks."""

MAX_GATHERING = 0.003
"""Seconds for which a batch waits for the clients of the one before, which often come again at once."""

MAX_WAIT = 0.4
"""Seconds that a request waits for the search of others; it then goes on by itself."""

CHECK_INTERVAL = 0.1
"""Seconds between two checks of a waiting request whether its deadline has passed or its client has gone."""


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
    a few clients that send one request after the other would form two groups that alternate, and a search
    would serve only half of them.
    """

    def __init__(self) -> None:
        self._condition = Condition()
        self._waiting: dict[Hashable, list[BatchMember]] = {}
        """The requests that wait, by kind; a kind is a key while a batch of it is gathered or placed."""

        self._last = _Ended((), 0.0, 0)

    def place(self, call: PlacingCall) -> Placements:
        """Place the consumer of a request, alone or in a batch; raise `LostRace` if it has to try again."""
        kind = _kind(call.wanted.request)
        member = BatchMember(call)
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

    def _join(self, kind: Hashable, member: BatchMember) -> bool:
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

    def _wait(self, kind: Hashable, member: BatchMember) -> None:
        """Wait until a request leads or its batch has ended; withdraw it if that takes too long.

        Others have its slot meanwhile, so that further requests can join the batch.
        """
        member.pause()
        started = perf_counter()
        end = monotonic() + MAX_WAIT
        while not member.ready.wait(CHECK_INTERVAL):
            is_over = monotonic() >= end or member.call.deadline.is_over()
            if is_over and self._withdraw(kind, member):
                break
        request_stats.current().statement_seconds += perf_counter() - started

    def _withdraw(self, kind: Hashable, member: BatchMember) -> bool:
        """Withdraw a request unless it leads, is being claimed or is done; return whether that is so."""
        with self._condition:
            if member.is_claiming or member.ready.is_set():
                return False
            member.is_alone = True
            with suppress(ValueError):
                self._waiting[kind].remove(member)
            return True

    def _lead(self, kind: Hashable, leader: BatchMember) -> Placements:
        """Place a batch, then let the next one start."""
        batch = self._gather(kind, leader)
        try:
            leader.resume()
            if len(batch) == 1:
                return leader.call.place_alone()
            search_for(leader.call, batch)
            claim_for(leader.call, self._begin_claim(batch))
        except BaseException:
            for member in batch:
                member.is_alone = not member.is_claiming
            raise
        finally:
            for member in batch:
                member.ready.set()
            self._start_next(kind, len(batch))
        return leader.finish()

    def _gather(self, kind: Hashable, leader: BatchMember) -> list[BatchMember]:
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
        """Return whether as many requests of a kind wait as expected after the last batch."""
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

    def _begin_claim(self, batch: Sequence[BatchMember]) -> list[BatchMember]:
        """Return the requests to claim for, which cannot withdraw any more."""
        with self._condition:
            claiming = [each for each in batch if each.placement is not None and not each.is_alone]
            for each in claiming:
                each.is_claiming = True
            return claiming


_all_but_resources = attrgetter(*({each.name for each in fields(RequestGroup)} - {"resources"}))


def _uuid(member: BatchMember) -> str:
    return member.call.wanted.consumers[0].consumer_uuid


def _kind(request: CandidatesRequest) -> Hashable:
    """Return a key that only equal requests have; the amounts of a group are a mapping, which has no hash."""
    return replace(request, groups=()), tuple(
        (_all_but_resources(group), tuple(group.resources.items())) for group in request.groups
    )
