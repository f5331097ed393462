"""The description of the API is sound, leaves nothing out, and says what is so."""

import re
from collections.abc import Callable
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

from placement_svc.openapi.operations import OPERATIONS
from tests.conftest import Api, examples
from tests.support.cloud import uuid_of

AS_SERVICE = {"X-Auth-Token": "admin", "X-Roles": "admin,service"}
HEADERS = AS_SERVICE | {"OpenStack-API-Version": "placement 1.39"}

NO_STRANGE_HEADERS = {"generation": {"with-security-parameters": False, "allow-extra-parameters": False}}
"""Settings of schemathesis: what it draws is about the operation, and not about who asks."""

AS_DESCRIBED = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

HOST, CHILD, SERVER, AGGREGATE = (uuid_of(name) for name in ("host", "child", "server", "aggregate"))
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


class Right(NamedTuple):
    """A request that succeeds in its place."""

    view: str
    path: str
    body: Any = None


CLOUD = [
    Right("resource_providers.create_provider", "/resource_providers", {"name": "host", "uuid": HOST}),
    Right(
        "resource_providers.create_provider",
        "/resource_providers",
        {"name": "child", "uuid": CHILD, "parent_provider_uuid": HOST},
    ),
    Right("resource_classes.create_resource_class", "/resource_classes", {"name": "CUSTOM_BLUE"}),
    Right("traits.ensure_trait", "/traits/CUSTOM_BLUE"),
    Right("inventories.replace_inventories", f"{AT_HOST}/inventories", generation(0, inventories=VCPU)),
    Right(
        "provider_traits.replace_provider_traits", f"{AT_HOST}/traits", generation(1, traits=["CUSTOM_BLUE"])
    ),
    Right(
        "provider_aggregates.replace_provider_aggregates",
        f"{AT_HOST}/aggregates",
        generation(2, aggregates=[AGGREGATE]),
    ),
    Right("allocations.replace_consumer_allocations", f"/allocations/{SERVER}", claim(None)),
]
"""What makes a small cloud of nothing."""

ALL_RIGHT = [
    *CLOUD,
    Right("root.show_versions", "/"),
    Right("resource_providers.list_providers", f"/resource_providers?resources=VCPU:1&in_tree={CHILD}"),
    Right("resource_providers.show_provider", f"/resource_providers/{CHILD}"),
    Right("inventories.list_inventories", f"{AT_HOST}/inventories"),
    Right("inventories.show_inventory", f"{AT_HOST}/inventories/VCPU"),
    Right("usages.show_provider_usages", f"{AT_HOST}/usages"),
    Right("usages.show_usages", "/usages?project_id=project"),
    Right("usages.show_usages", "/usages?project_id=project&consumer_type=all"),
    Right("provider_aggregates.list_provider_aggregates", f"{AT_HOST}/aggregates"),
    Right("provider_traits.list_provider_traits", f"{AT_HOST}/traits"),
    Right("traits.list_traits", "/traits?name=startswith:CUSTOM_&associated=true"),
    Right("traits.show_trait", "/traits/CUSTOM_BLUE"),
    Right("traits.ensure_trait", "/traits/CUSTOM_BLUE"),
    Right("resource_classes.list_resource_classes", "/resource_classes"),
    Right("resource_classes.show_resource_class", "/resource_classes/CUSTOM_BLUE"),
    Right("resource_classes.put_resource_class", "/resource_classes/CUSTOM_BLUE"),
    Right("resource_classes.put_resource_class", "/resource_classes/CUSTOM_RED"),
    Right(
        "allocation_candidates.list_candidates",
        "/allocation_candidates?resources=VCPU:1&resources_A=VCPU:1&required_A=CUSTOM_BLUE&limit=1",
    ),
    Right("allocations.show_allocations", f"/allocations/{SERVER}"),
    Right("allocations.show_allocations", f"/allocations/{CHILD}"),
    Right("allocations.list_provider_allocations", f"{AT_HOST}/allocations"),
    Right("aggregates.list_aggregates", "/aggregates"),
    Right("aggregates.show_aggregate", f"/aggregates/{AGGREGATE}"),
    Right("allocations.replace_allocations", "/allocations", {SERVER: claim(1), CHILD: claim(None)}),
    Right(
        "reshaper.reshape",
        "/reshaper",
        {"inventories": {HOST: generation(5, inventories=VCPU)}, "allocations": {SERVER: claim(2)}},
    ),
    Right(
        "resource_providers.change_provider",
        f"/resource_providers/{CHILD}",
        {"name": "son", "parent_provider_uuid": None},
    ),
    Right(
        "inventories.create_inventory",
        f"/resource_providers/{CHILD}/inventories",
        {"resource_class": "CUSTOM_RED", "total": 4, "allocation_ratio": 1.5},
    ),
    Right(
        "inventories.replace_inventory",
        f"/resource_providers/{CHILD}/inventories/CUSTOM_RED",
        generation(1, total=8, reserved=8),
    ),
    Right("inventories.delete_inventory", f"/resource_providers/{CHILD}/inventories/CUSTOM_RED"),
    Right("inventories.delete_inventories", f"/resource_providers/{CHILD}/inventories"),
    Right("allocations.delete_allocations", f"/allocations/{SERVER}"),
    Right("provider_traits.delete_provider_traits", f"{AT_HOST}/traits"),
    Right("traits.delete_trait", "/traits/CUSTOM_BLUE"),
    Right("resource_classes.delete_resource_class", "/resource_classes/CUSTOM_BLUE"),
    Right("resource_providers.delete_provider", f"/resource_providers/{CHILD}"),
]
"""A life in which every operation succeeds at least once."""


