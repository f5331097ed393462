"""The OpenAPI document is valid and complete, and matches the behavior of the service."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin

import pytest
import schemathesis
from flask import Flask
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from placement_svc.domain.errors import PlacementError
from placement_svc.openapi.operations import OPERATIONS
from tests.conftest import Api, LoadCloud, examples
from tests.support.cloud import read, uuid_of
from tests.support.versions import EXTENDED, EXTENDED_HEADER

AS_SERVICE = {"X-Auth-Token": "admin", "X-Roles": "admin,service"}
HEADERS = AS_SERVICE | EXTENDED_HEADER

NO_OTHER_HEADERS = {"generation": {"with-security-parameters": False, "allow-extra-parameters": False}}
"""Settings of schemathesis: generate no security parameters and no headers beyond the described ones."""

RESPONSE_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

API_PAGE = Path(__file__).parents[2] / "docs/api.md"

HOST, CHILD, SERVER, AGGREGATE, GROUP = (
    uuid_of(name) for name in ("host", "child", "server", "aggregate", "group")
)
AT_HOST = f"/resource_providers/{HOST}"
VCPU = {"VCPU": {"total": 8}}


def generation(number: int, **members: Any) -> dict[str, Any]:
    return {"resource_provider_generation": number, **members}


def claim(consumer_generation: int | None) -> dict[str, Any]:
    return {
        "allocations": {HOST: {"resources": {"VCPU": 1}}},
        "consumer_generation": consumer_generation,
        "consumer_type": "SERVER",
        "mappings": {"": [HOST], "_A": [HOST]},
        "project_id": "project",
        "user_id": "user",
    }


class ValidRequest(NamedTuple):
    """A request that succeeds at its position in a sequence."""

    view: str
    path: str
    body: Any = None


CLOUD = [
    ValidRequest("resource_providers.create_provider", "/resource_providers", {"name": "host", "uuid": HOST}),
    ValidRequest(
        "resource_providers.create_provider",
        "/resource_providers",
        {"name": "child", "uuid": CHILD, "parent_provider_uuid": HOST},
    ),
    ValidRequest("resource_classes.create_resource_class", "/resource_classes", {"name": "CUSTOM_BLUE"}),
    ValidRequest("traits.ensure_trait", "/traits/CUSTOM_BLUE"),
    ValidRequest(
        "inventories.replace_inventories", f"{AT_HOST}/inventories", generation(0, inventories=VCPU)
    ),
    ValidRequest(
        "provider_traits.replace_provider_traits", f"{AT_HOST}/traits", generation(1, traits=["CUSTOM_BLUE"])
    ),
    ValidRequest(
        "provider_aggregates.replace_provider_aggregates",
        f"{AT_HOST}/aggregates",
        generation(2, aggregates=[AGGREGATE]),
    ),
    ValidRequest("allocations.replace_consumer_allocations", f"/allocations/{SERVER}", claim(None)),
]
"""Requests that create a small cloud in an empty database."""

VALID_REQUESTS = [
    *CLOUD,
    ValidRequest("root.show_versions", "/"),
    ValidRequest(
        "resource_providers.list_providers", f"/resource_providers?resources=VCPU:1&in_tree={CHILD}"
    ),
    ValidRequest(
        "resource_providers.list_providers",
        "/resource_providers?include=inventories,usages,traits,aggregates,allocations&limit=1&sort_by=name",
    ),
    ValidRequest("resource_providers.show_provider", f"/resource_providers/{CHILD}"),
    ValidRequest("inventories.list_inventories", f"{AT_HOST}/inventories"),
    ValidRequest("inventories.show_inventory", f"{AT_HOST}/inventories/VCPU"),
    ValidRequest("usages.show_provider_usages", f"{AT_HOST}/usages"),
    ValidRequest("usages.show_usages", "/usages?project_id=project"),
    ValidRequest("usages.show_usages", "/usages?project_id=project&consumer_type=all"),
    ValidRequest("provider_aggregates.list_provider_aggregates", f"{AT_HOST}/aggregates"),
    ValidRequest("provider_traits.list_provider_traits", f"{AT_HOST}/traits"),
    ValidRequest("traits.list_traits", "/traits?name=startswith:CUSTOM_&associated=true"),
    ValidRequest("traits.show_trait", "/traits/CUSTOM_BLUE"),
    ValidRequest("traits.ensure_trait", "/traits/CUSTOM_BLUE"),
    ValidRequest("resource_classes.list_resource_classes", "/resource_classes"),
    ValidRequest("resource_classes.show_resource_class", "/resource_classes/CUSTOM_BLUE"),
    ValidRequest("resource_classes.put_resource_class", "/resource_classes/CUSTOM_BLUE"),
    ValidRequest("resource_classes.put_resource_class", "/resource_classes/CUSTOM_RED"),
    ValidRequest(
        "allocation_candidates.list_candidates",
        "/allocation_candidates?resources=VCPU:1&resources_A=VCPU:1&required_A=CUSTOM_BLUE&limit=1",
    ),
    ValidRequest(
        "allocation_candidates.list_candidates",
        "/allocation_candidates?resources=VCPU:9&can_split=VCPU&order_by=spread:VCPU",
    ),
    ValidRequest("empty_answers.list_empty_answers", "/allocation_candidates/empty?limit=1"),
    ValidRequest(
        "explanations.explain_candidates",
        "/allocation_candidates/explanation?resources=VCPU:9&resources_A=VCPU:1&required_A=CUSTOM_BLUE"
        "&can_split=VCPU",
    ),
    ValidRequest(
        "fits.show_fits",
        f"/allocation_candidates/capacity?resources=VCPU:1&group_by=aggregate&without={CHILD}&limit=1",
    ),
    ValidRequest("fits.show_fits", "/allocation_candidates/capacity?resources_A=VCPU:1&max=1"),
    ValidRequest(
        "claims.place_consumers",
        "/claims",
        {
            "request": "resources=VCPU:1",
            "consumers": [
                {
                    "uuid": uuid_of("other server"),
                    "project_id": "project",
                    "user_id": "user",
                    "consumer_type": "INSTANCE",
                    "consumer_generation": None,
                }
            ],
            "min_count": 1,
            "dry_run": True,
        },
    ),
    ValidRequest("allocations.show_allocations", f"/allocations/{SERVER}"),
    ValidRequest("allocations.show_allocations", f"/allocations/{CHILD}"),
    ValidRequest("allocations.list_allocations", f"/allocations?rp_uuid=in:{HOST},{CHILD}"),
    ValidRequest("allocations.list_allocations", f"/allocations?consumer_uuid=in:{SERVER},{CHILD}"),
    ValidRequest("consumers.list_consumers", "/consumers?project_id=project&include=allocations"),
    ValidRequest("capacity.show_capacity", "/capacity"),
    ValidRequest("capacity.show_capacity", "/capacity?group_by=trait&sort_by=-used:VCPU"),
    ValidRequest("consumers.show_consumer", f"/consumers/{SERVER}"),
    ValidRequest("consumers.list_projects", "/projects?sort_by=VCPU&limit=1"),
    ValidRequest(
        "placement_groups.replace_placement_group",
        f"/placement_groups/{GROUP}",
        {"policy": "anti-affinity", "across": [AGGREGATE]},
    ),
    ValidRequest(
        "placement_groups.replace_placement_group",
        f"/placement_groups/{GROUP}",
        {"policy": "soft-affinity", "across": "root"},
    ),
    ValidRequest("placement_groups.list_placement_groups", "/placement_groups?limit=1"),
    ValidRequest("placement_groups.show_placement_group", f"/placement_groups/{GROUP}"),
    ValidRequest("placement_groups.delete_placement_group", f"/placement_groups/{GROUP}"),
    ValidRequest("allocations.list_provider_allocations", f"{AT_HOST}/allocations"),
    ValidRequest("aggregates.list_aggregates", "/aggregates"),
    ValidRequest("aggregates.show_aggregate", f"/aggregates/{AGGREGATE}"),
    ValidRequest("allocations.replace_allocations", "/allocations", {SERVER: claim(1), CHILD: claim(None)}),
    ValidRequest(
        "reshaper.reshape",
        "/reshaper",
        {"inventories": {HOST: generation(5, inventories=VCPU)}, "allocations": {SERVER: claim(2)}},
    ),
    ValidRequest(
        "resource_providers.change_provider",
        f"/resource_providers/{CHILD}",
        {"name": "son", "parent_provider_uuid": None},
    ),
    ValidRequest(
        "inventories.create_inventory",
        f"/resource_providers/{CHILD}/inventories",
        {"resource_class": "CUSTOM_RED", "total": 4, "allocation_ratio": 1.5},
    ),
    ValidRequest(
        "inventories.replace_inventory",
        f"/resource_providers/{CHILD}/inventories/CUSTOM_RED",
        generation(1, total=8, reserved=8),
    ),
    ValidRequest("inventories.delete_inventory", f"/resource_providers/{CHILD}/inventories/CUSTOM_RED"),
    ValidRequest("inventories.delete_inventories", f"/resource_providers/{CHILD}/inventories"),
    ValidRequest("allocations.delete_allocations", f"/allocations/{SERVER}"),
    ValidRequest("provider_traits.change_provider_traits", f"{AT_HOST}/traits", {"add": ["CUSTOM_BLUE"]}),
    ValidRequest("provider_aggregates.change_provider_aggregates", f"{AT_HOST}/aggregates", {"remove": []}),
    ValidRequest("inventories.change_inventories", f"{AT_HOST}/inventories", {"VCPU": {"reserved": 1}}),
    ValidRequest("provider_traits.delete_provider_traits", f"{AT_HOST}/traits"),
    ValidRequest("traits.delete_trait", "/traits/CUSTOM_BLUE"),
    ValidRequest("resource_classes.delete_resource_class", "/resource_classes/CUSTOM_BLUE"),
    ValidRequest("resource_providers.delete_provider", f"/resource_providers/{CHILD}"),
]
"""A sequence of requests in which every operation succeeds at least once."""


@pytest.fixture(scope="module")
def document(shared_app: Flask) -> dict[str, Any]:
    """The OpenAPI document."""
    response = shared_app.test_client().get("/openapi.json")
    assert response.content_type == "application/json"
    return response.get_json()


@pytest.fixture(scope="module")
def described(document: dict[str, Any], shared_app: Flask) -> Any:
    """A function that returns the operation of a view as schemathesis parses it."""
    config = SchemathesisConfig.from_dict(NO_OTHER_HEADERS)
    schema = schemathesis.openapi.from_wsgi("/openapi.json", shared_app, config=config)
    return lambda view: schema.find_operation_by_id(view.partition(".")[2])


def member(document: dict[str, Any], *path: str) -> Any:
    for step in path:
        document = document[step]
    return document


def test_document_is_valid_openapi(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    validate(document)


def test_every_route_is_described(document: dict[str, Any], shared_app: Flask) -> None:
    served = {
        (rule.rule.replace("<", "{").replace(">", "}"), method.lower())
        for rule in shared_app.url_map.iter_rules()
        for method in rule.methods or ()
    }
    assert {(path, method) for path, methods in document["paths"].items() for method in methods} == served


@pytest.mark.parametrize(
    ("path", "since"),
    [
        (("components", "schemas", "NewProvider", "properties", "parent_provider_uuid"), "1.14"),
        (("components", "schemas", "KeyedClaim", "properties", "consumer_type"), "1.38"),
        (("components", "schemas", "ProviderSummary", "properties", "traits"), "1.17"),
        (("paths", "/reshaper", "post"), "1.30"),
        (("paths", "/resource_providers/{uuid}/inventories", "delete"), "1.5"),
        (("paths", "/", "get"), "1.0"),
    ],
)
def test_document_names_microversions(document: dict[str, Any], path: tuple[str, ...], since: str) -> None:
    assert member(document, *path)["x-placement-since"] == since


def test_document_names_microversions_of_parameters(document: dict[str, Any]) -> None:
    parameters = member(document, "paths", "/resource_providers", "get", "parameters")
    introduced = {one["name"]: one.get("x-placement-since") for one in parameters if "name" in one}
    assert introduced == {
        "name": None,
        "uuid": None,
        "member_of": "1.3",
        "resources": "1.4",
        "in_tree": "1.14",
        "required": "1.18",
        **dict.fromkeys(("include", "limit", "marker", "sort_by", "stale")),
    }


def test_api_page_names_the_same_microversions(document: dict[str, Any]) -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/\S*)` \| ([\d.]*) ?\|", API_PAGE.read_text(), re.M)
    documented = {(path, method.lower()): introduced or None for method, path, introduced in rows}
    assert documented == {
        (path, method): operation.get("x-placement-since")
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


def test_document_names_the_mount_point(shared_app: Flask) -> None:
    client = shared_app.test_client()
    assert client.get("/openapi.json").get_json()["servers"] == [{"url": "/"}]
    mounted = client.get("/openapi.json", environ_overrides={"SCRIPT_NAME": "/placement"}).get_json()
    assert mounted["servers"] == [{"url": "/placement"}]


def test_document_has_no_microversion(shared_app: Flask) -> None:
    response = shared_app.test_client().get("/openapi.json", headers={"OpenStack-API-Version": "placement 9"})
    assert response.status_code == 200
    assert "OpenStack-API-Version" not in response.headers


def test_page_loads_nothing_from_other_origins(shared_app: Flask) -> None:
    client = shared_app.test_client()
    page = client.get("/docs")
    assert page.content_type == "text/html; charset=UTF-8"
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    named = re.findall(r'(?:href=|src=|url: )"([^"]*)"', page.text)
    assert len(named) == 4
    assert [client.get(urljoin("/docs", name)).status_code for name in named] == [200] * 4
    [script] = [name for name in named if name.endswith("start.js")]
    [document] = re.findall(r'url: "([^"]*)"', client.get(urljoin("/docs", script)).text)
    assert urljoin("/docs", document) == "/openapi.json"


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/openapi.json", "application/json"),
        ("/docs", "text/html"),
        ("/docs/start.js", "text/javascript"),
        ("/docs/swagger-ui-bundle.js", "text/javascript"),
        ("/docs/swagger-ui.css", "text/css"),
        ("/docs/favicon-32x32.png", "image/png"),
        ("/favicon.ico", "image/png"),
    ],
)
def test_page_has_strict_headers(shared_app: Flask, path: str, media_type: str) -> None:
    client = shared_app.test_client()
    for response in (client.get(path), client.post(path)):
        policy = response.headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert {
            "default-src 'self'",
            "object-src 'none'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        } <= set(policy.split("; "))
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert client.get(path).mimetype == media_type


@pytest.mark.parametrize("mount", ["", "/placement"])
def test_page_with_a_slash_redirects_to_the_page(shared_app: Flask, mount: str) -> None:
    response = shared_app.test_client().get("/docs/", environ_overrides={"SCRIPT_NAME": mount})
    assert response.status_code == 308
    assert urljoin(f"http://host{mount}/docs/", response.headers["Location"]) == f"http://host{mount}/docs"


def test_icon_is_small(shared_app: Flask) -> None:
    icon = shared_app.test_client().get("/favicon.ico")
    assert icon.status_code == 200
    assert icon.data.startswith(b"\x89PNG")
    assert len(icon.data) < 2000


def test_page_has_no_inline_script_or_style(shared_app: Flask) -> None:
    page = shared_app.test_client().get("/docs").text
    assert re.findall(r"<script(?! src=)|<style|\sstyle=|\son\w+=", page) == []


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/docs/swagger-ui.css"])
def test_document_and_page_support_only_get_and_head(shared_app: Flask, path: str) -> None:
    response = shared_app.test_client().post(path)
    assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path", ["/docs//", "/docs/oauth2-redirect.html", "/docs/../app.py", "/openapi.yaml"]
)
def test_other_paths_are_passed_to_the_api(api: Api, path: str) -> None:
    response = api("GET", path)
    assert response.status_code == 404
    assert response.get_json()["errors"][0]["status"] == 404


def test_valid_requests_match_the_document(
    document: dict[str, Any], described: Callable[[str], Any], api: Api
) -> None:
    for view, path, body in VALID_REQUESTS:
        operation = described(view)
        if body is not None:
            content = member(document, "paths", operation.path, operation.method, "requestBody", "content")
            schema = {**content["application/json"]["schema"], "components": document["components"]}
            Draft202012Validator(schema).validate(body)
        response = api(operation.method.upper(), path, body, version=EXTENDED, headers=AS_SERVICE)
        assert response.status_code < 300, (view, path, response.text)
        operation.Case().validate_response(response, checks=RESPONSE_CHECKS)
    assert {view for view, *_ in VALID_REQUESTS} == set(OPERATIONS)


def server(name: str) -> dict[str, Any]:
    owner = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}
    return {"uuid": uuid_of(name), "consumer_generation": None, **owner}


def test_claims_without_candidates_match_the_document(
    described: Callable[[str], Any], api: Api, load_cloud: LoadCloud
) -> None:
    load_cloud(read("host{VCPU8}"))
    api("PUT", f"/placement_groups/{GROUP}", {"policy": "anti-affinity"})
    operation = described("claims.place_consumers")
    for amount, placement_group in ((9, {}), (4, {"placement_group": GROUP})):
        consumers = [server("first"), server("second")]
        body = {"request": f"resources=VCPU:{amount}", "consumers": consumers} | placement_group
        response = api("POST", "/claims", body, version=EXTENDED, headers=AS_SERVICE)
        assert response.status_code == 409, response.text
        [error] = response.get_json()["errors"]
        assert error.keys() >= {"placeable", "explanation", *placement_group}
        operation.Case().validate_response(response, checks=RESPONSE_CHECKS)


def test_explanation_for_an_unknown_host_matches_the_document(
    described: Callable[[str], Any], api: Api, load_cloud: LoadCloud
) -> None:
    load_cloud(read("host{VCPU8}"))
    path = "/allocation_candidates/explanation?resources=VCPU:1&root=nobody"
    response = api("GET", path, version=EXTENDED, headers=AS_SERVICE)
    assert response.status_code == 404, response.text
    operation = described("explanations.explain_candidates")
    operation.Case().validate_response(response, checks=RESPONSE_CHECKS)


def _each_error(error: type[PlacementError] = PlacementError) -> Iterator[type[PlacementError]]:
    yield error
    for subclass in error.__subclasses__():
        yield from _each_error(subclass)


@pytest.mark.parametrize("code", sorted({error.code for error in _each_error()}))
def test_code_of_every_error_matches_the_document(document: dict[str, Any], code: str) -> None:
    schema = document["components"]["schemas"]["Error"]["properties"]["code"]
    Draft202012Validator(schema).validate(code)


@pytest.mark.long
@pytest.mark.parametrize("view", OPERATIONS)
def test_generated_requests_get_the_described_responses(
    view: str, described: Callable[[str], Any], api: Api, clean_database: Callable[[], None]
) -> None:
    operation = described(view)
    existing = {"uuid": HOST, "consumer_uuid": SERVER, "name": "CUSTOM_BLUE", "resource_class": "VCPU"}
    if operation.path == "/aggregates/{uuid}":
        existing["uuid"] = AGGREGATE
    named = {parameter.name: existing[parameter.name] for parameter in operation.path_parameters}
    # If the first keys of a query match nothing, the service does not validate the other keys.
    checks = [*RESPONSE_CHECKS, negative_data_rejection] if operation.body else RESPONSE_CHECKS
    unchanged = False

    def rebuild() -> None:
        clean_database()
        for step in CLOUD:
            assert api(described(step.view).method.upper(), step.path, step.body).status_code < 300

    @settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        case=st.one_of(
            operation.as_strategy(mode, headers=HEADERS, **path)
            for mode in GenerationMode
            for path in ({}, {"path_parameters": named})
        )
    )
    def check(case: Any) -> None:
        nonlocal unchanged
        if not unchanged:
            rebuild()
        response = case.call()
        unchanged = case.method == "GET"
        note(f"{case.method} {case.formatted_path} {case.query} {case.body!r}")
        note(f"{response.status_code} {response.text}")
        case.validate_response(response, checks=checks)

    check()
