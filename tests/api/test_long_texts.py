"""Texts that are longer than the column that they are compared with or stored in are never cut."""

import re
from typing import Any

import pytest
from sqlalchemy import Engine, select

from placement_svc.db.arrays import array_rows
from placement_svc.db.tables import aggregates, traits
from placement_svc.domain.limits import MAX_AGGREGATE_UUID_LENGTH, MAX_NAME_LENGTH
from tests.conftest import Api
from tests.support.versions import EXTENDED

PROVIDER = "11111111-0000-4000-8000-000000000001"
CONSUMER = "44444444-0000-4000-8000-000000000001"
TOO_LONG = [f"urn:uuid:urn:uuid:22222222-0000-4000-8000-{number:012}" for number in (5, 6)]
"""Two aggregates that differ only behind their first 50 characters."""

NAME = f"CUSTOM_{'L' * (MAX_NAME_LENGTH - len('CUSTOM_'))}"


@pytest.fixture
def provider(api: Api) -> str:
    """The path of a provider with one VCPU."""
    api("POST", "/resource_providers", {"name": "host", "uuid": PROVIDER})
    path = f"/resource_providers/{PROVIDER}"
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1}}}
    assert api("PUT", f"{path}/inventories", body).status_code == 200
    return path


@pytest.mark.parametrize(
    ("method", "version", "body"),
    [
        ("PUT", "1.1", TOO_LONG),
        ("PUT", "1.19", {"aggregates": TOO_LONG, "resource_provider_generation": 1}),
        ("PATCH", EXTENDED, {"add": TOO_LONG[:1]}),
        ("PATCH", EXTENDED, {"remove": TOO_LONG[:1]}),
    ],
)
def test_spelling_of_an_aggregate_is_too_long(
    api: Api, provider: str, method: str, version: str, body: Any
) -> None:
    response = api(method, f"{provider}/aggregates", body, version=version)
    assert response.status_code == 400
    assert re.search(r"'urn:uuid:urn:uuid:\S+' is too long", response.json["errors"][0]["detail"])
    assert api("GET", f"{provider}/aggregates").json["aggregates"] == []


def test_longest_spelling_of_an_aggregate(api: Api, provider: str) -> None:
    longest = "-" * (MAX_AGGREGATE_UUID_LENGTH - len(PROVIDER)) + PROVIDER
    body = {"aggregates": [longest], "resource_provider_generation": 1}
    assert api("PUT", f"{provider}/aggregates", body).status_code == 200
    assert api("GET", f"{provider}/aggregates").json["aggregates"] == [longest]
    body = {"aggregates": [f"-{longest}"], "resource_provider_generation": 2}
    assert api("PUT", f"{provider}/aggregates", body).status_code == 400


def test_domains_of_a_group_are_too_long(api: Api) -> None:
    body = {"policy": "affinity", "across": TOO_LONG}
    response = api("PUT", f"/placement_groups/{CONSUMER}", body, version=EXTENDED)
    assert response.status_code == 400
    assert "is too long" in response.json["errors"][0]["detail"]


def test_names_of_traits_are_compared_as_a_whole(api: Api) -> None:
    assert api("PUT", f"/traits/{NAME}").status_code == 201
    assert api("GET", f"/traits?name=in:{NAME}X").json["traits"] == []
    assert api("GET", f"/traits?name=in:{NAME},{NAME}X").json["traits"] == [NAME]


@pytest.mark.parametrize("rest", ["", "-", "}"])
def test_ignored_consumers_are_compared_as_a_whole(api: Api, provider: str, rest: str) -> None:
    claim = {
        "allocations": {PROVIDER: {"resources": {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    assert api("PUT", f"/allocations/{CONSUMER}", claim).status_code == 204
    query = f"resources=VCPU:1&ignore_consumer={CONSUMER}{rest}"
    response = api("GET", f"/allocation_candidates?{query}", version=EXTENDED)
    assert len(response.json["allocation_requests"]) == (0 if rest else 1)


def test_arrays_of_a_statement_hold_texts_of_any_length(engine: Engine) -> None:
    with engine.connect() as connection:
        rows = array_rows([aggregates.c.uuid, traits.c.name], [(TOO_LONG[0], f"{NAME}X")], "given")
        assert connection.execute(select(rows)).one() == (TOO_LONG[0], f"{NAME}X")
