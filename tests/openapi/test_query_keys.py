"""Every query key stands in its schema, the OpenAPI document, docs/api.md, a gabbit and the oracle."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from flask import Flask
from gabbi.utils import load_yaml

from placement_svc import schemas
from placement_svc.schemas.allocation_candidates import (
    SUFFIX,
    GroupQuery,
    UnsuffixedQuery,
    WholeRequestQuery,
)
from placement_svc.schemas.resource_providers import ProviderQuery
from placement_svc.schemas.traits import TraitQuery
from placement_svc.schemas.usages import UsagesQuery
from tests.support.oracle import Group, Request

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/api.md").read_text()

CANDIDATES = "/allocation_candidates"
SCHEMAS: dict[str, tuple[Any, ...]] = {
    "/resource_providers": (ProviderQuery,),
    CANDIDATES: (GroupQuery, WholeRequestQuery),
    "/traits": (TraitQuery,),
    "/usages": (UsagesQuery,),
}
"""The schemas of the query of each GET request that has one."""

SUFFIXED = "groups"
"""The parameter of the OpenAPI document that describes the keys of all suffixed groups."""


def keys(path: str) -> set[str]:
    """Return the query keys of a path that its schemas declare."""
    return {key for schema in SCHEMAS[path] for key in schema().fields}


def without_suffix(key: str) -> str:
    """Return the key of a candidates request without the suffix of its group."""
    suffixed = re.fullmatch(rf"({'|'.join(GroupQuery().fields)}){SUFFIX}", key)
    return suffixed[1] if suffixed else key


def requests_of(test: dict[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Yield the path and the query keys of the GET request of one gabbi test."""
    url = test.get("GET") or (test.get("url") if test.get("method", "GET") == "GET" else None)
    if url:
        parts = urlsplit(url)
        yield parts.path, {key for key, _ in parse_qsl(parts.query)} | test.get("query_parameters", {}).keys()


@pytest.fixture(scope="module")
def gabbit_keys() -> dict[str, set[str]]:
    """The query keys that gabbits send, by path; keys of suffixed groups without their suffix."""
    sent: dict[str, set[str]] = {}
    for file in sorted((ROOT / "gabbits").glob("*.yaml")):
        content = load_yaml(yaml_file=file)
        for test in content["tests"]:
            for path, found in requests_of({**content.get("defaults", {}), **test}):
                sent.setdefault(path, set()).update(map(without_suffix, found))
    return sent


@pytest.fixture(scope="module")
def described_keys(shared_app: Flask) -> dict[str, set[str]]:
    """The query parameters of the OpenAPI document, by path."""
    document = shared_app.test_client().get("/openapi.json").get_json()
    return {
        path: {parameter["name"] for parameter in query}
        for path, operations in document["paths"].items()
        for operation in operations.values()
        if (query := [one for one in operation["parameters"] if one.get("in") == "query"])
    }


def documented_keys(path: str) -> set[str]:
    """Return the query keys that docs/api.md names for a GET request.

    They are in the row of the endpoint in the table of all endpoints; those of a candidates request are
    in a table of their own, whose first column has the key with an example of its value.
    """
    if path == CANDIDATES:
        cells = re.findall(r"^\| (`[a-z_]+=.*?) \|", PAGE, re.M)
        return {key for cell in cells for key in re.findall(r"`(\w+)=", cell)}
    [row] = re.findall(rf"^\| `GET {path}` \|[^|]*\|(.*)\|$", PAGE, re.M)
    return set(re.findall(r"`(\w+)[=`]", row))


def test_every_query_schema_is_in_the_table() -> None:
    modules = (
        importlib.import_module(f"{schemas.__name__}.{module.name}")
        for module in pkgutil.iter_modules(schemas.__path__)
    )
    declared = {
        value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and name.endswith("Query")
    }
    assert declared - {UnsuffixedQuery} == {schema for found in SCHEMAS.values() for schema in found}


def test_old_form_of_the_candidates_query_has_no_keys_of_its_own() -> None:
    assert UnsuffixedQuery().fields.keys() <= keys(CANDIDATES)


def test_openapi_document_describes_the_keys_of_the_schemas(described_keys: dict[str, set[str]]) -> None:
    assert described_keys.pop(CANDIDATES) == keys(CANDIDATES) | {SUFFIXED}
    assert described_keys == {path: keys(path) for path in SCHEMAS if path != CANDIDATES}


def test_openapi_document_describes_the_suffixed_keys_of_the_schema(shared_app: Flask) -> None:
    operation = shared_app.test_client().get("/openapi.json").get_json()["paths"][CANDIDATES]["get"]
    [suffixed] = [one for one in operation["parameters"] if one.get("name") == SUFFIXED]
    patterns = suffixed["schema"]["patternProperties"]
    assert patterns.keys() == {f"^{key}{SUFFIX}$" for key in GroupQuery().fields}


@pytest.mark.parametrize("path", SCHEMAS)
def test_api_page_names_the_keys_of_the_schemas(path: str) -> None:
    assert documented_keys(path) == keys(path)


@pytest.mark.parametrize("path", SCHEMAS)
def test_gabbits_send_every_key(gabbit_keys: dict[str, set[str]], path: str) -> None:
    assert keys(path) - gabbit_keys[path] == set()


def test_oracle_sends_every_key_of_a_candidates_request() -> None:
    group = Group(
        suffix="_A",
        resources={"VCPU": 1},
        required=(frozenset({"CUSTOM_A"}),),
        member_of=(frozenset({"aggregate"}),),
        in_tree="host",
    )
    request = Request(
        groups=(group,),
        root_required=frozenset({"CUSTOM_B"}),
        same_subtree=(frozenset({"_A"}),),
        group_policy="none",
        limit=1,
    )
    assert {without_suffix(key) for key, _ in parse_qsl(request.query())} == keys(CANDIDATES)
