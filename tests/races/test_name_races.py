"""Races of requests that create, delete and rename traits and resource classes."""

import threading
from functools import partial
from uuid import uuid4

import pytest

from placement_svc.db import allocations
from placement_svc.db.claims import procedures
from tests.races.helpers import ROUNDS, consumer, inventories, race, statuses

CLIENTS = 4


@pytest.mark.parametrize("path", ["/traits/CUSTOM_RACE", "/resource_classes/CUSTOM_RACE"])
def test_only_one_delete_succeeds(api, path):
    for _ in range(ROUNDS):
        api("PUT", path)
        assert statuses(race(*[partial(api, "DELETE", path)] * CLIENTS)) == [204, *[404] * (CLIENTS - 1)]


def test_a_trait_that_is_deleted_meanwhile_is_created(api):
    path = "/traits/CUSTOM_RACE"
    for _ in range(ROUNDS):
        api("PUT", path)
        puts = [partial(api, "PUT", path)] * CLIENTS
        deletes = [partial(api, "DELETE", path)] * CLIENTS
        assert {each.status_code for each in race(*puts, *deletes)[:CLIENTS]} <= {201, 204}
        api("DELETE", path)


def test_only_one_rename_or_delete_succeeds(api):
    old = "/resource_classes/CUSTOM_OLD"
    for _ in range(ROUNDS):
        api("PUT", old)
        new = [f"CUSTOM_NEW_{number}" for number in range(CLIENTS)]
        renames = [partial(api, "PUT", old, {"name": name}, version="1.6") for name in new]
        responses = race(*renames, partial(api, "DELETE", old))
        assert sorted(each.status_code for each in responses)[0] in (200, 204)
        assert [each.status_code for each in responses].count(404) == CLIENTS
        left = [name for name in new if api("GET", f"/resource_classes/{name}").status_code == 200]
        assert len(left) == sum(each.status_code == 200 for each in responses)
        for name in left:
            api("DELETE", f"/resource_classes/{name}")


def test_class_keeps_its_name_until_a_reshape_has_ended(api, provider, used, monkeypatch):
    old, new = "/resource_classes/CUSTOM_OLD", {"name": "CUSTOM_NEW"}
    api("PUT", old)
    uuid, other = provider(CUSTOM_OLD=8), provider(VCPU=8)
    rename = threading.Thread(target=api, args=("PUT", old, new), kwargs={"version": "1.6"})
    allocate = allocations.allocate

    def allocate_during_rename(*args, **kwargs):
        rename.start()
        rename.join(0.5)
        return allocate(*args, **kwargs)

    monkeypatch.setattr(allocations, "allocate", allocate_during_rename)
    body = {
        "inventories": {other: inventories(1, VCPU=8)},
        "allocations": {str(uuid4()): consumer({uuid: {"resources": {"CUSTOM_OLD": 3}}})},
    }
    assert api("POST", "/reshaper", body).status_code == 204
    rename.join()
    assert used(uuid) == {"CUSTOM_NEW": 3}


def test_claim_is_tried_again_if_its_class_had_another_name_meanwhile(api, provider, used, monkeypatch):
    api("PUT", "/resource_classes/CUSTOM_OLD")
    uuid, consumer_uuid = provider(CUSTOM_OLD=8), str(uuid4())
    claim, outcomes = procedures.claim, []

    def claim_during_renames(*args, **kwargs):
        if not outcomes:
            api("PUT", "/resource_classes/CUSTOM_OLD", {"name": "CUSTOM_NEW"}, version="1.6")
        outcomes.append(claim(*args, **kwargs))
        if len(outcomes) == 1:
            api("PUT", "/resource_classes/CUSTOM_NEW", {"name": "CUSTOM_OLD"}, version="1.6")
        return outcomes[-1]

    monkeypatch.setattr(procedures, "claim", claim_during_renames)
    body = consumer({uuid: {"resources": {"CUSTOM_OLD": 3}}})
    assert api("PUT", f"/allocations/{consumer_uuid}", body).status_code == 204
    assert [outcome is None for outcome in outcomes] == [False, True]
    assert used(uuid) == {"CUSTOM_OLD": 3}


def test_claims_during_renames_are_granted_or_name_an_unknown_class(api, provider):
    api("PUT", "/resource_classes/CUSTOM_OLD")
    uuid, is_over = provider(CUSTOM_OLD=1000, VCPU=5), threading.Event()

    def rename():
        while not is_over.is_set():
            for old, new in (("OLD", "NEW"), ("NEW", "OLD")):
                api("PUT", f"/resource_classes/CUSTOM_{old}", {"name": f"CUSTOM_{new}"}, version="1.6")

    thread = threading.Thread(target=rename)
    thread.start()
    try:
        body = consumer({uuid: {"resources": {"CUSTOM_OLD": 1}}})
        for _ in range(10 * ROUNDS):
            claims = [partial(api, "PUT", f"/allocations/{uuid4()}", body) for _ in range(CLIENTS)]
            assert {each.status_code for each in race(*claims)} <= {204, 400}
    finally:
        is_over.set()
        thread.join()
