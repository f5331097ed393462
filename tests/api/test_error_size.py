"""The bounds of errors: whatever a client sends, an error response is short (`docs/spec/http.md 6`)."""

from typing import Any
from uuid import uuid4

import pytest

from placement_svc.http.errors import MAX_ERROR_SIZE
from tests.conftest import ADMIN, Api

MANY = 5_000
PROVIDER = "/resource_providers/a0000000-0000-4000-8000-000000000000"
LONG = "X" * 100_000


def names(count: int = MANY) -> list[str]:
    return [f"CUSTOM_{n}" for n in range(count)]


def uuids(count: int = MANY) -> list[str]:
    return [f"{n:08x}-0000-4000-8000-000000000000" for n in range(count)]


def claim(allocations: Any) -> dict[str, Any]:
    return {
        "allocations": allocations,
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }


def inventories(inventory: Any) -> dict[str, Any]:
    return {"resource_provider_generation": 0, "inventories": dict.fromkeys(names(), inventory)}


def traits(items: list[Any]) -> dict[str, Any]:
    return {"resource_provider_generation": 0, "traits": items}


def aggregates(items: list[Any]) -> dict[str, Any]:
    return {"resource_provider_generation": 0, "aggregates": items}


def reshape(inventories: Any, allocations: Any) -> dict[str, Any]:
    return {"inventories": inventories, "allocations": allocations}


ZERO = {"resources": {"VCPU": 0}}
BODIES: dict[str, tuple[str, str, Any, str]] = {
    "traits": ("PUT", f"{PROVIDER}/traits", traits([0] * MANY), "0 is not of type 'string'"),
    "unknown traits": ("PUT", f"{PROVIDER}/traits", traits(names()), "No such trait CUSTOM_0, CUSTOM_1, "),
    "long trait": ("PUT", f"{PROVIDER}/traits", traits([LONG]), "'XXXXX"),
    "controls": ("PUT", f"{PROVIDER}/traits", traits(["\x01" * 254, "☃" * 100_000]), "'☃☃☃"),
    "aggregates": ("PUT", f"{PROVIDER}/aggregates", aggregates([[]] * MANY), "[] is not of type 'string'"),
    "same aggregates": ("PUT", f"{PROVIDER}/aggregates", aggregates(uuids(1) * MANY), "['00000000-"),
    "nested": ("PUT", f"{PROVIDER}/aggregates", aggregates([[[[[1] * 99] * 99] * 90]]), "[[[[1, 1, "),
    "unknown keys": ("POST", "/resource_providers", dict.fromkeys(names(), 1) | {"name": "n"}, "Additional"),
    "long key": ("POST", "/resource_providers", {"name": "n", LONG: 1}, "Additional properties"),
    "long class": (
        "POST",
        f"{PROVIDER}/inventories",
        {"resource_class": LONG, "total": 1},
        "Unable to create",
    ),
    "bad inventories": ("PUT", f"{PROVIDER}/inventories", inventories(0), "0 is not of type 'object'"),
    "unknown classes": (
        "PUT",
        f"{PROVIDER}/inventories",
        inventories({"total": 1}),
        "Unknown resource class",
    ),
    "claims": ("POST", "/allocations", dict.fromkeys(uuids(), claim({PROVIDER[-36:]: ZERO})), "0 is less"),
    "keys of claims": ("POST", "/allocations", {name: {} for name in names()}, "'CUSTOM_0', 'CUSTOM_1', "),
    "one claim": ("PUT", f"/allocations/{uuid4()}", claim(dict.fromkeys(uuids(), ZERO)), "0 is less than"),
    "classes of a claim": (
        "PUT",
        f"/allocations/{uuid4()}",
        claim({PROVIDER[-36:]: {"resources": dict.fromkeys(names(), 1)}}),
        "No such resource class CUSTOM_0",
    ),
    "long class of a claim": (
        "PUT",
        f"/allocations/{uuid4()}",
        claim({PROVIDER[-36:]: {"resources": {LONG: 0}}}),
        "0 is less than the minimum of 1",
    ),
    "reshape": ("POST", "/reshaper", reshape(dict.fromkeys(uuids(9), inventories(0)), {}), "0 is not of"),
    "claims of a reshape": (
        "POST",
        "/reshaper",
        reshape(
            {PROVIDER[-36:]: {"resource_provider_generation": 0, "inventories": {}}},
            dict.fromkeys(uuids(), claim([])),
        ),
        "[] is not of type 'object'",
    ),
}

