"""Searches with claims that race with each other and with other writes (`docs/spec/extensions.md 5.1`)."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from uuid import uuid4

import pytest

from tests.races.helpers import ROUNDS, allocation, code, inventories, race, repeatedly, statuses
from tests.support.claims_oracle import consumer
from tests.support.service import TIMEOUT

CLIENTS = 8
MAX_ATTEMPTS = 7
"""The snapshots of a call whose first exclusive attempt also loses; without exclusive ones, up to 15."""


def new(how_many):
    """Return new consumers."""
    return [consumer(str(uuid4())) for _ in range(how_many)]


def check_placed(api, responses):
    """Check that each acknowledged consumer has what its response says."""
    for response in responses:
        for claim in response.json["claims"]:
            stored = api("GET", f"/allocations/{claim['consumer_uuid']}").json
            assert stored["consumer_generation"] == claim["consumer_generation"]
            assert {uuid: each["resources"] for uuid, each in stored["allocations"].items()} == {
                uuid: each["resources"] for uuid, each in claim["allocations"].items()
            }


def test_calls_for_the_last_slots_are_soon_placed(api, place, provider, used, deadlocks):
    """All clients want the same hosts, as their requests have an order."""
    before = deadlocks()
    hosts = [provider(VCPU=1) for _ in range(120)]
    request = "resources=VCPU:1&order_by=pack:VCPU"

    def fill(_):
        placed = []
        while (response := place(*new(3), request=request)()).status_code == 200:
            placed.append(response)
        assert code(response) == "placement_svc.no_candidates"
        return placed

    with ThreadPoolExecutor(12) as threads:
        responses = [response for placed in threads.map(fill, range(12)) for response in placed]
    assert len(responses) == 40
    assert [used(host) for host in hosts] == [{"VCPU": 1}] * 120
    assert max(response.json["attempts"] for response in responses) <= MAX_ATTEMPTS
    check_placed(api, responses)
    assert deadlocks() == before


@pytest.mark.parametrize("together", [1, 3])
def test_everyone_is_placed_while_there_is_room(api, place, provider, used, deadlocks, together):
    """The calls need exactly all that is free."""
    for _ in range(ROUNDS):
        before = deadlocks()
        hosts = [provider(VCPU=4) for _ in range(6)]
        responses = race(*(place(*new(together)) for _ in range(24 // together)))
        assert statuses(responses) == [200] * (24 // together)
        assert [used(host) for host in hosts] == [{"VCPU": 4}] * 6
        check_placed(api, responses)
        refused = place(*new(1))()
        assert (refused.status_code, code(refused)) == (409, "placement_svc.no_candidates")
        assert deadlocks() == before


def test_as_many_are_placed_as_fit(api, place, provider, used):
    for _ in range(ROUNDS):
        host = provider(VCPU=5)
        responses = race(*(place(*new(1)) for _ in range(CLIENTS)))
        assert statuses(responses) == [200] * 5 + [409] * 3
        refused = [response for response in responses if response.status_code == 409]
        assert {code(response) for response in refused} == {"placement_svc.no_candidates"}
        assert used(host) == {"VCPU": 5}
        check_placed(api, [response for response in responses if response.status_code == 200])


def test_one_of_several_calls_for_the_same_consumers_succeeds(api, place, provider, deadlocks):
    before = deadlocks()
    for number in range(ROUNDS):
        provider(VCPU=100), provider(VCPU=100)
        # In different orders, so that calls lock consumers in a fixed one.
        consumers = new(3)
        responses = race(
            *(place(*(consumers[each % 3 :] + consumers[: each % 3])) for each in range(CLIENTS))
        )
        assert statuses(responses) == [200] + [409] * (CLIENTS - 1), number
        assert {code(each) for each in responses if each.status_code == 409} == {
            "placement.concurrent_update"
        }
    assert deadlocks() == before


def test_nobody_is_refused_during_other_writes(api, place, provider, used, put, deadlocks):
    """Other clients use at most 8 VCPU of 32 at a time, and the calls at most 24."""
    before = deadlocks()
    hosts = [provider(VCPU=8) for _ in range(4)]
    is_granted = Event()

    def churn(host):
        uuid = uuid4()
        if put(uuid, allocation(host, 2))().status_code == 204:
            is_granted.set()
            assert api("DELETE", f"/allocations/{uuid}").status_code == 204
        generation = api("GET", f"/resource_providers/{host}/inventories").json[
            "resource_provider_generation"
        ]
        response = api("PUT", f"/resource_providers/{host}/inventories", inventories(generation, VCPU=8))
        assert response.status_code in (200, 409)

    def schedule():
        for _ in range(10):
            consumers = new(3)
            response = place(*consumers)()
            assert response.status_code == 200, response.json
            check_placed(api, [response])
            for each in consumers:
                assert api("DELETE", f"/allocations/{each['uuid']}").status_code == 204

    with repeatedly(*(partial(churn, host) for host in hosts)), ThreadPoolExecutor(CLIENTS) as threads:
        assert is_granted.wait(TIMEOUT)
        for running in [threads.submit(schedule) for _ in range(CLIENTS)]:
            running.result()
    assert [used(host) for host in hosts] == [{"VCPU": 0}] * 4
    assert deadlocks() == before
