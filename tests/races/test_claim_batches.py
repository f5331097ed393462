"""Batches of claims: each claim gets the same response that it would get alone."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Engine, text
from werkzeug.test import TestResponse

from placement_svc.db.claims import procedures
from placement_svc.db.claims.batcher import ClaimBatcher
from tests.conftest import ADMIN, NewApp
from tests.races.helpers import allocation, code, consumer
from tests.support.postgres_proxy import PostgresProxy
from tests.support.service import wait_until

CLAIM, CLAIM_BATCH = (statement.partition("(")[0] for statement in (procedures.CLAIM, procedures.CLAIM_BATCH))
"""The beginnings of the two statements, up to the name of the procedure."""

ClaimTogether = Callable[[Sequence[tuple[Any, Any]]], list[TestResponse]]


@pytest.fixture
def served(request: pytest.FixtureRequest, postgres_proxy: PostgresProxy, new_app: NewApp) -> Flask:
    """The application, connected through the proxy; the parameter is the lock timeout in seconds."""
    app = new_app(database_url=postgres_proxy.url, lock_timeout=getattr(request, "param", 10))
    app.extensions["database"].prepare()
    postgres_proxy.statements.clear()
    return app


@contextmanager
def locked_providers(engine: Engine) -> Iterator[None]:
    """Hold the row locks of all providers."""
    with engine.begin() as other:
        other.execute(text("SELECT FROM resource_providers FOR UPDATE"))
        yield


def send(app: Flask, uuid: Any, body: Any) -> TestResponse:
    return app.test_client().put(f"/allocations/{uuid}", json=body, headers=ADMIN)


@pytest.fixture
def claim_together(served: Flask, postgres_proxy: PostgresProxy, engine: Engine) -> ClaimTogether:
    """A function that sends claims, of which the first is blocked until all others wait for it."""
    batcher = batcher_of(served)

    def claim_together(claims: Sequence[tuple[Any, Any]]) -> list[TestResponse]:
        with ThreadPoolExecutor(len(claims)) as threads:
            with locked_providers(engine):
                running: list[Future[TestResponse]] = []
                for number, claim in enumerate(claims):
                    running.append(threads.submit(send, served, *claim))
                    wait_until(
                        lambda sent=number + 1: len(postgres_proxy.statements) + batcher.waiting() == sent
                    )
            return [each.result() for each in running]

    return claim_together


def batcher_of(app: Flask) -> ClaimBatcher:
    return app.extensions["claim_service"].batcher  # type: ignore[no-any-return]


def calls(postgres_proxy: PostgresProxy) -> list[str]:
    """Return the beginnings of all statements: each claim or batch is one statement."""
    return [sent.partition("(")[0] for sent in postgres_proxy.statements]


def test_claims_on_one_provider_are_one_batch(claim_together, provider, used, api, postgres_proxy):
    host = provider(VCPU=16)
    consumers = [uuid4() for _ in range(5)]
    responses = claim_together([(uuid, consumer(allocation(host, 2))) for uuid in consumers])
    assert [response.status_code for response in responses] == [204] * 5
    assert calls(postgres_proxy) == [CLAIM, CLAIM_BATCH]
    assert used(host) == {"VCPU": 10}
    # One increment for the inventory and one for each claim, as if the claims were made one by one.
    assert api("GET", f"/resource_providers/{host}").json["generation"] == 1 + 5
    for uuid in consumers:
        assert api("GET", f"/allocations/{uuid}").json["consumer_generation"] == 1


def test_claims_on_the_same_set_of_providers_are_one_batch(
    claim_together, provider, used, api, postgres_proxy
):
    hosts = [provider(VCPU=16, DISK_GB=16) for _ in range(2)]
    both = {**allocation(hosts[0], 1), **allocation(hosts[1], 2)}
    other_order = {**allocation(hosts[1], 2, "DISK_GB"), **allocation(hosts[0], 1, "DISK_GB")}
    bodies = [consumer(both), consumer(both), consumer(other_order), consumer(allocation(hosts[0], 1))]
    responses = claim_together([(uuid4(), body) for body in bodies])
    assert [response.status_code for response in responses] == [204] * 4
    assert sorted(calls(postgres_proxy)) == [CLAIM] * 2 + [CLAIM_BATCH]
    assert [used(host) for host in hosts] == [{"VCPU": 3, "DISK_GB": 1}, {"VCPU": 4, "DISK_GB": 2}]
    generations = [api("GET", f"/resource_providers/{host}").json["generation"] for host in hosts]
    assert generations == [1 + 4, 1 + 3]


def test_batch_beyond_the_capacity_grants_the_claims_that_fit(claim_together, provider, used):
    host = provider(VCPU=4)
    responses = claim_together([(uuid4(), consumer(allocation(host, 1))) for _ in range(6)])
    assert sorted(response.status_code for response in responses) == [204] * 4 + [409] * 2
    assert all(
        "exceed the capacity" in response.text for response in responses if response.status_code == 409
    )
    assert used(host) == {"VCPU": 4}


def test_refused_claim_does_not_affect_the_others(claim_together, provider, used, api):
    host = provider(VCPU=16)
    known, missing = uuid4(), str(uuid4())
    assert api("PUT", f"/allocations/{known}", consumer(allocation(host, 1))).status_code == 204
    responses = claim_together(
        [
            (uuid4(), consumer(allocation(host, 1))),
            (uuid4(), consumer(allocation(host, 1))),
            (known, consumer(allocation(host, 3))),
            (uuid4(), consumer(allocation(host, 99))),
            (uuid4(), consumer(allocation(host, 1, "CUSTOM_UNKNOWN"))),
            (uuid4(), consumer(allocation(missing, 1))),
            (uuid4(), consumer(allocation(host, 1, "DISK_GB"))),
            (uuid4(), consumer(allocation(host, 1)) | {"project_id": "another"}),
        ]
    )
    assert [response.status_code for response in responses] == [204, 204, 409, 409, 400, 400, 409, 204]
    assert code(responses[2]) == "placement.concurrent_update"
    assert used(host) == {"VCPU": 4}
    assert api("GET", "/usages?project_id=another").json["usages"]["INSTANCE"]["VCPU"] == 1


def test_one_of_two_claims_of_a_new_consumer_is_granted(claim_together, provider, used, api):
    host, uuid = provider(VCPU=16), uuid4()
    bodies = [(uuid4(), 1), (uuid, 2), (uuid, 3), (uuid4(), 1)]
    responses = claim_together([(each, consumer(allocation(host, amount))) for each, amount in bodies])
    assert sorted(response.status_code for response in responses[1:3]) == [204, 409]
    assert [responses[0].status_code, responses[3].status_code] == [204, 204]
    amount = api("GET", f"/allocations/{uuid}").json["allocations"][host]["resources"]["VCPU"]
    assert used(host) == {"VCPU": 2 + amount}


def test_batch_whose_connection_is_lost_is_granted_once(claim_together, provider, used, postgres_proxy):
    host = provider(VCPU=16)
    for delivered, amount in ((False, 4), (True, 8)):
        postgres_proxy.statements.clear()
        postgres_proxy.drop_connection_at(CLAIM_BATCH, delivered=delivered)
        responses = claim_together([(uuid4(), consumer(allocation(host, 1))) for _ in range(4)])
        assert [response.status_code for response in responses] == [204] * 4
        assert used(host) == {"VCPU": amount}


@pytest.mark.parametrize("served", [1], indirect=True)
def test_claim_that_waits_for_a_batch_gets_its_lock_timeout(served, postgres_proxy, engine, provider):
    host, batcher = provider(VCPU=16), batcher_of(served)
    with ThreadPoolExecutor(4) as threads:
        with locked_providers(engine):
            # The lock timeout of the first claim starts when the others wait for it.
            with postgres_proxy.holding(CLAIM):
                running = [
                    threads.submit(send, served, uuid4(), consumer(allocation(host, 1))) for _ in range(4)
                ]
                wait_until(lambda: len(postgres_proxy.statements) + batcher.waiting() == 4)
            wait_until(lambda: all(each.done() for each in running))
        for each in running:
            assert each.result().status_code == 503
            assert "held what this one needs for too long" in each.result().text
    assert send(served, uuid4(), consumer(allocation(host, 1))).status_code == 204
