"""Claims into placement groups race with each other and with other writes (`docs/spec/extensions.md 5.2`)."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from threading import Event
from time import sleep
from uuid import uuid4

import pytest
from sqlalchemy import event, make_url

from placement_svc.db.placing import service
from tests.conftest import ADMIN
from tests.races.helpers import ROUNDS, allocation, code, race, repeatedly, statuses
from tests.support.claims_oracle import consumer
from tests.support.service import TIMEOUT
from tests.support.versions import EXTENDED_HEADER

CLIENTS = 8


@pytest.fixture
def group(api):
    """A function that creates a group and returns its path."""

    def group(policy="anti-affinity", **fields):
        path = f"/placement_groups/{uuid4()}"
        assert api("PUT", path, {"policy": policy, **fields}).status_code == 201
        return path

    return group


def into(group):
    """Return the key of a body that names a group."""
    return {"placement_group": group.rpartition("/")[2]}


def new(how_many=1):
    """Return new consumers."""
    return [consumer(str(uuid4())) for _ in range(how_many)]


def roots(responses):
    """Return the roots of all consumers of responses."""
    return [claim["root"]["uuid"] for response in responses for claim in response.json["claims"]]


def release(api, consumers):
    for each in consumers:
        assert api("DELETE", f"/allocations/{each['uuid']}").status_code == 204


@pytest.mark.parametrize("together", [1, 2])
def test_each_member_gets_a_host_of_its_own(api, place, provider, group, deadlocks, together):
    """There are exactly as many hosts as members, and each has room for all of them."""
    before = deadlocks()
    hosts = {provider(VCPU=100) for _ in range(CLIENTS * together)}
    path = group()
    for _ in range(ROUNDS):
        calls = [new(together) for _ in range(CLIENTS)]
        responses = race(*(place(*consumers, **into(path)) for consumers in calls))
        assert statuses(responses) == [200] * CLIENTS
        assert sorted(roots(responses)) == sorted(hosts)
        shown = api("GET", path).json
        assert len(shown["members"]) == CLIENTS * together
        assert shown["violations"] == []
        refused = place(*new(), **into(path))()
        assert (refused.status_code, code(refused)) == (409, "placement_svc.no_candidates")
        for consumers in calls:
            release(api, consumers)
    assert deadlocks() == before


def test_affinity_keeps_all_members_on_one_host(api, place, provider, group):
    for _ in range(ROUNDS):
        for _ in range(3):
            provider(VCPU=CLIENTS)
        path = group("affinity")
        responses = race(*(place(*new(), **into(path)) for _ in range(CLIENTS)))
        granted = [response for response in responses if response.status_code == 200]
        assert granted
        assert len(set(roots(granted))) == 1
        assert {code(each) for each in responses if each.status_code != 200} <= {
            "placement_svc.no_candidates"
        }
        assert api("GET", path).json["violations"] == []


def test_a_deleted_group_gets_no_members(api, place, provider, group, deadlocks):
    before = deadlocks()
    provider(VCPU=100)
    for _ in range(ROUNDS):
        path = group("affinity")
        consumers = new()
        placed, deleted = race(place(*consumers, **into(path)), partial(api, "DELETE", path))
        if placed.status_code == 200:
            assert (deleted.status_code, code(deleted)) == (409, "placement_svc.placement_group.inuse")
        else:
            assert (placed.status_code, code(placed)) == (400, "placement_svc.placement_group.not_found")
            assert deleted.status_code == 204
            assert api("GET", f"/allocations/{consumers[0]['uuid']}").json == {"allocations": {}}
    assert deadlocks() == before


def test_consumers_in_different_groups_do_not_deadlock(api, place, provider, group, deadlocks):
    """Two groups claim the same consumers, in different orders: one call for each consumer wins."""
    before = deadlocks()
    provider(VCPU=100)
    paths = [group("affinity"), group("affinity")]
    for _ in range(ROUNDS):
        one, two = new(2)
        calls = [
            place(*order, **into(path)) for path in paths for order in ((one, two), (two, one)) for _ in "ab"
        ]
        responses = race(*calls)
        assert statuses(responses) == [200] + [409] * (len(calls) - 1)
        assert {code(each) for each in responses if each.status_code == 409} == {
            "placement.concurrent_update"
        }
        sizes = [len(api("GET", path).json["members"]) for path in paths]
        assert sorted(sizes) == [0, 2]
        release(api, [one, two])
    assert deadlocks() == before


def test_nobody_is_refused_and_no_rule_is_broken_during_other_writes(
    api, place, provider, group, put, deadlocks
):
    """There are as many hosts as members at a time; other consumers take half of each host."""
    before = deadlocks()
    hosts = [provider(VCPU=8) for _ in range(CLIENTS)]
    path = group()
    written = count()
    has_written = Event()

    def churn():
        uuid = str(uuid4())
        if put(uuid, allocation(hosts[next(written) % len(hosts)], 2))().status_code == 204:
            release(api, [{"uuid": uuid}])
        policy = {"policy": "anti-affinity", "across": "root"}
        assert api("PUT", path, policy).json["violations"] == []
        # 404 if the other thread has deleted it, 409 while it has members.
        assert api("DELETE", path).status_code in (204, 404, 409)
        assert api("PUT", path, policy).status_code in (200, 201)
        has_written.set()

    def schedule():
        for _ in range(10):
            consumers = new()
            response = place(*consumers, request="resources=VCPU:4", **into(path))()
            if response.status_code == 400:
                assert code(response) == "placement_svc.placement_group.not_found"
                continue
            assert response.status_code == 200, response.json
            shown = api("GET", path).json
            assert shown["violations"] == []
            assert len(shown["members"]) <= CLIENTS
            release(api, consumers)

    with repeatedly(churn, churn), ThreadPoolExecutor(CLIENTS) as threads:
        assert has_written.wait(TIMEOUT)
        for running in [threads.submit(schedule) for _ in range(CLIENTS)]:
            running.result()
    assert deadlocks() == before


def test_group_is_stored_while_the_provider_of_a_member_is_deleted(api, app, place, group, provider):
    path, host = group("soft-affinity"), provider(VCPU=1)
    [member] = new()
    assert place(member, **into(path))().status_code == 200
    engine, released = app.extensions["database"].engine, []

    @event.listens_for(engine, "before_cursor_execute")
    def release_first(_connection, _cursor, statement, *_):
        if "first_listed" in statement and not released:
            released.append(member)
            assert api("DELETE", f"/allocations/{member['uuid']}").status_code == 204
            assert api("DELETE", f"/resource_providers/{host}").status_code == 204

    try:
        stored = api("PUT", path, {"policy": "soft-anti-affinity"})
    finally:
        event.remove(engine, "before_cursor_execute", release_first)
    assert released
    assert (stored.status_code, stored.json.get("violations", [])) == (200, [])


def test_search_may_take_longer_than_a_session_may_be_idle(
    database_url, new_app, place, group, provider, monkeypatch
):
    search, searches = service.find_placements_and_suppliers, []

    def slow_search(*args):
        searches.append(args)
        sleep(0.5)
        return search(*args)

    monkeypatch.setattr(service, "find_placements_and_suppliers", slow_search)
    path = group()
    provider(VCPU=1)
    options = {"options": "-c idle_in_transaction_session_timeout=100ms"}
    url = make_url(database_url).update_query_dict(options).render_as_string(hide_password=False)
    client = new_app(database_url=url).test_client()
    body = {"request": "resources=VCPU:1", "consumers": new(), **into(path)}
    headers = {**ADMIN, **EXTENDED_HEADER}
    assert client.post("/claims", json=body, headers=headers).status_code == 200
    assert len(searches) == 1
