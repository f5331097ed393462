"""Requests that are placed as a batch: each gets a response that it could have got alone."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Connection, Engine, text
from werkzeug.test import TestResponse

from placement_svc.db.claims import procedures
from placement_svc.db.claims.refusal import Refusal
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.placing import batcher
from placement_svc.db.placing import service as placing
from placement_svc.db.placing.batcher import PlacingBatcher
from placement_svc.db.placing.search import PlacementSearchOptions, find_placements
from placement_svc.domain.allocations import Claim
from placement_svc.domain.placing.placements import PlacementRequest, Placements
from placement_svc.http.environ import IS_CLIENT_GONE, SLOT
from tests.conftest import ADMIN, NewApp
from tests.races.helpers import ROUNDS, allocation, code, race, statuses
from tests.races.helpers import consumer as allocated
from tests.support.claims_oracle import consumer
from tests.support.postgres_proxy import PostgresProxy
from tests.support.service import wait_until
from tests.support.slots import RecordedSlot

CLAIM = procedures.CLAIM.partition("(")[0]
SEARCH = "WITH examined_roots"
"""The beginning of the statement that finds trees."""

Start = Callable[..., Future[TestResponse]]
PlaceTogether = Callable[[Sequence[dict[str, Any]]], list[TestResponse]]


class Searches:
    """The searches of the application; the first one begins when `may_begin` is set."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_begin = Event()
        self.before_second: Callable[[], None] = lambda: None

    def find(
        self, connection: Connection, wanted: PlacementRequest, options: PlacementSearchOptions
    ) -> Placements:
        self.begun += 1
        if self.begun == 1:
            assert self.may_begin.wait(60)
        elif self.begun == 2:
            self.before_second()
        return find_placements(connection, wanted, options)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    searches = Searches()
    monkeypatch.setattr(placing, "find_placements", searches.find)
    return searches


@pytest.fixture
def served(
    request: pytest.FixtureRequest,
    postgres_proxy: PostgresProxy,
    new_app: NewApp,
    monkeypatch: pytest.MonkeyPatch,
) -> Flask:
    """The application, connected through the proxy, with the settings that are the parameter."""
    monkeypatch.setattr(batcher, "MAX_WAIT", 60)
    app = new_app(database_url=postgres_proxy.url, **getattr(request, "param", {}))
    app.extensions["database"].prepare()
    postgres_proxy.statements.clear()
    return app


def body(each: dict[str, Any], request: str = "resources=VCPU:1", **options: Any) -> dict[str, Any]:
    return {"request": request, "consumers": [each], **options}


def new() -> dict[str, Any]:
    return consumer(str(uuid4()))


def batcher_of(app: Flask) -> PlacingBatcher:
    return app.extensions["placing_service"].batcher  # type: ignore[no-any-return]


def count(postgres_proxy: PostgresProxy, beginning: str) -> int:
    return sum(sent.startswith(beginning) for sent in postgres_proxy.statements)


def host_of(response: TestResponse) -> str:
    [claim] = response.json["claims"]
    [host] = claim["allocations"]
    return str(host)


@pytest.fixture
def start(served: Flask, searches: Searches) -> Iterator[Start]:
    """A function that sends a request from a thread, with further keys of the WSGI environment."""

    def send(sent: dict[str, Any], environ: dict[str, Any]) -> TestResponse:
        return served.test_client().post("/claims", json=sent, headers=ADMIN, environ_overrides=environ)

    with ThreadPoolExecutor(12) as threads:
        yield lambda sent, environ=None: threads.submit(send, sent, environ or {})
        searches.may_begin.set()


@pytest.fixture
def start_batch(served: Flask, searches: Searches, start: Start) -> Callable[..., list[Future[TestResponse]]]:
    """A function that sends requests, which wait for the search of another one; the latter comes first."""

    def start_batch(*bodies: dict[str, Any], leader: Any = None) -> list[Future[TestResponse]]:
        running = [start(body(new()))]
        wait_until(lambda: searches.begun == 1)
        for number, sent in enumerate(bodies, 1):
            running.append(start(sent, leader if number == 1 else None))
            wait_until(lambda number=number: batcher_of(served).waiting() == number)
        return running

    return start_batch


