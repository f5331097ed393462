"""Requests that wait for a request of the same kind are placed as one batch."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Event, Semaphore

import pytest

from placement_svc.db.claims.refusal import Refusal
from placement_svc.db.placing import batcher
from placement_svc.db.placing.batch import LostRace
from placement_svc.db.placing.batcher import PlacingBatcher
from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import (
    ClientDisconnected,
    ConcurrentUpdate,
    Invalid,
    NoCandidates,
    OutcomeUnknown,
    Unavailable,
)
from placement_svc.domain.execution import request_stats
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from placement_svc.domain.placing.placements import Placement, PlacementRequest, Placements, Root
from tests.support.service import wait_until
from tests.support.slots import RecordedSlot

FIRST = "first"
REQUEST = CandidatesRequest((RequestGroup("", {"VCPU": 1}),))


class Cloud:
    """Hosts without an order, of which each search finds the first ones; records searches and claims.

    The request for the consumer `FIRST` takes until `may_finish`, so that others wait for it.
    """

    def __init__(self) -> None:
        self.batcher = PlacingBatcher()
        self.hosts = [f"host{number}" for number in range(9)]
        self.searches: list[list[str]] = []
        self.claims: list[list[str]] = []
        self.alone: list[str] = []
        self.may_finish = Event()
        self.search_error: Exception | None = None
        self.claim_errors: list[Exception] = []
        self.refusals: list[Refusal] = []
        self.on_search: Callable[[], None] = lambda: None


class Call:
    """The request of a consumer."""

    def __init__(self, cloud: Cloud, uuid: str, request: CandidatesRequest, deadline: Deadline) -> None:
        self.wanted = PlacementRequest(request, [Claim(uuid, "p", "u", "T", None, {})], 1, f"why-{uuid}")
        self.deadline = deadline
        self.searches = 0
        self._cloud = cloud
        self._uuid = uuid

    def find(self, wanted: PlacementRequest) -> Placements:
        cloud = self._cloud
        cloud.searches.append([each.consumer_uuid for each in wanted.consumers])
        cloud.on_search()
        if cloud.search_error is not None:
            raise cloud.search_error
        if not cloud.hosts:
            raise NoCandidates(placeable=0, wanted=wanted.min_count, explanation=wanted.explanation)
        return Placements([placement(*each) for each in zip(wanted.consumers, cloud.hosts, strict=False)])

    def try_to_claim(self, claims: list[Claim]) -> Refusal | None:
        self._cloud.claims.append([claim.consumer_uuid for claim in claims])
        if self._cloud.claim_errors:
            raise self._cloud.claim_errors.pop()
        return self._cloud.refusals.pop(0) if self._cloud.refusals else None

    def claim_found(self, placements: Placements) -> Placements:
        self._cloud.alone.append(f"claim {self._uuid}")
        return placements

    def place_alone(self) -> Placements:
        if self._uuid == FIRST:
            self._cloud.may_finish.wait()
        else:
            self.deadline.check()
        self._cloud.alone.append(f"search {self._uuid}")
        return Placements([placement(self.wanted.consumers[0], f"alone {self._uuid}")])


def placement(consumer: Claim, host: str) -> Placement:
    claim = replace(consumer, allocations={host: {"VCPU": 1}})
    return Placement(claim, {"": [host]}, Root(host, host), frozenset([1]))


def host_of(future: Future[Placements]) -> str:
    [claim] = future.result().claims
    [host] = claim.allocations
    return host


def refusal(**generations: int | None) -> Refusal:
    """Return a generation conflict."""
    return Refusal(generations, True, {}, {})


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.setattr(batcher, "MAX_WAIT", 60)
    return Cloud()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


Start = Callable[..., Future[Placements]]


@pytest.fixture
def start(cloud: Cloud, threads: ThreadPoolExecutor) -> Iterator[Start]:
    """A function that starts a request in a thread."""

    def place(uuid: str, request: CandidatesRequest, deadline: Deadline) -> Placements:
        request_stats.start()
        return cloud.batcher.place(Call(cloud, uuid, request, deadline))

    def start(
        uuid: str, request: CandidatesRequest = REQUEST, deadline: Deadline | None = None
    ) -> Future[Placements]:
        return threads.submit(place, uuid, request, deadline or Deadline.of(60))

    yield start
    cloud.may_finish.set()


@pytest.fixture
def wait_for_first(cloud: Cloud, start: Start) -> Callable[[Sequence[str]], list[Future[Placements]]]:
    """A function that starts requests which wait for the first one."""

    def wait_for_first(uuids: Sequence[str]) -> list[Future[Placements]]:
        start(FIRST)
        wait_until(lambda: cloud.batcher._waiting)
        waiting = []
        for number, uuid in enumerate(uuids, 1):
            waiting.append(start(uuid))
            wait_until(lambda number=number: cloud.batcher.waiting() == number)
        return waiting

    return wait_for_first


@pytest.fixture
def batch_of_two(cloud: Cloud, wait_for_first: Callable[[str], list[Future[Placements]]]) -> None:
    """A batch of two requests that has just ended."""
    waiting = wait_for_first("ab")
    cloud.may_finish.set()
    assert [host_of(each) for each in waiting] == ["host0", "host1"]


def test_request_that_nobody_precedes_is_placed_alone(cloud, start):
    cloud.may_finish.set()
    assert host_of(start(FIRST)) == "alone first"
    assert host_of(start("a")) == "alone a"
    assert cloud.searches == cloud.claims == []
    assert cloud.batcher.waiting() == 0


def test_waiting_requests_are_one_search_and_one_claim(cloud, wait_for_first):
    waiting = wait_for_first("abc")
    assert cloud.searches == []
    cloud.may_finish.set()
    assert [host_of(each) for each in waiting] == ["host0", "host1", "host2"]
    assert cloud.searches == cloud.claims == [["a", "b", "c"]]
    assert cloud.alone == ["search first"]
    assert not cloud.batcher._waiting


def test_requests_that_arrive_during_a_search_are_the_next_batch(cloud, start, wait_for_first):
    later = []

    def arrive():
        if not later:
            later.extend(start(uuid) for uuid in "cd")
            wait_until(lambda: cloud.batcher.waiting() == 2)

    cloud.on_search = arrive
    waiting = wait_for_first("ab")
    cloud.may_finish.set()
    assert [host_of(each) for each in waiting] == ["host0", "host1"]
    assert sorted(host_of(each) for each in later) == ["host0", "host1"]
    assert [sorted(uuids) for uuids in cloud.searches] == [["a", "b"], ["c", "d"]]


def test_batch_has_a_limited_size(cloud, wait_for_first, monkeypatch):
    monkeypatch.setattr(batcher, "MAX_BATCH", 2)
    waiting = wait_for_first("abcde")
    cloud.may_finish.set()
    assert [host_of(each) for each in waiting] == ["host0", "host1", "host0", "host1", "alone e"]
    assert cloud.searches == [["a", "b"], ["c", "d"]]


@pytest.mark.usefixtures("batch_of_two")
def test_batch_waits_until_it_is_as_large_as_the_one_before(cloud, start, monkeypatch):
    """Clients that were answered together come again one after the other."""
    monkeypatch.setattr(batcher, "MAX_GATHERING", 60)
    events: list[str] = []
    deadline = Deadline.of(60, slot=RecordedSlot(events))
    leader = start("c", deadline=deadline)
    wait_until(lambda: events == ["pause"])
    assert not leader.done()
    assert [host_of(each) for each in (leader, start("d"))] == ["host0", "host1"]
    assert cloud.searches == [["a", "b"], ["c", "d"]]
    assert events == ["pause", "resume"]


@pytest.mark.usefixtures("batch_of_two")
def test_batch_waits_for_no_other_kind(start, monkeypatch):
    monkeypatch.setattr(batcher, "MAX_GATHERING", 60)
    assert host_of(start("c", CandidatesRequest((RequestGroup("", {"VCPU": 2}),)))) == "alone c"


@pytest.mark.usefixtures("batch_of_two")
def test_batch_waits_only_for_a_moment(start, monkeypatch):
    monkeypatch.setattr(batcher, "MAX_GATHERING", 0.2)
    assert host_of(start("c")) == "alone c"
    # Nobody came with it, so the next one does not wait.
    monkeypatch.setattr(batcher, "MAX_GATHERING", 60)
    assert host_of(start("d")) == "alone d"


def test_requests_have_no_slot_while_they_wait(cloud, start, wait_for_first):
    """One whose placement is known needs none afterwards either."""
    events: list[str] = []
    waiting = wait_for_first("a")
    for number, uuid in enumerate("bc", 2):
        deadline = Deadline.of(60, slot=RecordedSlot(events, uuid))
        waiting.append(start(uuid, deadline=deadline))
        wait_until(lambda number=number: cloud.batcher.waiting() == number)
    cloud.hosts = cloud.hosts[:2]
    wait_until(lambda: len(events) == 2)
    assert events == ["pause b", "pause c"]
    cloud.may_finish.set()
    assert [host_of(each) for each in waiting[:2]] == ["host0", "host1"]
    assert isinstance(waiting[2].exception(), LostRace)
    assert events[2:] == ["resume c"]


def test_leader_that_gets_no_slot_does_not_fail_the_others(cloud, start, wait_for_first):
    class NoSlot(RecordedSlot):
        def resume(self, seconds: float) -> None:
            raise Unavailable("no slot")

    wait_for_first("")
    deadline = Deadline.of(60, slot=NoSlot([]))
    leader = start("a", deadline=deadline)
    wait_until(lambda: cloud.batcher.waiting() == 1)
    other = start("b")
    wait_until(lambda: cloud.batcher.waiting() == 2)
    cloud.may_finish.set()
    assert str(leader.exception()) == "no slot"
    assert host_of(other) == "alone b"
    assert not cloud.batcher._waiting


@pytest.mark.parametrize(
    "other",
    [
        CandidatesRequest((RequestGroup("", {"VCPU": 2}),)),
        CandidatesRequest((RequestGroup("", {"DISK_GB": 1}),)),
        CandidatesRequest((RequestGroup("1", {"VCPU": 1}),)),
        CandidatesRequest((RequestGroup("", {"VCPU": 1}, in_tree="tree"),)),
        CandidatesRequest((RequestGroup("", {"VCPU": 1}, not_in_tree=frozenset(["tree"])),)),
        CandidatesRequest((RequestGroup("", {"VCPU": 1}),), can_split=frozenset(["VCPU"])),
    ],
)
def test_other_kinds_do_not_wait(cloud, start, wait_for_first, other):
    wait_for_first("a")
    assert host_of(start("other", other)) == "alone other"
    assert cloud.batcher.waiting() == 1


def test_second_request_for_a_waiting_consumer_is_placed_alone(cloud, start, wait_for_first):
    [waiting] = wait_for_first("a")
    assert host_of(start("a")) == "alone a"
    cloud.may_finish.set()
    assert host_of(waiting) == "alone a"


def test_members_without_a_candidate_try_again(cloud, wait_for_first):
    cloud.hosts = cloud.hosts[:2]
    waiting = wait_for_first("abc")
    cloud.may_finish.set()
    assert [host_of(each) for each in waiting[:2]] == ["host0", "host1"]
    assert isinstance(waiting[2].exception(), LostRace)
    assert cloud.claims == [["a", "b"]]


def test_all_are_refused_if_there_is_no_candidate(cloud, wait_for_first):
    cloud.hosts = []
    waiting = wait_for_first("abc")
    cloud.may_finish.set()
    errors = [each.exception() for each in waiting]
    assert all(isinstance(error, NoCandidates) for error in errors)
    assert [error.extra["explanation"] for error in errors] == ["why-a", "why-b", "why-c"]
    assert cloud.searches == [["a", "b", "c"]]
    assert cloud.claims == []


def test_error_that_may_be_of_one_member_lets_all_search_alone(cloud, wait_for_first):
    cloud.search_error = ConcurrentUpdate("of b")
    waiting = wait_for_first("abc")
    cloud.may_finish.set()
    assert [host_of(each) for each in waiting] == ["alone a", "alone b", "alone c"]


@pytest.mark.parametrize("error", [ClientDisconnected("of a"), Unavailable("of a"), RuntimeError("a bug")])
def test_leader_that_fails_does_not_fail_the_others(cloud, start, wait_for_first, error):
    cloud.search_error = error
    waiting = wait_for_first("abc")
    cloud.may_finish.set()
    assert waiting[0].exception() is error
    assert [host_of(each) for each in waiting[1:]] == ["alone b", "alone c"]
    assert host_of(start("later")) == "alone later"


def test_refused_claim_does_not_refuse_the_others(cloud, wait_for_first):
    cloud.refusals = [refusal(a=None, b=7, c=None)]
    waiting = wait_for_first("abc")
    cloud.may_finish.set()
    assert [host_of(each) for each in waiting] == ["host0", "host1", "host2"]
    assert cloud.claims == [["a", "b", "c"], ["a", "c"]]
    assert cloud.alone == ["search first", "claim b"]


def test_members_whose_hosts_are_used_up_try_again(cloud, wait_for_first):
    cloud.refusals = [Refusal(dict.fromkeys("ab"), False, {"host0": 1, "host1": 2}, {})]
    waiting = wait_for_first("ab")
    cloud.may_finish.set()
    assert all(isinstance(each.exception(), LostRace) for each in waiting)
    assert cloud.claims == [["a", "b"]]


def test_each_claims_alone_if_they_are_refused_again(cloud, wait_for_first):
    cloud.refusals = [refusal(a=None, b=7, c=None), refusal(a=None, c=None)]
    waiting = wait_for_first("abc")
    cloud.may_finish.set()
    assert [host_of(each) for each in waiting] == ["host0", "host1", "host2"]
    assert sorted(cloud.alone) == ["claim a", "claim b", "claim c", "search first"]


@pytest.mark.parametrize("error", [Unavailable("a lock of one of them"), Invalid("a name of one of them")])
def test_claim_that_fails_lets_each_claim_alone(cloud, wait_for_first, error):
    cloud.claim_errors = [error]
    waiting = wait_for_first("ab")
    cloud.may_finish.set()
    assert [host_of(each) for each in waiting] == ["host0", "host1"]
    assert sorted(cloud.alone) == ["claim a", "claim b", "search first"]


def test_unknown_outcome_is_that_of_all_members(cloud, wait_for_first):
    cloud.claim_errors = [OutcomeUnknown("lost")]
    waiting = wait_for_first("ab")
    cloud.may_finish.set()
    assert [str(each.exception()) for each in waiting] == ["lost", "lost"]
    assert cloud.alone == ["search first"]


def test_request_waits_until_its_deadline(cloud, start, wait_for_first):
    [waiting] = wait_for_first("a")
    assert isinstance(start("late", deadline=Deadline.of(0.2)).exception(), Unavailable)
    gone = Deadline.of(60, is_abandoned=lambda: True)
    assert isinstance(start("gone", deadline=gone).exception(), ClientDisconnected)
    assert not waiting.done()
    assert cloud.batcher.waiting() == 1
    cloud.may_finish.set()
    assert host_of(waiting) == "alone a"


def test_request_that_has_waited_long_is_placed_alone(cloud, start, wait_for_first, monkeypatch):
    wait_for_first("")
    monkeypatch.setattr(batcher, "MAX_WAIT", 0.1)
    assert host_of(start("a")) == "alone a"
    assert cloud.batcher.waiting() == 0


def test_member_that_withdraws_during_the_search_is_not_claimed(cloud, start, wait_for_first):
    gone = Event()
    waiting = wait_for_first("a")
    leaving = start("b", deadline=Deadline.of(60, is_abandoned=gone.is_set))
    wait_until(lambda: cloud.batcher.waiting() == 2)

    def leave():
        gone.set()
        wait_until(leaving.done)

    cloud.on_search = leave
    cloud.may_finish.set()
    assert host_of(waiting[0]) == "host0"
    assert isinstance(leaving.exception(), ClientDisconnected)
    assert cloud.searches == [["a", "b"]]
    assert cloud.claims == [["a"]]


def test_member_whose_claim_is_submitted_waits_for_the_result(cloud, start, wait_for_first, monkeypatch):
    gone = Event()
    waiting = wait_for_first("a")
    leaving = start("b", deadline=Deadline.of(60, is_abandoned=gone.is_set))
    wait_until(lambda: cloud.batcher.waiting() == 2)
    claim, withdraw, tries = Call.try_to_claim, PlacingBatcher._withdraw, Semaphore(0)

    def claim_slowly(call, claims):
        gone.set()
        assert tries.acquire(timeout=60)
        return claim(call, claims)

    def try_to_withdraw(batcher, kind, member):
        is_withdrawn = withdraw(batcher, kind, member)
        tries.release()
        return is_withdrawn

    monkeypatch.setattr(Call, "try_to_claim", claim_slowly)
    monkeypatch.setattr(PlacingBatcher, "_withdraw", try_to_withdraw)
    cloud.may_finish.set()
    assert [host_of(each) for each in (*waiting, leaving)] == ["host0", "host1"]