@pytest.fixture(scope="module")
def document(shared_app: Flask) -> dict[str, Any]:
    """What the service tells about its API to whoever asks."""
    answer = shared_app.test_client().get("/openapi.json")
    assert answer.content_type == "application/json"
    return answer.get_json()


@pytest.fixture(scope="module")
def described(document: dict[str, Any], shared_app: Flask) -> Any:
    """A function that gives the operation of a view as schemathesis reads it."""
    config = SchemathesisConfig.from_dict(NO_STRANGE_HEADERS)
    schema = schemathesis.openapi.from_wsgi("/openapi.json", shared_app, config=config)
    return lambda view: schema.find_operation_by_id(view.partition(".")[2])


def member(document: dict[str, Any], *way: str) -> Any:
    for step in way:
        document = document[step]
    return document


def test_document_is_openapi(document: dict[str, Any]) -> None:
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
    ("way", "since"),
    [
        (("components", "schemas", "NewProvider", "properties", "parent_provider_uuid"), "1.14"),
        (("components", "schemas", "KeyedClaim", "properties", "consumer_type"), "1.38"),
        (("components", "schemas", "ProviderSummary", "properties", "traits"), "1.17"),
        (("paths", "/reshaper", "post"), "1.30"),
        (("paths", "/resource_providers/{uuid}/inventories", "delete"), "1.5"),
        (("paths", "/", "get"), "1.0"),
    ],
)
def test_document_tells_since_when(document: dict[str, Any], way: tuple[str, ...], since: str) -> None:
    assert member(document, *way)["x-placement-since"] == since


def test_document_tells_since_when_of_parameters(document: dict[str, Any]) -> None:
    parameters = member(document, "paths", "/resource_providers", "get", "parameters")
    told = {one["name"]: one.get("x-placement-since") for one in parameters if "name" in one}
    assert told == {
        "name": None,
        "uuid": None,
        "member_of": "1.3",
        "resources": "1.4",
        "in_tree": "1.14",
        "required": "1.18",
    }


def test_document_tells_where_the_api_is(shared_app: Flask) -> None:
    client = shared_app.test_client()
    assert client.get("/openapi.json").get_json()["servers"] == [{"url": "/"}]
    mounted = client.get("/openapi.json", environ_overrides={"SCRIPT_NAME": "/placement"}).get_json()
    assert mounted["servers"] == [{"url": "/placement"}]


def test_document_has_no_microversion(shared_app: Flask) -> None:
    answer = shared_app.test_client().get("/openapi.json", headers={"OpenStack-API-Version": "placement 9"})
    assert answer.status_code == 200
    assert "OpenStack-API-Version" not in answer.headers


def test_page_needs_nothing_but_this_service(shared_app: Flask) -> None:
    client = shared_app.test_client()
    page = client.get("/docs")
    assert page.content_type == "text/html; charset=UTF-8"
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    named = re.findall(r'(?:href=|src=|url: )"([^"]*)"', page.text)
    assert len(named) == 4
    assert [client.get(urljoin("/docs", name)).status_code for name in named] == [200] * 4


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/docs/swagger-ui.css"])
def test_description_is_only_read(shared_app: Flask, path: str) -> None:
    answer = shared_app.test_client().post(path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/docs/", "/docs/oauth2-redirect.html", "/docs/../app.py", "/openapi.yaml"])
def test_other_paths_are_left_to_the_api(api: Api, path: str) -> None:
    answer = api("GET", path)
    assert answer.status_code == 404
    assert answer.get_json()["errors"][0]["status"] == 404


def test_right_requests_are_right_by_the_description(
    document: dict[str, Any], described: Callable[[str], Any], api: Api
) -> None:
    for view, path, body in ALL_RIGHT:
        operation = described(view)
        if body is not None:
            told = member(document, "paths", operation.path, operation.method, "requestBody", "content")
            schema = {**told["application/json"]["schema"], "components": document["components"]}
            Draft202012Validator(schema).validate(body)
        answer = api(operation.method.upper(), path, body, headers=AS_SERVICE)
        assert answer.status_code < 300, (view, path, answer.text)
        operation.Case().validate_response(answer, checks=AS_DESCRIBED)
    assert {view for view, *_ in ALL_RIGHT} == set(OPERATIONS)


@pytest.mark.long
@pytest.mark.parametrize("view", OPERATIONS)
def test_drawn_requests_are_answered_as_described(
    view: str, described: Callable[[str], Any], api: Api, clean_database: Callable[[], None]
) -> None:
    operation = described(view)
    real = {"uuid": HOST, "consumer_uuid": SERVER, "name": "CUSTOM_BLUE", "resource_class": "VCPU"}
    if operation.path == "/aggregates/{uuid}":
        real["uuid"] = AGGREGATE
    named = {parameter.name: real[parameter.name] for parameter in operation.path_parameters}
    # A query that finds nothing by its first keys is answered before the other ones are looked at.
    checks = [*AS_DESCRIBED, negative_data_rejection] if operation.body else AS_DESCRIBED
    untouched = False

    def renew() -> None:
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
        nonlocal untouched
        if not untouched:
            renew()
        answer = case.call()
        untouched = case.method == "GET"
        note(f"{case.method} {case.formatted_path} {case.query} {case.body!r}")
        note(f"{answer.status_code} {answer.text}")
        case.validate_response(answer, checks=checks)

    check()