@pytest.fixture
def place_together(searches: Searches, start_batch: Any) -> PlaceTogether:
    """A function that places requests as a batch, after another one; return their responses."""

    def place_together(bodies: Sequence[dict[str, Any]]) -> list[TestResponse]:
        first, *batch = start_batch(*bodies)
        searches.may_begin.set()
        assert first.result().status_code == 200
        return [each.result() for each in batch]

    return place_together


def test_waiting_requests_are_one_search_and_one_claim(place_together, provider, used, api, postgres_proxy):
    hosts = [provider(VCPU=2) for _ in range(3)]
    bodies = [body(consumer(str(uuid4())) | {"project_id": f"p{number}"}) for number in range(5)]
    responses = place_together(bodies)
    assert [response.status_code for response in responses] == [200] * 5
    assert (count(postgres_proxy, SEARCH), count(postgres_proxy, CLAIM)) == (2, 2)
    assert [used(host) for host in hosts] == [{"VCPU": 2}] * 3
    for number, response in enumerate(responses):
        [claim] = response.json["claims"]
        [wanted] = bodies[number]["consumers"]
        assert claim["consumer_uuid"] == wanted["uuid"]
        assert response.json["attempts"] == 1
        stored = api("GET", f"/allocations/{wanted['uuid']}").json
        assert stored["project_id"] == f"p{number}"
        assert stored["consumer_generation"] == claim["consumer_generation"] == 1
        assert stored["allocations"][host_of(response)]["resources"] == {"VCPU": 1}


def test_as_many_are_placed_as_fit(place_together, provider, used):
    host = provider(VCPU=4)
    responses = place_together([body(new()) for _ in range(6)])
    assert [response.status_code for response in responses] == [200] * 3 + [409] * 3
    assert {code(response) for response in responses[3:]} == {"placement_svc.no_candidates"}
    assert used(host) == {"VCPU": 4}


def test_all_are_refused_without_another_search(place_together, provider, postgres_proxy):
    provider(VCPU=1)
    bodies = [body(new(), "resources=VCPU:1"), body(new(), "resources=VCPU%3A1")]
    responses = place_together(bodies)
    assert [response.status_code for response in responses] == [409] * 2
    [errors, others] = [response.json["errors"][0] for response in responses]
    assert errors["code"] == "placement_svc.no_candidates"
    assert errors["placeable"] == 0
    assert errors["explanation"] == "/allocation_candidates/explanation?resources=VCPU:1"
    assert others["explanation"] == "/allocation_candidates/explanation?resources=VCPU%3A1"
    assert count(postgres_proxy, CLAIM) == 1


def test_conflict_of_one_request_does_not_refuse_the_others(place_together, provider, used, api):
    host = provider(VCPU=9)
    known = str(uuid4())
    assert api("PUT", f"/allocations/{known}", allocated(allocation(host, 2))).status_code == 204
    responses = place_together([body(consumer(known)), body(new()), body(new())])
    assert [response.status_code for response in responses] == [409, 200, 200]
    assert code(responses[0]) == "placement.concurrent_update"
    assert used(host) == {"VCPU": 5}


def test_one_of_several_requests_for_a_consumer_is_granted(place, provider, used):
    for _ in range(ROUNDS):
        host, each = provider(VCPU=9), new()
        responses = race(*(place(each) for _ in range(8)))
        assert statuses(responses) == [200] + [409] * 7
        assert {code(each) for each in responses if each.status_code == 409} == {
            "placement.concurrent_update"
        }
        [granted] = [each for each in responses if each.status_code == 200]
        if host_of(granted) == host:
            assert used(host) == {"VCPU": 1}


def test_host_that_another_uses_up_meanwhile_is_replaced(place_together, provider, used, put, monkeypatch):
    hosts = [provider(VCPU=2) for _ in range(4)]
    claim = ClaimService.try_to_replace
    taken: list[str] = []

    def claim_later(
        service: ClaimService, claims: Sequence[Claim], *, compare_generations: bool
    ) -> Refusal | None:
        if len(claims) == 3 and not taken:
            taken.extend(claims[1].allocations)
            free = 2 - used(taken[0])["VCPU"]
            assert put(uuid4(), allocation(taken[0], free))().status_code == 204
        return claim(service, claims, compare_generations=compare_generations)

    monkeypatch.setattr(ClaimService, "try_to_replace", claim_later)
    responses = place_together([body(new()) for _ in range(3)])
    assert [response.status_code for response in responses] == [200] * 3
    assert [response.json["attempts"] for response in responses] == [1, 2, 1]
    assert taken[0] not in map(host_of, responses)
    assert all(used(host)["VCPU"] <= 2 for host in hosts)


