"""Claims of new consumers on the same providers: what they get together, each would have got alone."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Engine, text
from werkzeug.test import TestResponse

from placement_svc.db.engine import Database
from tests.conftest import ADMIN, NewApp
from tests.races.helpers import code, consumer, held
from tests.support.postgres_proxy import Wire
from tests.support.service import wait_until

pytestmark = pytest.mark.usefixtures("books")

TOGETHER = "\n    CALL claim_batch("

Meet = Callable[[Sequence[tuple[Any, Any]]], list[TestResponse]]


@pytest.fixture
def served(request: pytest.FixtureRequest, wire: Wire, new_app: NewApp) -> Flask:
    """The application, on the wire; its parameter is how many seconds it waits for a lock."""
    app = new_app(database_url=wire.url, lock_timeout=getattr(request, "param", 10))
    app.extensions["database"].prepare()
    wire.asked.clear()
    return app


@contextmanager
def held_up(engine: Engine) -> Iterator[None]:
    """Hold the lock of every provider."""
    with engine.begin() as other:
        other.execute(text("SELECT FROM resource_providers FOR UPDATE"))
        yield


def send(app: Flask, uuid: Any, body: Any) -> TestResponse:
    return app.test_client().put(f"/allocations/{uuid}", json=body, headers=ADMIN)


@pytest.fixture
def meet(served: Flask, wire: Wire, engine: Engine) -> Meet:
    """A function that sends claims of which the first is held up until all others wait for it."""
    database: Database = served.extensions["database"]

    def meet(claims: Sequence[tuple[Any, Any]]) -> list[TestResponse]:
        with ThreadPoolExecutor(len(claims)) as threads:
            with held_up(engine):
                running: list[Future[TestResponse]] = []
                for number, claim in enumerate(claims):
                    running.append(threads.submit(send, served, *claim))
                    wait_until(lambda number=number: len(wire.asked) + waiting(database) == number + 1)
            return [each.result() for each in running]

    return meet


def waiting(database: Database) -> int:
    return sum(len(places) for places in list(database.claims._waiting.values()))


def claims(wire: Wire) -> list[str]:
    """Return how PostgreSQL was asked: each claim is one statement."""
    return [asked.partition("(")[0].strip() for asked in wire.asked]


def test_claims_on_one_provider_go_together(meet, provider, used, api, wire):
    host = provider(VCPU=16)
    consumers = [uuid4() for _ in range(5)]
    answers = meet([(uuid, consumer(held(host, 2))) for uuid in consumers])
    assert [answer.status_code for answer in answers] == [204] * 5
    assert claims(wire) == ["CALL claim", "CALL claim_batch"]
    assert used(host) == {"VCPU": 10}
    # One more for each claim, after that for the inventory: as if they had come one after the other.
    assert api("GET", f"/resource_providers/{host}").json["generation"] == 1 + 5
    for uuid in consumers:
        assert api("GET", f"/allocations/{uuid}").json["consumer_generation"] == 1


def test_claims_on_several_providers_go_together_if_all_are_the_same(meet, provider, used, api, wire):
    hosts = [provider(VCPU=16, DISK_GB=16) for _ in range(2)]
    both = {**held(hosts[0], 1), **held(hosts[1], 2)}
    other_order = {**held(hosts[1], 2, "DISK_GB"), **held(hosts[0], 1, "DISK_GB")}
    bodies = [consumer(both), consumer(both), consumer(other_order), consumer(held(hosts[0], 1))]
    answers = meet([(uuid4(), body) for body in bodies])
    assert [answer.status_code for answer in answers] == [204] * 4
    assert sorted(claims(wire)) == ["CALL claim"] * 2 + ["CALL claim_batch"]
    assert [used(host) for host in hosts] == [{"VCPU": 3, "DISK_GB": 1}, {"VCPU": 4, "DISK_GB": 2}]
    generations = [api("GET", f"/resource_providers/{host}").json["generation"] for host in hosts]
    assert generations == [1 + 4, 1 + 3]


def test_claims_get_as_much_as_there_is(meet, provider, used):
    host = provider(VCPU=4)
    answers = meet([(uuid4(), consumer(held(host, 1))) for _ in range(6)])
    assert sorted(answer.status_code for answer in answers) == [204] * 4 + [409] * 2
    assert all("exceed the capacity" in answer.text for answer in answers if answer.status_code == 409)
    assert used(host) == {"VCPU": 4}


def test_claim_that_is_refused_harms_no_other(meet, provider, used, api):
    host = provider(VCPU=16)
    known, missing = uuid4(), str(uuid4())
    assert api("PUT", f"/allocations/{known}", consumer(held(host, 1))).status_code == 204
    answers = meet(
        [
            (uuid4(), consumer(held(host, 1))),
            (uuid4(), consumer(held(host, 1))),
            (known, consumer(held(host, 3))),
            (uuid4(), consumer(held(host, 99))),
            (uuid4(), consumer(held(host, 1, "CUSTOM_UNKNOWN"))),
            (uuid4(), consumer(held(missing, 1))),
            (uuid4(), consumer(held(host, 1, "DISK_GB"))),
            (uuid4(), consumer(held(host, 1)) | {"project_id": "another"}),
        ]
    )
    assert [answer.status_code for answer in answers] == [204, 204, 409, 409, 400, 400, 409, 204]
    assert code(answers[2]) == "placement.concurrent_update"
    assert used(host) == {"VCPU": 4}
    assert api("GET", "/usages?project_id=another").json["usages"]["INSTANCE"]["VCPU"] == 1


def test_one_consumer_claims_once(meet, provider, used, api):
    host, uuid = provider(VCPU=16), uuid4()
    bodies = [(uuid4(), 1), (uuid, 2), (uuid, 3), (uuid4(), 1)]
    answers = meet([(each, consumer(held(host, amount))) for each, amount in bodies])
    assert sorted(answer.status_code for answer in answers[1:3]) == [204, 409]
    assert [answers[0].status_code, answers[3].status_code] == [204, 204]
    amount = api("GET", f"/allocations/{uuid}").json["allocations"][host]["resources"]["VCPU"]
    assert used(host) == {"VCPU": 2 + amount}


def test_claims_whose_connection_is_lost_together_are_granted_or_unknown(meet, provider, used, wire):
    host = provider(VCPU=16)
    wire.cut_at(TOGETHER, arrives=False)
    answers = meet([(uuid4(), consumer(held(host, 1))) for _ in range(4)])
    assert [answer.status_code for answer in answers] == [204] * 4
    assert used(host) == {"VCPU": 4}
    wire.asked.clear()
    wire.cut_at(TOGETHER, arrives=True)
    answers = meet([(uuid4(), consumer(held(host, 1))) for _ in range(4)])
    assert [answer.status_code for answer in answers] == [204, 503, 503, 503]
    assert all("it is not known whether anything has changed" in answer.text for answer in answers[1:])
    assert used(host) == {"VCPU": 8}


@pytest.mark.parametrize("served", [1], indirect=True)
def test_who_waits_for_those_who_wait_too_long_is_told_so(served, wire, engine, provider):
    host, database = provider(VCPU=16), served.extensions["database"]
    with ThreadPoolExecutor(4) as threads:
        with held_up(engine):
            running = [threads.submit(send, served, uuid4(), consumer(held(host, 1))) for _ in range(4)]
            wait_until(lambda: len(wire.asked) + waiting(database) == 4)
            wait_until(lambda: all(each.done() for each in running))
        for each in running:
            assert each.result().status_code == 503
            assert "held what this one needs for too long" in each.result().text
    assert send(served, uuid4(), consumer(held(host, 1))).status_code == 204
