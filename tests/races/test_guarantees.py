"""Requests that meet: real threads on the real database (`spec/allocations.md 14`)."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from uuid import uuid4

import pytest
from sqlalchemy import text

from placement_svc.app import create_app

ROUNDS = 5

OWNER = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}


def race(*requests):
    """Send all requests at the same moment and return their responses in order."""
    start = Barrier(len(requests))

    def send(request):
        start.wait()
        return request()

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(send, requests))


def statuses(responses):
    return sorted(response.status_code for response in responses)


def code(response):
    return response.json["errors"][0]["code"]


def held(provider, amount, resource_class="VCPU"):
    return {provider: {"resources": {resource_class: amount}}}


def consumer(allocations, generation=None):
    return {"allocations": allocations, "consumer_generation": generation, **OWNER}


@pytest.fixture
def put(api):
    """Return a function that gives a request: PUT the allocations of a consumer."""

    def put(uuid, allocations, generation=None):
        return partial(api, "PUT", f"/allocations/{uuid}", consumer(allocations, generation))

    return put


@pytest.fixture
def post(api):
    """Return a function that gives a request: POST the allocations of several consumers."""

    def post(consumers):
        return partial(api, "POST", "/allocations", consumers)

    return post


@pytest.fixture
def provider(api):
    """Return a function that creates a provider with inventories and returns its uuid."""

    def provider(**totals):
        uuid = str(uuid4())
        assert api("POST", "/resource_providers", {"name": uuid, "uuid": uuid}).status_code == 200
        body = inventories(0, **totals)
        assert api("PUT", f"/resource_providers/{uuid}/inventories", body).status_code == 200
        return uuid

    return provider


def inventories(generation, **totals):
    return {
        "resource_provider_generation": generation,
        "inventories": {name: {"total": total} for name, total in totals.items()},
    }


@pytest.fixture
def used(api):
    """Return a function that tells what is used of a provider."""

    def used(uuid):
        return api("GET", f"/resource_providers/{uuid}/usages").json["usages"]

    return used


@pytest.fixture(autouse=True)
def _books(engine):
    """Balance the books after every race: what is stored as used is held, and fits."""
    yield
    with engine.connect() as connection:
        wrong = connection.execute(
            text("""
                SELECT provider_id, resource_class_id, inventories.used, capacity, sum(allocations.used)
                  FROM inventories LEFT JOIN allocations USING (provider_id, resource_class_id)
                 GROUP BY provider_id, resource_class_id
                HAVING inventories.used <> coalesce(sum(allocations.used), 0)
                    OR inventories.used > capacity
            """)
        ).all()
        idle = connection.execute(
            text("SELECT uuid FROM consumers WHERE id NOT IN (SELECT consumer_id FROM allocations)")
        ).all()
    assert not wrong
    assert not idle


@pytest.mark.parametrize("generation", [None, 1])
def test_one_of_those_who_know_a_consumer_alike_writes_it(generation, api, put, provider):
    for _ in range(ROUNDS):
        host, instance = provider(VCPU=100), uuid4()
        if generation:
            assert put(instance, held(host, 50))().status_code == 204
        responses = race(*(put(instance, held(host, amount), generation) for amount in range(1, 9)))
        assert statuses(responses) == [204] + [409] * 7
        assert {code(r) for r in responses if r.status_code == 409} == {"placement.concurrent_update"}
        [winner] = [n for n, response in enumerate(responses, 1) if response.status_code == 204]
        found = api("GET", f"/allocations/{instance}").json
        assert found["allocations"][host]["resources"] == {"VCPU": winner}
        assert found["consumer_generation"] == (generation or 0) + 1


def test_emptying_a_consumer_never_wipes_what_came_between(api, put, provider):
    for _ in range(ROUNDS):
        host, instance = provider(VCPU=100), uuid4()
        put(instance, held(host, 1))()
        emptied, changed = race(put(instance, {}, 1), put(instance, held(host, 2), 1))
        assert statuses([emptied, changed]) == [204, 409]
        left = api("GET", f"/allocations/{instance}").json["allocations"]
        assert bool(left) == (changed.status_code == 204)


def test_all_get_what_fits(put, provider, used):
    host = provider(VCPU=16)
    responses = race(*(put(uuid4(), held(host, 1)) for _ in range(16)))
    assert statuses(responses) == [204] * 16
    assert used(host) == {"VCPU": 16}


def test_as_many_get_the_last_units_as_there_are(app, provider, used):
    other = create_app(app.extensions["settings"])
    workers = [app, other]
    headers = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
    for _ in range(ROUNDS):
        host = provider(VCPU=5)
        responses = race(
            *(
                partial(
                    workers[n % 2].test_client().put,
                    f"/allocations/{uuid4()}",
                    json=consumer(held(host, 1)),
                    headers=headers,
                )
                for n in range(16)
            )
        )
        assert statuses(responses) == [204] * 5 + [409] * 11
        refused = [response for response in responses if response.status_code == 409]
        assert {code(response) for response in refused} == {"placement.undefined_code"}
        assert all("exceed the capacity" in r.json["errors"][0]["detail"] for r in refused)
        assert used(host) == {"VCPU": 5}
    other.extensions["database"].engine.dispose()


def test_nobody_gets_in_while_a_full_provider_is_passed_on(api, put, post, provider):
    for _ in range(ROUNDS):
        host, old, new = provider(VCPU=8), str(uuid4()), str(uuid4())
        put(old, held(host, 8))()
        moved, *others = race(
            post({old: consumer({}, 1), new: consumer(held(host, 8))}),
            *(put(uuid4(), held(host, 1)) for _ in range(6)),
        )
        assert moved.status_code == 204
        assert statuses(others) == [409] * 6
        assert api("GET", f"/allocations/{old}").json == {"allocations": {}}


def test_a_delete_and_a_write_take_turns(api, put, provider):
    for _ in range(ROUNDS):
        host, instance = provider(VCPU=8), uuid4()
        put(instance, held(host, 1))()
        deleted, written = race(
            partial(api, "DELETE", f"/allocations/{instance}"), put(instance, held(host, 2), 1)
        )
        assert deleted.status_code == 204
        assert written.status_code in (204, 409)
        assert api("GET", f"/allocations/{instance}").json == {"allocations": {}}


def test_one_of_two_deletes_finds_something(api, put, provider):
    for _ in range(ROUNDS):
        host, instance = provider(VCPU=8), uuid4()
        put(instance, held(host, 1))()
        delete = partial(api, "DELETE", f"/allocations/{instance}")
        assert statuses(race(delete, delete)) == [204, 404]


def test_writes_in_opposite_orders_do_not_end_each_other(api, provider, used):
    hosts = [provider(VCPU=1000, DISK_GB=1000) for _ in range(3)]
    instances = [str(uuid4()) for _ in range(3)]
    everything = {host: {"resources": {"VCPU": 1, "DISK_GB": 1}} for host in hosts}
    allocations = {instance: {"allocations": everything} for instance in instances}
    owner = {"project_id": "project", "user_id": "user"}

    def ordered(step):
        return {
            instance: {"allocations": dict(list(held["allocations"].items())[::step]), **owner}
            for instance, held in list(allocations.items())[::step]
        }

    requests = [partial(api, "POST", "/allocations", ordered(step), "1.13") for step in (1, -1)]
    deletes = [partial(api, "DELETE", f"/allocations/{instance}") for instance in instances]
    for _ in range(ROUNDS):
        responses = race(*requests * 4, *deletes)
        assert statuses(responses[:8]) == [204] * 8
        assert set(statuses(responses[8:])) <= {204, 404}
        assert statuses([requests[0]()]) == [204]
        assert [used(host) for host in hosts] == [{"VCPU": 3, "DISK_GB": 3}] * 3


def test_claims_and_new_inventory_see_each_other_whole(api, put, provider, used):
    for _ in range(ROUNDS):
        host = provider(VCPU=2)
        grown, *claims = race(
            partial(api, "PUT", f"/resource_providers/{host}/inventories", inventories(1, VCPU=4)),
            *(put(uuid4(), held(host, 1)) for _ in range(6)),
        )
        granted = statuses(claims).count(204)
        assert used(host) == {"VCPU": granted}
        if grown.status_code == 409:
            assert code(grown) == "placement.concurrent_update"
            assert granted == 2
        else:
            assert granted == 4


def test_inventory_goes_away_or_is_claimed(api, put, provider, used):
    for _ in range(ROUNDS):
        host = provider(VCPU=4, VGPU=4)
        dropped, claimed = race(
            partial(api, "PUT", f"/resource_providers/{host}/inventories", inventories(1, VCPU=4)),
            put(uuid4(), held(host, 1, "VGPU")),
        )
        assert statuses([dropped, claimed]) in ([200, 409], [204, 409])
        assert used(host) == ({"VCPU": 0} if dropped.status_code == 200 else {"VCPU": 0, "VGPU": 1})


def test_a_reshape_and_claims_see_each_other_whole(api, put, provider, used):
    for _ in range(ROUNDS):
        root, child, instance = provider(VGPU=4), provider(VCPU=1), str(uuid4())
        put(instance, held(root, 4, "VGPU"))()
        reshape = {
            "inventories": {root: inventories(2, VCPU=8), child: inventories(1, VGPU=4)},
            "allocations": {instance: consumer(held(child, 4, "VGPU"), 1)},
        }
        reshaped, *claims = race(
            partial(api, "POST", "/reshaper", reshape),
            *(put(uuid4(), held(root, 1, "VGPU")) for _ in range(3)),
            *(put(uuid4(), held(child, 1, "VGPU")) for _ in range(3)),
        )
        # No claim fits, before or after: so none disturbs the reshape.
        assert reshaped.status_code == 204
        assert statuses(claims) == [409] * 6
        assert used(root) == {"VCPU": 0}
        assert used(child) == {"VGPU": 4}


def test_a_reshape_of_what_was_claimed_meanwhile_is_refused(api, put, provider, used):
    for _ in range(ROUNDS):
        root, child = provider(VGPU=4), provider(VCPU=1)
        reshape = {
            "inventories": {root: inventories(1, VCPU=8), child: inventories(1, VGPU=4)},
            "allocations": {},
        }
        reshaped, claimed = race(
            partial(api, "POST", "/reshaper", reshape), put(uuid4(), held(root, 1, "VGPU"))
        )
        assert statuses([reshaped, claimed]) == [204, 409]
        if reshaped.status_code == 409:
            assert code(reshaped) == "placement.concurrent_update"
            assert used(root) == {"VGPU": 1}
        else:
            assert code(claimed) == "placement.undefined_code"
            assert used(child) == {"VGPU": 0}