def test_requests_of_other_kinds_do_not_wait(start, start_batch, provider):
    host = provider(VCPU=99)
    start_batch(body(new()))
    others = [
        body(new(), "resources=VCPU:2"),
        body(new(), "resources=VCPU:1&order_by=spread:VCPU"),
        body(new(), "resources=VCPU:1&preferred=HW_CPU_X86_AVX2"),
        body(new(), dry_run=True),
        {"request": "resources=VCPU:1", "consumers": [new(), new()]},
    ]
    for other in others:
        response = start(other).result()
        assert response.status_code == 200, response.json
        assert host_of_first(response) == host


def host_of_first(response: TestResponse) -> str:
    return str(next(iter(response.json["claims"][0]["allocations"])))


@pytest.mark.parametrize("delivered", [False, True])
def test_batch_whose_connection_is_lost(
    served, searches, start_batch, provider, used, postgres_proxy, delivered
):
    """The first request has claimed before its batch begins to search."""
    host = provider(VCPU=16)
    searches.before_second = lambda: postgres_proxy.drop_connection_at(CLAIM, delivered=delivered)
    first, *batch = start_batch(*(body(new()) for _ in range(3)))
    searches.may_begin.set()
    responses = [each.result() for each in batch]
    assert first.result().status_code == 200
    assert [response.status_code for response in responses] == [200] * 3
    assert used(host) == {"VCPU": 4}


@pytest.mark.parametrize("served", [{"lock_timeout": 1}], indirect=True)
def test_host_that_is_locked_refuses_only_its_own_request(
    searches, start_batch, provider, used, engine: Engine
):
    hosts = [provider(VCPU=9) for _ in range(2)]
    first, *batch = start_batch(body(new()), body(new()))
    with engine.begin() as other:
        other.execute(
            text("SELECT FROM resource_providers WHERE uuid = :uuid FOR UPDATE"), {"uuid": hosts[0]}
        )
        searches.may_begin.set()
        responses = [each.result() for each in (*batch, first)]
    assert sorted(response.status_code for response in responses[:2]) == [200, 503]
    [granted] = [response for response in responses[:2] if response.status_code == 200]
    [refused] = [response for response in responses[:2] if response.status_code == 503]
    assert host_of(granted) == hosts[1]
    assert "held what this one needs for too long" in refused.text
    assert used(hosts[0]) == {"VCPU": 0}


@pytest.mark.parametrize("served", [{"request_deadline": 5}], indirect=True)
def test_request_waits_only_until_its_deadline(served, searches, start, provider, used):
    host = provider(VCPU=9)
    first = start(body(new()))
    wait_until(lambda: searches.begun == 1)
    batch = [start(body(new())) for _ in range(2)]
    responses = [each.result() for each in batch]
    assert [response.status_code for response in responses] == [503] * 2
    assert not first.done()
    assert searches.begun == 1
    assert batcher_of(served).waiting() == 0
    assert used(host) == {"VCPU": 0}


def test_client_of_the_leader_disconnects_during_the_search(searches, start_batch, provider, used):
    host = provider(VCPU=9)
    is_gone = Event()

    def disconnect() -> None:
        is_gone.set()
        # The search checks this ten times a second.
        time.sleep(0.2)

    searches.before_second = disconnect
    first, leader, *others = start_batch(
        *(body(new()) for _ in range(3)), leader={IS_CLIENT_GONE: is_gone.is_set}
    )
    searches.may_begin.set()
    assert [each.result().status_code for each in (first, *others)] == [200] * 3
    assert leader.result().status_code not in (200, 503)
    assert used(host) == {"VCPU": 3}


def test_request_has_no_slot_while_it_waits(searches, start_batch, provider):
    provider(VCPU=9)
    events: list[str] = []
    _, leader = start_batch(body(new()), leader={SLOT: RecordedSlot(events)})
    wait_until(lambda: events == ["pause"])
    searches.may_begin.set()
    assert leader.result().status_code == 200
    assert events == ["pause", "resume"]
