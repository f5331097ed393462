"""Concurrent PATCH requests for one provider (`docs/spec/extensions.md 6.5`)."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Thread
from uuid import uuid4

import pytest
from sqlalchemy import text

from placement_svc.db import inventories
from tests.conftest import ADMIN
from tests.races.helpers import ROUNDS, code, race, statuses
from tests.support.lock_waits import count_waiting
from tests.support.service import wait_until
from tests.support.versions import EXTENDED_HEADER

HEADERS = {**ADMIN, **EXTENDED_HEADER}
TRAITS = [f"CUSTOM_PATCH_RACE_{n}" for n in range(8)]


@pytest.fixture
def patch(app):
    """A function that prepares a PATCH of a part of a provider."""

    def prepare(provider, part, body):
        path = f"/resource_providers/{provider}/{part}"
        return partial(app.test_client().patch, path, json=body, headers=HEADERS)

    return prepare


def test_traits_added_at_the_same_time_are_all_kept(api, patch, provider):
    for trait in TRAITS:
        api("PUT", f"/traits/{trait}")
    for _ in range(ROUNDS):
        host = provider(VCPU=1)
        before = api("GET", f"/resource_providers/{host}").json["generation"]
        responses = race(*(patch(host, "traits", {"add": [trait]}) for trait in TRAITS))
        assert statuses(responses) == [200] * 8
        found = api("GET", f"/resource_providers/{host}/traits").json
        assert sorted(found["traits"]) == TRAITS
        assert found["resource_provider_generation"] == before + 8
        assert {r.json["resource_provider_generation"] for r in responses} == set(
            range(before + 1, before + 9)
        )


def test_aggregates_joined_at_the_same_time_are_all_kept(api, patch, provider):
    for _ in range(ROUNDS):
        host, uuids = provider(VCPU=1), sorted(str(uuid4()) for _ in range(8))
        responses = race(*(patch(host, "aggregates", {"add": [uuid]}) for uuid in uuids))
        assert statuses(responses) == [200] * 8
        assert sorted(api("GET", f"/resource_providers/{host}/aggregates").json["aggregates"]) == uuids


def test_inventories_changed_at_the_same_time_are_all_kept(api, patch, provider):
    changes = [{"VCPU": {"reserved": 1}}, {"VCPU": {"max_unit": 2}}, {"MEMORY_MB": {"total": 5}}]
    for _ in range(ROUNDS):
        host = provider(VCPU=4)
        responses = race(*(patch(host, "inventories", change) for change in changes))
        assert statuses(responses) == [200] * 3
        found = api("GET", f"/resource_providers/{host}/inventories").json["inventories"]
        assert (found["VCPU"]["reserved"], found["VCPU"]["max_unit"]) == (1, 2)
        assert found["MEMORY_MB"]["total"] == 5


def test_one_of_several_patches_at_the_same_generation_succeeds(api, patch, provider):
    for _ in range(ROUNDS):
        host = provider(VCPU=4)
        generation = api("GET", f"/resource_providers/{host}").json["generation"]
        body = {"resource_provider_generation": generation}
        responses = race(*(patch(host, "inventories", {"VCPU": {"total": n}, **body}) for n in range(5, 10)))
        assert statuses(responses) == [200] + [409] * 4
        assert {code(r) for r in responses if r.status_code == 409} == {"placement.concurrent_update"}


@pytest.mark.parametrize(
    ("table", "path", "name", "change"),
    [
        ("traits", "traits", "CUSTOM_GONE", {"add": ["CUSTOM_GONE"]}),
        ("resource_classes", "inventories", "CUSTOM_GONE", {"CUSTOM_GONE": {"total": 1}}),
    ],
)
def test_name_that_is_deleted_meanwhile_is_unknown(api, patch, provider, engine, table, path, name, change):
    assert api("PUT", f"/{table}/{name}").status_code == 201
    host = provider(VCPU=1)
    with ThreadPoolExecutor(1) as threads:
        with engine.begin() as connection:
            connection.execute(text(f"DELETE FROM {table} WHERE name = :name"), {"name": name})
            response = threads.submit(patch(host, path, change))
            wait_until(lambda: count_waiting(engine) == 1)
        assert response.result().status_code == 400
        assert "deleted meanwhile" in response.result().json["errors"][0]["detail"]
    assert name not in api("GET", f"/resource_providers/{host}/{path}").text


def test_class_keeps_its_name_while_inventories_are_changed(api, patch, provider, monkeypatch):
    """Otherwise, the inventory of a renamed class could go to a new class with its former name."""
    old = "/resource_classes/CUSTOM_OLD"
    api("PUT", old)
    host = provider(CUSTOM_OLD=7, VCPU=5)

    def rename_and_create():
        api("PUT", old, {"name": "CUSTOM_NEW"}, version="1.6")
        api("PUT", old)

    others = Thread(target=rename_and_create)
    get = inventories.get

    def get_during_others(*args):
        found = get(*args)
        if others.ident is None:
            others.start()
            others.join(0.5)
        return found

    monkeypatch.setattr(inventories, "get", get_during_others)
    assert patch(host, "inventories", {"VCPU": {"total": 6}})().status_code == 200
    others.join()
    found = api("GET", f"/resource_providers/{host}/inventories").json["inventories"]
    assert found.keys() == {"VCPU", "CUSTOM_NEW"}
