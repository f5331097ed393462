"""The counts of what a request names, which a session uses again for a short time."""

import gc
from collections.abc import Callable
from weakref import ref

import pytest
from flask import Flask

from placement_svc.db.connections.engine import Database
from placement_svc.db.search import name_lookup
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from tests.conftest import ADMIN, Api, LoadCloud, NewApp
from tests.support.cloud import SHARING, read, uuid_of
from tests.support.statements import sent_statements

AGGREGATE = uuid_of("A")


@pytest.fixture
def search(new_app: NewApp, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[int, int]]:
    """A function that searches in the only session; it returns the numbers of candidates and of counts."""
    app: Flask = new_app(pool_size=1)
    monkeypatch.setattr(name_lookup, "COUNT_SECONDS", 3600)

    def search(query: str) -> tuple[int, int]:
        with sent_statements(app.extensions["database"].engine) as sent:
            response = app.test_client().get(f"/allocation_candidates?{query}", headers=ADMIN)
        assert response.status_code == 200, response.text
        counting = sum("amounts" in statement.parameters for statement in sent if statement.parameters)
        return len(response.json["allocation_requests"]), counting

    return search


def test_amounts_are_counted_once(search: Callable[[str], tuple[int, int]], load_cloud: LoadCloud) -> None:
    load_cloud(read("h0{VCPU8}; h1{VCPU8}"))
    assert search("resources=VCPU:4") == (2, 1)
    assert search("resources=VCPU:4") == (2, 0)
    assert search("resources=VCPU:5") == (2, 1)


def test_amounts_are_counted_again_later(
    search: Callable[[str], tuple[int, int]], load_cloud: LoadCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_cloud(read("h0{VCPU8}"))
    assert search("resources=VCPU:4") == (1, 1)
    monkeypatch.setattr(name_lookup, "COUNT_SECONDS", 0)
    assert search("resources=VCPU:4") == (1, 1)


def test_used_amounts_are_not_found_with_earlier_counts(
    search: Callable[[str], tuple[int, int]], load_cloud: LoadCloud, api: Api
) -> None:
    load_cloud(read("h0{VCPU8}; h1{VCPU8}"))
    assert search("resources=VCPU:4") == (2, 1)
    path = f"/resource_providers/{uuid_of('h0')}/inventories/VCPU"
    generation = api("GET", path).json["resource_provider_generation"]
    body = {"resource_provider_generation": generation, "total": 3}
    assert api("PUT", path, json=body).status_code == 200
    assert search("resources=VCPU:4") == (1, 0)


def test_first_sharing_provider_is_found_at_once(
    search: Callable[[str], tuple[int, int]], load_cloud: LoadCloud, api: Api
) -> None:
    load_cloud(read("h{VCPU8}@A; pool{DISK_GB8}@A"))
    query = "resources=VCPU:4,DISK_GB:4"
    assert search(query) == (0, 1)
    path = f"/resource_providers/{uuid_of('pool')}/traits"
    generation = api("GET", path).json["resource_provider_generation"]
    body = {"resource_provider_generation": generation, "traits": [SHARING]}
    assert api("PUT", path, json=body).status_code == 200
    assert search(query) == (1, 1)


def test_new_name_is_found_at_once(
    search: Callable[[str], tuple[int, int]], load_cloud: LoadCloud, api: Api
) -> None:
    load_cloud(read("h{VCPU8}"))
    query = f"resources=VCPU:4&member_of={AGGREGATE}"
    assert search(query) == (0, 1)
    path = f"/resource_providers/{uuid_of('h')}/aggregates"
    generation = api("GET", path).json["resource_provider_generation"]
    body = {"resource_provider_generation": generation, "aggregates": [AGGREGATE]}
    assert api("PUT", path, json=body).status_code == 200
    assert search(query) == (1, 1)


def test_request_is_not_kept(database: Database) -> None:
    request = CandidatesRequest((RequestGroup("", {"VCPU": 1}),))
    kept = ref(request)
    database.read(name_lookup.fetch_name_rows, request)
    del request
    gc.collect()
    assert kept() is None
