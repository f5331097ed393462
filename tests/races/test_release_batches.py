"""Releases in batches: each release, and each claim of its batch, gets the response it would get alone."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Engine, text
from werkzeug.test import TestResponse

from placement_svc.db.claims import procedures
from tests.conftest import ADMIN, NewApp
from tests.races.helpers import allocation, consumer
from tests.support.placement_groups import add_members
from tests.support.postgres_proxy import PostgresProxy
from tests.support.service import wait_until
from tests.support.stored_allocations import stored_members

CLAIM, TOGETHER, RELEASE = (
    statement.partition("(")[0]
    for statement in (procedures.CLAIM, procedures.CLAIM_AND_RELEASE, procedures.DELETE_CONSUMER)
)
"""The beginnings of the statements, up to the name of the procedure."""

UNKNOWN = "it is not known whether anything has changed"

Request = Callable[[], TestResponse]
SendTogether = Callable[[str, Sequence[Request]], list[TestResponse]]


@pytest.fixture
def served(request: pytest.FixtureRequest, postgres_proxy: PostgresProxy, new_app: NewApp) -> Flask:
    """The application, connected through the proxy; the parameter is the lock timeout in seconds."""
    app = new_app(database_url=postgres_proxy.url, lock_timeout=getattr(request, "param", 10))
    app.extensions["database"].prepare()
    return app


@pytest.fixture
def put(served: Flask):
    """A function that returns a request: PUT the allocations of a consumer."""

    def put(uuid, host, amount=1, generation=None):
        body = consumer(allocation(host, amount), generation)
        return lambda: served.test_client().put(f"/allocations/{uuid}", json=body, headers=ADMIN)

    return put


@pytest.fixture
def delete(served: Flask):
    """A function that returns a request: DELETE the allocations of a consumer."""

    def delete(uuid):
        return lambda: served.test_client().delete(f"/allocations/{uuid}", headers=ADMIN)

    return delete


@pytest.fixture
def claimed(put):
    """A function that claims on a host for new consumers, and returns their uuids."""

    def claimed(host, number, amount=1):
        uuids = [str(uuid4()) for _ in range(number)]
        for uuid in uuids:
            assert put(uuid, host, amount)().status_code == 204
        return uuids

    return claimed


@pytest.fixture
def send_together(served: Flask, postgres_proxy: PostgresProxy, engine: Engine, put) -> SendTogether:
    """A function that sends requests while a claim on the same host is blocked, and returns the responses.

    When all requests wait, the claim is granted.
    """
    batcher = served.extensions["claim_service"].batcher

    def send_together(host: str, requests: Sequence[Request]) -> list[TestResponse]:
        with ThreadPoolExecutor(1 + len(requests)) as threads:
            with engine.begin() as other:
                other.execute(text("SELECT FROM resource_providers FOR UPDATE"))
                postgres_proxy.statements.clear()
                blocked = threads.submit(put(uuid4(), host))
                wait_until(lambda: len(postgres_proxy.statements) == 1)
                running: list[Future[TestResponse]] = []
                for number, request in enumerate(requests, 1):
                    running.append(threads.submit(request))
                    wait_until(lambda waiting=number: batcher.waiting() == waiting)
            assert blocked.result().status_code == 204
            return [each.result() for each in running]

    return send_together


def calls(postgres_proxy: PostgresProxy) -> list[str]:
    """Return the beginnings of the statements of claims and releases, but not of reads."""
    statements = [sent.partition("(")[0] for sent in postgres_proxy.statements]
    return [sent for sent in statements if sent in (CLAIM, TOGETHER, RELEASE)]


def generation(api, host):
    return api("GET", f"/resource_providers/{host}").json["generation"]


def test_claims_and_releases_on_one_provider_are_one_batch(
    send_together, claimed, put, delete, provider, used, api, postgres_proxy
):
    host, new = provider(VCPU=16), [str(uuid4()) for _ in range(2)]
    old = claimed(host, 3, amount=2)
    before = generation(api, host)
    requests = [delete(old[0]), put(new[0], host, 3), delete(old[1]), put(new[1], host, 4), delete(old[2])]
    assert [response.status_code for response in send_together(host, requests)] == [204] * 5
    assert calls(postgres_proxy) == [CLAIM, TOGETHER]
    assert used(host) == {"VCPU": 1 + 3 + 4}
    # A release increments no generation.
    assert generation(api, host) == before + 3
    assert all(api("GET", f"/allocations/{uuid}").json == {"allocations": {}} for uuid in old)
    assert all(api("GET", f"/allocations/{uuid}").json["consumer_generation"] == 1 for uuid in new)


def test_releases_without_claims_are_one_batch(
    send_together, claimed, delete, provider, used, postgres_proxy
):
    host = provider(VCPU=16)
    responses = send_together(host, [delete(uuid) for uuid in claimed(host, 4)])
    assert [response.status_code for response in responses] == [204] * 4
    assert calls(postgres_proxy) == [CLAIM, TOGETHER]
    assert used(host) == {"VCPU": 1}


def test_refused_claims_do_not_affect_the_releases_of_their_batch(
    send_together, claimed, put, delete, provider, used
):
    host = provider(VCPU=8)
    old = claimed(host, 2)
    requests = [delete(old[0]), put(uuid4(), host, 9), delete(old[1]), put(uuid4(), host, 6)]
    responses = send_together(host, requests)
    assert [response.status_code for response in responses] == [204, 409, 204, 204]
    assert "exceed the capacity" in responses[1].text
    assert used(host) == {"VCPU": 1 + 6}


def test_release_of_a_consumer_that_is_gone_is_not_found_for_its_client_only(
    send_together, claimed, put, delete, provider, used, api
):
    host = provider(VCPU=16)
    old = claimed(host, 3)
    # Another service deletes it: this one does not know.
    assert api("DELETE", f"/allocations/{old[1]}").status_code == 204
    responses = send_together(host, [*(delete(uuid) for uuid in old), put(uuid4(), host)])
    assert [response.status_code for response in responses] == [204, 404, 204, 204]
    assert f"No allocations for consumer '{old[1]}'" in responses[1].text
    assert used(host) == {"VCPU": 2}


def test_second_release_of_a_consumer_is_not_found(claimed, delete, provider, used):
    host = provider(VCPU=16)
    [uuid] = claimed(host, 1)
    assert [delete(uuid)().status_code for _ in range(2)] == [204, 404]
    assert used(host) == {"VCPU": 0}


def test_consumer_that_another_service_has_moved_is_released_where_it_is(
    send_together, claimed, delete, provider, used, api, postgres_proxy
):
    host, target = provider(VCPU=16), provider(VCPU=16)
    old = claimed(host, 2)
    assert api("PUT", f"/allocations/{old[0]}", consumer(allocation(target, 5), 1)).status_code == 204
    responses = send_together(host, [delete(uuid) for uuid in old])
    assert [response.status_code for response in responses] == [204] * 2
    assert sorted(calls(postgres_proxy)) == sorted([CLAIM, TOGETHER, RELEASE, RELEASE])
    assert [used(host), used(target)] == [{"VCPU": 1}, {"VCPU": 0}]


def test_consumer_that_is_moved_here_is_released_with_the_claims_of_its_new_provider(
    send_together, claimed, put, delete, provider, used, postgres_proxy
):
    host, target = provider(VCPU=16), provider(VCPU=16)
    [moved] = claimed(host, 1)
    assert put(moved, target, 2, generation=1)().status_code == 204
    responses = send_together(target, [delete(moved), put(uuid4(), target, 3)])
    assert [response.status_code for response in responses] == [204] * 2
    assert calls(postgres_proxy) == [CLAIM, TOGETHER]
    assert [used(host), used(target)] == [{"VCPU": 0}, {"VCPU": 4}]


def test_release_of_a_locked_consumer_does_not_delay_its_batch(
    send_together, claimed, delete, provider, used, engine
):
    host = provider(VCPU=16)
    locked, other = claimed(host, 2)
    with ThreadPoolExecutor(1) as threads:
        with engine.begin() as transaction:
            lock = text("SELECT FROM consumers WHERE uuid = :uuid FOR UPDATE")
            transaction.execute(lock, {"uuid": locked})
            # The leader of the batch releases `other`; the release of `locked` is left to its own thread.
            sent = threads.submit(send_together, host, [delete(other), delete(locked)])
            wait_until(lambda: used(host) == {"VCPU": 2})
        assert [response.status_code for response in sent.result()] == [204] * 2
    assert used(host) == {"VCPU": 1}


def test_members_of_a_placement_group_leave_it_with_their_release(
    send_together, claimed, put, delete, provider, api, engine
):
    host, group = provider(VCPU=16), str(uuid4())
    old = claimed(host, 3)
    assert api("PUT", f"/placement_groups/{group}", {"policy": "affinity"}).status_code == 201
    add_members(engine, group, old)
    responses = send_together(host, [delete(old[0]), put(uuid4(), host), delete(old[1])])
    assert [response.status_code for response in responses] == [204] * 3
    assert stored_members(engine) == {old[2]: group}


@pytest.mark.parametrize("delivered", [False, True])
def test_releases_whose_connection_is_lost_succeed_if_the_consumers_are_gone(
    delivered, send_together, claimed, delete, provider, used, postgres_proxy
):
    host = provider(VCPU=16)
    old = claimed(host, 3)
    postgres_proxy.drop_connection_at(TOGETHER, delivered=delivered)
    responses = send_together(host, [delete(uuid) for uuid in old])
    assert [response.status_code for response in responses] == [204 if delivered else 503] * 3
    assert all(UNKNOWN in response.text for response in responses if not delivered)
    assert calls(postgres_proxy) == [CLAIM, TOGETHER]
    assert used(host) == {"VCPU": 1 if delivered else 4}
    assert [delete(uuid)().status_code for uuid in old] == [404 if delivered else 204] * 3


@pytest.mark.parametrize("delivered", [False, True])
def test_batch_with_a_claim_is_repeated_if_its_connection_is_lost(
    delivered, send_together, claimed, put, delete, provider, used, postgres_proxy
):
    host = provider(VCPU=16)
    old = claimed(host, 2)
    postgres_proxy.drop_connection_at(TOGETHER, delivered=delivered)
    responses = send_together(host, [delete(old[0]), put(uuid4(), host, 5), delete(old[1])])
    assert [response.status_code for response in responses] == [204] * 3
    assert calls(postgres_proxy) == [CLAIM, TOGETHER, TOGETHER]
    assert used(host) == {"VCPU": 6}


@pytest.mark.parametrize("served", [1], indirect=True)
def test_release_that_waits_for_a_batch_gets_its_lock_timeout(
    served, postgres_proxy, engine, claimed, put, delete, provider, used
):
    host, batcher = provider(VCPU=16), served.extensions["claim_service"].batcher
    old = claimed(host, 2)
    with ThreadPoolExecutor(3) as threads:
        with engine.begin() as other:
            other.execute(text("SELECT FROM inventories FOR UPDATE"))
            postgres_proxy.statements.clear()
            # The lock timeout of the first release starts when the others wait for it.
            with postgres_proxy.holding(RELEASE):
                running = [threads.submit(delete(old[0]))]
                wait_until(lambda: len(postgres_proxy.statements) == 1)
                running += [threads.submit(delete(old[1])), threads.submit(put(uuid4(), host))]
                wait_until(lambda: batcher.waiting() == 2)
            wait_until(lambda: all(each.done() for each in running))
        for each in running:
            assert each.result().status_code == 503
            assert "held what this one needs for too long" in each.result().text
    assert used(host) == {"VCPU": 2}
    # The service no longer knows the providers of these consumers.
    assert [delete(uuid)().status_code for uuid in old] == [204] * 2
