"""Guarantees under concurrency (`docs/spec/allocations.md 14`), at least one test for each."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from uuid import uuid4

import pytest

from tests.conftest import ADMIN
from tests.races.helpers import ROUNDS, allocation, code, consumer, inventories, race, statuses


def test_guarantee_1_no_query_sees_part_of_a_write(api, put, provider):
    hosts, instance = [provider(VCPU=9), provider(VCPU=9)], uuid4()
    finished = Event()
    assert put(instance, {**allocation(hosts[0], 1), **allocation(hosts[1], 1)})().status_code == 204

    def write():
        for generation in range(1, 25):
            amount = 1 + generation % 9
            claim = {**allocation(hosts[0], amount), **allocation(hosts[1], amount)}
            assert put(instance, claim, generation)().status_code == 204
        finished.set()

    def read():
        while not finished.is_set():
            found = api("GET", f"/allocations/{instance}").json
            seen = [found["allocations"][host]["resources"]["VCPU"] for host in hosts]
            assert seen == [1 + (found["consumer_generation"] - 1) % 9] * 2

    with ThreadPoolExecutor(3) as threads:
        for running in [threads.submit(write), threads.submit(read), threads.submit(read)]:
            running.result()


@pytest.mark.parametrize("generation", [None, 1])
def test_guarantee_2_one_of_several_writes_with_the_same_generation_succeeds(generation, api, put, provider):
    for _ in range(ROUNDS):
        host, instance = provider(VCPU=100), uuid4()
        if generation:
            assert put(instance, allocation(host, 50))().status_code == 204
        responses = race(*(put(instance, allocation(host, amount), generation) for amount in range(1, 9)))
        assert statuses(responses) == [204] + [409] * 7
        assert {code(r) for r in responses if r.status_code == 409} == {"placement.concurrent_update"}
        [winner] = [n for n, response in enumerate(responses, 1) if response.status_code == 204]
        found = api("GET", f"/allocations/{instance}").json
        assert found["allocations"][host]["resources"] == {"VCPU": winner}
        assert found["consumer_generation"] == (generation or 0) + 1


def test_guarantee_4_all_claims_that_fit_together_succeed(put, provider, used):
    host = provider(VCPU=16)
    responses = race(*(put(uuid4(), allocation(host, 1)) for _ in range(16)))
    assert statuses(responses) == [204] * 16
    assert used(host) == {"VCPU": 16}


def test_guarantee_5_exactly_the_remaining_units_are_granted(app, new_app, provider, used):
    workers = [app, new_app()]
    for _ in range(ROUNDS):
        host = provider(VCPU=5)
        responses = race(
            *(
                partial(
                    workers[n % 2].test_client().put,
                    f"/allocations/{uuid4()}",
                    json=consumer(allocation(host, 1)),
                    headers=ADMIN,
                )
                for n in range(16)
            )
        )
        assert statuses(responses) == [204] * 5 + [409] * 11
        refused = [response for response in responses if response.status_code == 409]
        assert {code(response) for response in refused} == {"placement.undefined_code"}
        assert all("exceed the capacity" in r.json["errors"][0]["detail"] for r in refused)
        assert used(host) == {"VCPU": 5}


def test_guarantee_5_no_claim_succeeds_while_a_full_provider_moves_between_consumers(
    api, put, post, provider
):
    for _ in range(ROUNDS):
        host, old, new = provider(VCPU=8), str(uuid4()), str(uuid4())
        put(old, allocation(host, 8))()
        moved, *others = race(
            post({old: consumer({}, 1), new: consumer(allocation(host, 8))}),
            *(put(uuid4(), allocation(host, 1)) for _ in range(6)),
        )
        assert moved.status_code == 204
        assert statuses(others) == [409] * 6
        assert api("GET", f"/allocations/{old}").json == {"allocations": {}}


def test_guarantee_7_a_delete_and_a_write_are_serialized(api, put, provider):
    for _ in range(ROUNDS):
        host, instance = provider(VCPU=8), uuid4()
        put(instance, allocation(host, 1))()
        deleted, written = race(
            partial(api, "DELETE", f"/allocations/{instance}"), put(instance, allocation(host, 2), 1)
        )
        assert deleted.status_code == 204
        assert written.status_code in (204, 409)
        assert api("GET", f"/allocations/{instance}").json == {"allocations": {}}


def test_guarantee_7_one_of_two_deletes_succeeds(api, put, provider):
    for _ in range(ROUNDS):
        host, instance = provider(VCPU=8), uuid4()
        put(instance, allocation(host, 1))()
        delete = partial(api, "DELETE", f"/allocations/{instance}")
        assert statuses(race(delete, delete)) == [204, 404]


def test_guarantee_4_writes_in_opposite_orders_do_not_deadlock(api, provider, used):
    hosts = [provider(VCPU=1000, DISK_GB=1000) for _ in range(3)]
    instances = [str(uuid4()) for _ in range(3)]
    everything = {host: {"resources": {"VCPU": 1, "DISK_GB": 1}} for host in hosts}
    allocations = {instance: {"allocations": everything} for instance in instances}
    owner = {"project_id": "project", "user_id": "user"}

    def ordered(step):
        return {
            instance: {"allocations": dict(list(claim["allocations"].items())[::step]), **owner}
            for instance, claim in list(allocations.items())[::step]
        }

    requests = [partial(api, "POST", "/allocations", ordered(step), "1.13") for step in (1, -1)]
    deletes = [partial(api, "DELETE", f"/allocations/{instance}") for instance in instances]
    for _ in range(ROUNDS):
        responses = race(*requests * 4, *deletes)
        assert statuses(responses[:8]) == [204] * 8
        assert set(statuses(responses[8:])) <= {204, 404}
        assert statuses([requests[0]()]) == [204]
        assert [used(host) for host in hosts] == [{"VCPU": 3, "DISK_GB": 3}] * 3


def test_guarantee_6_claims_see_an_inventory_change_as_a_whole(api, put, provider, used):
    for _ in range(ROUNDS):
        host = provider(VCPU=2)
        grown, *claims = race(
            partial(api, "PUT", f"/resource_providers/{host}/inventories", inventories(1, VCPU=4)),
            *(put(uuid4(), allocation(host, 1)) for _ in range(6)),
        )
        granted = statuses(claims).count(204)
        assert used(host) == {"VCPU": granted}
        if grown.status_code == 409:
            assert code(grown) == "placement.concurrent_update"
            assert granted == 2
        else:
            assert granted == 4


def test_guarantee_6_inventory_is_deleted_or_claimed(api, put, provider, used):
    for _ in range(ROUNDS):
        host = provider(VCPU=4, VGPU=4)
        deleted, claimed = race(
            partial(api, "PUT", f"/resource_providers/{host}/inventories", inventories(1, VCPU=4)),
            put(uuid4(), allocation(host, 1, "VGPU")),
        )
        assert statuses([deleted, claimed]) in ([200, 409], [204, 409])
        assert used(host) == ({"VCPU": 0} if deleted.status_code == 200 else {"VCPU": 0, "VGPU": 1})


def test_guarantee_8_claims_see_a_reshape_as_a_whole(api, put, provider, used):
    for _ in range(ROUNDS):
        root, child, instance = provider(VGPU=4), provider(VCPU=1), str(uuid4())
        put(instance, allocation(root, 4, "VGPU"))()
        reshape = {
            "inventories": {root: inventories(2, VCPU=8), child: inventories(1, VGPU=4)},
            "allocations": {instance: consumer(allocation(child, 4, "VGPU"), 1)},
        }
        reshaped, *claims = race(
            partial(api, "POST", "/reshaper", reshape),
            *(put(uuid4(), allocation(root, 1, "VGPU")) for _ in range(3)),
            *(put(uuid4(), allocation(child, 1, "VGPU")) for _ in range(3)),
        )
        # No claim fits before the reshape or after it, so none changes a generation that the reshape checks.
        assert reshaped.status_code == 204
        assert statuses(claims) == [409] * 6
        assert used(root) == {"VCPU": 0}
        assert used(child) == {"VGPU": 4}


def test_guarantee_8_a_reshape_of_inventory_claimed_meanwhile_is_refused(api, put, provider, used):
    for _ in range(ROUNDS):
        root, child = provider(VGPU=4), provider(VCPU=1)
        reshape = {
            "inventories": {root: inventories(1, VCPU=8), child: inventories(1, VGPU=4)},
            "allocations": {},
        }
        reshaped, claimed = race(
            partial(api, "POST", "/reshaper", reshape), put(uuid4(), allocation(root, 1, "VGPU"))
        )
        assert statuses([reshaped, claimed]) == [204, 409]
        if reshaped.status_code == 409:
            assert code(reshaped) == "placement.concurrent_update"
            assert used(root) == {"VGPU": 1}
        else:
            assert code(claimed) == "placement.undefined_code"
            assert used(child) == {"VGPU": 0}


def test_guarantee_3_writes_without_generations_are_serialized(api, put, provider):
    host, instance = provider(VCPU=100), uuid4()
    assert put(instance, allocation(host, 1))().status_code == 204
    body = {"allocations": allocation(host, 5), "project_id": "project", "user_id": "user"}
    responses = race(*[partial(api, "PUT", f"/allocations/{instance}", body, "1.27")] * 6)
    assert statuses(responses) == [204] * 6
    assert api("GET", f"/allocations/{instance}").json["consumer_generation"] == 7
    assert code(put(instance, allocation(host, 2), 1)()) == "placement.concurrent_update"


def test_guarantee_6_released_allocations_keep_the_provider_generation(api, put, provider):
    source, target, moved, deleted = provider(VCPU=9), provider(VCPU=9), uuid4(), uuid4()
    assert put(moved, allocation(source, 1))().status_code == 204
    assert put(deleted, allocation(source, 1))().status_code == 204
    responses = race(
        put(moved, allocation(target, 1), 1),
        partial(api, "DELETE", f"/allocations/{deleted}"),
        partial(api, "PUT", f"/resource_providers/{source}/inventories", inventories(3, VCPU=10)),
    )
    assert statuses(responses) == [200, 204, 204]


def test_guarantee_9_a_refused_claim_leaves_no_consumer(api, put, provider):
    host = provider(VCPU=4)
    for _ in range(ROUNDS):
        instance = uuid4()
        assert statuses(race(*[put(instance, allocation(host, 5))] * 4)) == [409] * 4
        assert put(instance, allocation(host, 1))().status_code == 204
        assert put(instance, {}, 1)().status_code == 204


def test_guarantee_10_allocations_are_never_older_than_the_generation(api, put, provider):
    host, instance = provider(VCPU=100), uuid4()
    finished = Event()

    def write():
        # The provider has generation 1, and each write increments it by one.
        for amount in range(1, 30):
            assert put(instance, allocation(host, amount), amount - 1 or None)().status_code == 204
        finished.set()

    def read():
        while not finished.is_set():
            found = api("GET", f"/resource_providers/{host}/allocations").json
            rows = [row["resources"]["VCPU"] for row in found["allocations"].values()]
            assert sum(rows) == found["resource_provider_generation"] - 1

    with ThreadPoolExecutor(3) as threads:
        for running in [threads.submit(write), threads.submit(read), threads.submit(read)]:
            running.result()


def test_guarantee_11_concurrent_first_uses_of_a_name_succeed(api, provider):
    for n in range(ROUNDS):
        host = provider(VCPU=100)
        owner = {"project_id": f"project {n}", "user_id": f"user {n}", "consumer_type": f"TYPE_{n}"}
        bodies = [{str(uuid4()): consumer(allocation(host, 1)) | owner for _ in range(2)} for _ in range(6)]
        responses = race(*(partial(api, "POST", "/allocations", body) for body in bodies))
        assert statuses(responses) == [204] * 6
        usages = api("GET", f"/usages?project_id=project {n}").json["usages"]
        assert usages == {f"TYPE_{n}": {"VCPU": 12, "consumer_count": 12}}