RESOURCES = "/allocation_candidates?resources=VCPU:1"
SUFFIXED = "&".join(f"resources_{n}=VCPU:1" for n in range(100))
QUERIES = {
    "keys": ("/resource_providers?" + "&".join(f"{name}=1" for name in names()), "Additional properties"),
    "keys of groups": (f"{RESOURCES}&" + "&".join(f"{name}=1" for name in names()), "'CUSTOM_0', 'CUSTOM_1'"),
    "long value": (f"/resource_providers?resources={LONG}", "Badly formed resources parameter."),
    "long uuid": (f"/resource_providers?in_tree={LONG}", "'XXXXX"),
    "long name": (f"/traits?name={LONG}", "Badly formatted name parameter."),
    "same_subtree": (f"{RESOURCES}&same_subtree={','.join(names(900))}", "Real suffixes should be specified"),
    "contradictions": (
        f"{RESOURCES}&root_required={','.join(f'{name},!{name}' for name in names(400))}",
        "Conflicting required and forbidden traits found in root_required: CUSTOM_0",
    ),
    "resourceless": (
        f"{RESOURCES}&{SUFFIXED.replace('resources', 'required').replace('VCPU:1', 'X' * 200)}",
        "Resourceless suffixed group request should be specified",
    ),
    "path": (f"/resource_providers/{LONG}", "No resource provider with uuid XXXX"),
    "markup": (f"/resource_providers?in_tree={'%26' * 5000}", "'&&&&"),
}


@pytest.fixture(autouse=True)
def provider(api: Api) -> None:
    """A provider without inventories."""
    assert api("POST", "/resource_providers", {"name": "p", "uuid": PROVIDER[-36:]}).status_code == 200


@pytest.mark.parametrize(("method", "path", "sent", "text"), BODIES.values(), ids=BODIES)
def test_error_of_a_body_is_short(api: Api, method: str, path: str, sent: Any, text: str) -> None:
    response = api(method, path, sent)
    assert response.status_code == 400
    assert text in response.json["errors"][0]["detail"]  # type: ignore[index]
    assert len(response.data) <= MAX_ERROR_SIZE


@pytest.mark.parametrize("accept", ["application/json", "text/html", "image/png"])
@pytest.mark.parametrize(("path", "text"), QUERIES.values(), ids=QUERIES)
def test_error_of_a_query_is_short(api: Api, path: str, text: str, accept: str) -> None:
    response = api("GET", path, headers={"Accept": accept})
    if accept == "application/json":
        assert response.status_code in (400, 404)
        assert text in response.json["errors"][0]["detail"]  # type: ignore[index]
    else:
        assert response.status_code in (400, 404, 406)
    assert len(response.data) <= MAX_ERROR_SIZE


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"OpenStack-API-Version": f"placement {LONG}"}, 400),
        ({"OpenStack-API-Version": f"placement 2.{'0' * 4000}"}, 406),
        ({"Content-Type": LONG}, 415),
    ],
)
def test_error_of_a_header_is_short(api: Api, headers: dict[str, str], status: int) -> None:
    response = api("POST", "/resource_providers", {"name": "n"}, headers=ADMIN | headers)
    assert response.status_code == status
    assert len(response.data) <= MAX_ERROR_SIZE


def test_cut_reason_says_how_much_is_missing(api: Api) -> None:
    [error] = api("GET", f"/resource_providers/{LONG}").json["errors"]  # type: ignore[index]
    assert error["detail"].startswith("The resource could not be found.\n\n No resource provider with uuid X")
    assert error["detail"].endswith(" more characters  ")
    assert error["request_id"]


def test_number_of_values_is_limited(api: Api) -> None:
    path = f"{PROVIDER}/aggregates"
    assert api("PUT", path, aggregates(uuids(7))).status_code == 200
    for items in ([[]] * 500_000, [{}] * 500_000, [1] * 1_100_000):
        [error] = api("PUT", path, aggregates(items)).json["errors"]  # type: ignore[index]
        assert "The body has too many values: it would take " in error["detail"]
        assert "MB of memory, and at most 64 MB are allowed." in error["detail"]
