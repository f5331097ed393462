"""Races of requests that create, delete and rename traits and resource classes."""

import threading
from functools import partial
from uuid import uuid4

import pytest

from placement_svc.db import allocations
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

    def allocate_beside_rename(*args, **kwargs):
        rename.start()
        rename.join(0.5)
        return allocate(*args, **kwargs)

    monkeypatch.setattr(allocations, "allocate", allocate_beside_rename)
    body = {
        "inventories": {other: inventories(1, VCPU=8)},
        "allocations": {str(uuid4()): consumer({uuid: {"resources": {"CUSTOM_OLD": 3}}})},
    }
    assert api("POST", "/reshaper", body).status_code == 204
    rename.join()
    assert used(uuid) == {"CUSTOM_NEW": 3}
