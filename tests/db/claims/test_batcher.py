"""Claims that wait for another claim on the same providers are claimed as one batch."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest

from placement_svc.db.claims.batcher import ClaimBatcher
from placement_svc.db.claims.refusal import Refusal
from placement_svc.domain.allocations import Claim
from placement_svc.domain.execution import request_stats
from tests.support.service import wait_until

PAUSE = 0.1
FIRST = "first"


def claim(consumer: str, provider: str = "host", amount: int = 1) -> Claim:
    return Claim(consumer, "project", "user", None, None, {provider: {"VCPU": amount}})


def refusal_of(claim: Claim) -> Refusal:
    """Return a refusal that shows which claim was made alone."""
    return Refusal({claim.consumer_uuid: claim.allocations["host"]["VCPU"]}, True, {}, {})


class Claims:
    """Claims through a batcher, recorded; a claim that is made alone is refused.

    `batch_result` is the result of a batch; an exception is raised instead.
    """

    def __init__(self) -> None:
        self.batcher = ClaimBatcher(self.claim_one, self.claim_batch)
        self.made: list[list[str]] = []
        self.waited: dict[str, float] = {}
        self.batch_result: bool | Exception = True
        self.may_finish = Event()
        self.error: Exception | None = None

    def claim_one(self, claim: Claim) -> Refusal | None:
        self.waited[claim.consumer_uuid] = request_stats.current().statement_seconds
        if claim.consumer_uuid == FIRST:
            self.may_finish.wait()
            if self.error:
                raise self.error
        else:
            self.made.append([claim.consumer_uuid])
        return refusal_of(claim) if "host" in claim.allocations else None

    def claim_batch(self, claims: Sequence[Claim]) -> bool:
        if isinstance(self.batch_result, Exception):
            raise self.batch_result
        if self.batch_result:
            self.made.append([claim.consumer_uuid for claim in claims])
        return self.batch_result

    def submit(self, claim: Claim) -> Refusal | None:
        stats = request_stats.start()
        try:
            return self.batcher.submit(claim)
        finally:
            self.waited.setdefault(claim.consumer_uuid, stats.statement_seconds)


@pytest.fixture
def claims() -> Claims:
    return Claims()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


Start = Callable[..., Future[Refusal | None]]


@contextmanager
def running_claim(claims: Claims, threads: ThreadPoolExecutor) -> Iterator[Start]:
    """Run a claim on a provider meanwhile; yield a function that submits another one in a thread."""

    def start(consumer: str, amount: int = 1) -> Future[Refusal | None]:
        before = claims.batcher.waiting()
        submitted = threads.submit(claims.submit, claim(consumer, amount=amount))
        wait_until(lambda: claims.batcher.waiting() > before or submitted.done())
        return submitted

    running = threads.submit(claims.submit, claim(FIRST))
    wait_until(lambda: FIRST in claims.waited)
    try:
        yield start
    finally:
        claims.may_finish.set()
    if claims.error:
        with pytest.raises(type(claims.error)):
            running.result()
    else:
        assert running.result() == refusal_of(claim(FIRST))


def test_claims_one_after_the_other_are_made_alone(claims: Claims) -> None:
    assert [claims.submit(claim(name)) for name in "abc"] == [refusal_of(claim(name)) for name in "abc"]
    assert claims.made == [["a"], ["b"], ["c"]]


def test_waiting_claims_are_one_batch(claims: Claims, threads: ThreadPoolExecutor) -> None:
    with running_claim(claims, threads) as start:
        submitted = [start(name) for name in "abc"]
        assert claims.made == []
    assert [each.result() for each in submitted] == [None] * 3
    assert claims.made == [["a", "b", "c"]]
    assert claims.submit(claim("d")) == refusal_of(claim("d"))


def test_waiting_for_a_batch_counts_as_statement_time(claims: Claims, threads: ThreadPoolExecutor) -> None:
    claims.submit(claim("a"))
    with running_claim(claims, threads) as start:
        submitted = [start(name) for name in "bc"]
        # Each of them may begin to measure a moment after it has joined the batch.
        time.sleep(2 * PAUSE)
    assert [each.result() for each in submitted] == [None] * 2
    assert claims.waited["a"] == 0
    assert min(claims.waited["b"], claims.waited["c"]) >= PAUSE


def test_single_waiting_claim_is_made_alone(claims: Claims, threads: ThreadPoolExecutor) -> None:
    with running_claim(claims, threads) as start:
        submitted = start("a")
    assert submitted.result() == refusal_of(claim("a"))
    assert claims.made == [["a"]]


def test_claims_on_different_providers_do_not_wait_for_each_other(
    claims: Claims, threads: ThreadPoolExecutor
) -> None:
    with running_claim(claims, threads):
        assert claims.submit(claim("a", provider="another host")) is None
        assert claims.made == [["a"]]


def test_claims_of_a_refused_batch_are_made_one_by_one(claims: Claims, threads: ThreadPoolExecutor) -> None:
    claims.batch_result = False
    with running_claim(claims, threads) as start:
        submitted = [start(name) for name in "abc"]
    assert [each.result() for each in submitted] == [refusal_of(claim(name)) for name in "abc"]
    assert sorted(claims.made) == [["a"], ["b"], ["c"]]


def test_batch_has_one_claim_of_a_consumer(claims: Claims, threads: ThreadPoolExecutor) -> None:
    with running_claim(claims, threads) as start:
        submitted = [start("same", amount=1), start("same", amount=2), start("c")]
        assert submitted[1].result() == refusal_of(claim("same", amount=2))
        assert claims.made == [["same"]]
    assert [submitted[0].result(), submitted[2].result()] == [None, None]
    assert claims.made == [["same"], ["same", "c"]]


def test_exception_of_a_batch_is_raised_for_each_claim(claims: Claims, threads: ThreadPoolExecutor) -> None:
    claims.batch_result = ZeroDivisionError()
    with running_claim(claims, threads) as start:
        submitted = [start(name) for name in "abc"]
    for each in submitted:
        with pytest.raises(ZeroDivisionError):
            each.result()
    assert claims.submit(claim("d")) == refusal_of(claim("d"))


def test_next_batch_starts_after_a_claim_fails(claims: Claims, threads: ThreadPoolExecutor) -> None:
    claims.error = ZeroDivisionError()
    with running_claim(claims, threads) as start:
        submitted = [start(name) for name in "ab"]
    assert [each.result() for each in submitted] == [None, None]
    assert claims.submit(claim("d")) == refusal_of(claim("d"))


def test_batcher_keeps_nothing_of_finished_claims(claims: Claims, threads: ThreadPoolExecutor) -> None:
    with running_claim(claims, threads) as start:
        submitted = [start(name) for name in "ab"]
    assert [each.result() for each in submitted] == [None, None]
    wait_until(lambda: not claims.batcher._next)
