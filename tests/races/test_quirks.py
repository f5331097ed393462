"""Defects of the reference that this service does not have: `docs/spec/allocations.md 13`, Q1 to Q10."""

from functools import partial
from uuid import uuid4

from tests.races.helpers import ROUNDS, allocation, code, consumer, inventories, race, statuses


def test_q1_failed_or_empty_first_write_leaves_no_consumer(put, provider):
    host = provider(VCPU=8)
    for claim, status in [(allocation(str(uuid4()), 1), 400), ({}, 204)]:
        instance = uuid4()
        assert put(instance, claim)().status_code == status
        assert put(instance, allocation(host, 1))().status_code == 204


def test_q2_undecodable_query_is_a_bad_request(api):
    assert api("GET", "/usages?project_id=%ff").status_code == 400


def test_q3_invalid_inventory_of_a_malformed_class_is_a_bad_request(api, provider):
    host = provider(VCPU=8)
    wanted = {"resource_provider_generation": 1, "inventories": {"vcpu": 8}}
    assert api("POST", "/reshaper", {"inventories": {host: wanted}, "allocations": {}}).status_code == 400


def test_q4_second_of_two_new_consumers_is_refused(api, provider):
    for _ in range(ROUNDS):
        host, instance = provider(VCPU=8), uuid4()
        types = ["INSTANCE", "MIGRATION"]
        claims = [consumer(allocation(host, 1)) | {"consumer_type": type} for type in types]
        responses = race(*(partial(api, "PUT", f"/allocations/{instance}", claim) for claim in claims))
        assert statuses(responses) == [204, 409]
        [refused] = [response for response in responses if response.status_code == 409]
        assert code(refused) == "placement.concurrent_update"
        winner = types[[response.status_code for response in responses].index(204)]
        assert api("GET", f"/allocations/{instance}").json["consumer_type"] == winner


def test_q5_deleting_all_allocations_never_deletes_a_concurrent_write(api, put, provider):
    for _ in range(ROUNDS):
        host, instance = provider(VCPU=100), uuid4()
        put(instance, allocation(host, 1))()
        deleted, changed = race(put(instance, {}, 1), put(instance, allocation(host, 2), 1))
        assert statuses([deleted, changed]) == [204, 409]
        stored = api("GET", f"/allocations/{instance}").json["allocations"]
        assert bool(stored) == (changed.status_code == 204)


def test_q6_claims_with_providers_in_any_order_succeed(put, provider, used):
    hosts = [provider(VCPU=100) for _ in range(3)]
    for n in range(1, ROUNDS + 1):
        everywhere = {host: {"resources": {"VCPU": 1}} for host in hosts}
        backwards = dict(reversed(everywhere.items()))
        claims = [everywhere, backwards, allocation(hosts[0], 1), allocation(hosts[2], 1)] * 2
        assert statuses(race(*(put(uuid4(), claim) for claim in claims))) == [204] * 8
        assert [used(host)["VCPU"] for host in hosts] == [6 * n, 4 * n, 6 * n]


def test_q7_usage_of_an_overcommitted_provider_never_grows(api, put, provider, used):
    host, big, small = provider(VCPU=12), uuid4(), uuid4()
    assert put(big, allocation(host, 8))().status_code == 204
    assert put(small, allocation(host, 4))().status_code == 204
    path = f"/resource_providers/{host}/inventories"
    assert api("PUT", path, inventories(3, VCPU=3)).status_code == 200
    for generation in range(1, 5):
        restated, shrunk, *new = race(
            put(small, allocation(host, 4), generation),
            put(big, allocation(host, 8 - generation), generation),
            *(put(uuid4(), allocation(host, 1)) for _ in range(4)),
        )
        assert (restated.status_code, shrunk.status_code) == (204, 204)
        assert statuses(new) == [409] * 4
        assert used(host) == {"VCPU": 12 - generation}
    for instance in (big, small):
        api("DELETE", f"/allocations/{instance}")


def test_q8_failed_request_does_not_delete_a_consumer_created_meanwhile(api, put, post, provider):
    for _ in range(ROUNDS):
        host, instance = provider(VCPU=8), str(uuid4())
        failed, granted = race(
            post({instance: consumer(allocation(host, 9))}), put(instance, allocation(host, 1))
        )
        assert (failed.status_code, granted.status_code) == (409, 204)
        assert api("GET", f"/allocations/{instance}").json["consumer_generation"] == 1


def test_q9_inventory_created_during_a_reshape_is_a_conflict(api, provider):
    for _ in range(ROUNDS):
        host = provider(VCPU=8)
        path = f"/resource_providers/{host}/inventories"
        reshape = {"inventories": {host: inventories(1, VCPU=8, VGPU=4)}, "allocations": {}}
        added, reshaped = race(
            partial(api, "POST", path, {"resource_class": "VGPU", "total": 4}),
            partial(api, "POST", "/reshaper", reshape),
        )
        assert (added.status_code, reshaped.status_code) in ((201, 409), (409, 204))
        [refused] = [response for response in (added, reshaped) if response.status_code == 409]
        assert code(refused) == "placement.concurrent_update"


def test_q10_name_that_ends_with_a_newline_is_refused(api, provider):
    claim = consumer(allocation(provider(VCPU=8), 1)) | {"consumer_type": "INSTANCE\n"}
    assert api("PUT", f"/allocations/{uuid4()}", claim).status_code == 400
