"""Every example in the OpenAPI document succeeds as it stands in the cloud of the demo."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import schemathesis
from flask import Flask
from jsonschema import Draft202012Validator

from placement_svc.db.connections.engine import Database
from placement_svc.demo import cloud
from placement_svc.openapi.examples import EXAMPLES
from placement_svc.openapi.operations import OPERATIONS
from tests.conftest import Api
from tests.openapi.test_openapi import RESPONSE_CHECKS

FIRST = {
    "delete_trait": "ensure_trait",
    "delete_resource_class": "put_resource_class",
    "delete_allocations": "replace_consumer_allocations",
    "list_allocations": "replace_consumer_allocations",
    "show_consumer": "replace_consumer_allocations",
    "list_consumers": "replace_consumer_allocations",
    "list_projects": "replace_consumer_allocations",
    "list_placement_groups": "replace_placement_group",
    "show_placement_group": "replace_placement_group",
    "delete_placement_group": "replace_placement_group",
}
"""Operations whose example needs what the example of another one creates."""

ALTERNATIVES = {"rp_uuid", "group_policy"}
"""Query parameters that exclude the one in the example."""

EMPTY = {
    "list_empty_answers",
    "show_versions",
    "show_usages",
    "show_allocations",
    "show_placement_group",
    "list_provider_allocations",
}
"""Operations that need no other data, or whose objects the demo does not have."""


@pytest.fixture(scope="module")
def schema(shared_app: Flask) -> Any:
    """The OpenAPI document of the service as schemathesis parses it."""
    return schemathesis.openapi.from_wsgi("/openapi.json", shared_app)


@pytest.fixture
def demo_cloud(database: Database) -> None:
    """Create the cloud of the demo without racks."""
    cloud.load(database, cloud.records(hosts=0))


@pytest.fixture(scope="module")
def document(shared_app: Flask) -> dict[str, Any]:
    """The OpenAPI document."""
    described: dict[str, Any] = shared_app.test_client().get("/openapi.json").get_json()
    return described


class Request(NamedTuple):
    """The request of an operation's example."""

    method: str
    path: str
    body: Any
    version: str


def query_parameters(described: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each for each in described["parameters"] if each.get("in") == "query"]


def version(document: Mapping[str, Any], described: Mapping[str, Any]) -> str:
    """Return the microversion, and the version of the extensions if the operation needs one."""
    headers = document["components"]["parameters"]
    for parameter in described["parameters"]:
        if "$ref" in parameter:
            sent: str = headers[parameter["$ref"].rpartition("/")[2]]["schema"]["enum"][0]
            return sent.removeprefix("placement ")
    return "1.39"


def example(document: dict[str, Any], name: str) -> Request:
    """Return the example of an operation; every path parameter must have one, and the body its schema."""
    [(path, method, described)] = [
        (path, method, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
        if described["operationId"] == name
    ]
    for parameter in described["parameters"]:
        if parameter.get("in") == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    query: dict[str, Any] = {}
    for parameter in query_parameters(described):
        if parameter["name"] in ALTERNATIVES:
            continue
        value = parameter["example"]
        query |= value if isinstance(value, Mapping) else {parameter["name"]: value}
    body = None
    if "requestBody" in described:
        content = described["requestBody"]["content"]["application/json"]
        body = content["example"]
        schema = {**content["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(body)
    if query:
        path += f"?{urlencode(query, doseq=True)}"
    return Request(method.upper(), path, body, version(document, described))


@pytest.mark.usefixtures("demo_cloud")
@pytest.mark.parametrize("view", OPERATIONS)
def test_example_succeeds(view: str, document: dict[str, Any], schema: Any, api: Api) -> None:
    name = view.partition(".")[2]
    for step in filter(None, (FIRST.get(name), name)):
        request = example(document, step)
        response = api(*request)
        assert response.status_code in (200, 201, 204), response.text
        operation = schema.find_operation_by_id(step)
        operation.Case().validate_response(response, checks=RESPONSE_CHECKS)
    if request.method == "GET" and response.is_json and name not in EMPTY:
        members = response.get_json() | {"links": None}
        assert not {"[]", "{}"} & {str(value) for value in members.values()}


def test_every_operation_with_parameters_has_an_example() -> None:
    without_parameters = {
        "root.show_versions",
        "resource_classes.list_resource_classes",
        "aggregates.list_aggregates",
    }
    assert set(EXAMPLES) == set(OPERATIONS) - without_parameters


def examples_in(schema: Any) -> Iterator[Any]:
    """Yield every example of a JSON Schema, at any depth."""
    if isinstance(schema, Mapping):
        yield from schema.get("examples", []) if isinstance(schema.get("examples"), list) else []
        for member in schema.values():
            yield from examples_in(member)
    elif isinstance(schema, list):
        for member in schema:
            yield from examples_in(member)


def test_there_are_no_other_examples(document: dict[str, Any]) -> None:
    assert list(examples_in(document)) == []
