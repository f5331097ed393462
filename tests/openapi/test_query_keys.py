"""Each query key of a schema is in the OpenAPI document, docs/api.md, a gabbit and the oracle's requests."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from flask import Flask
from gabbi.utils import load_yaml
from hypothesis import Phase, find, settings

from placement_svc import schemas
from placement_svc.schemas.candidates_query import (
    ExtendedRequestQuery,
    GroupQuery,
    UnsuffixedQuery,
    WholeRequestQuery,
)
from placement_svc.schemas.scalars import SUFFIX
from tests.support.oracle import Group, Request
from tests.support.query_keys import CANDIDATES, EXPLANATION, FITS, SCHEMAS, keys, without_suffix
from tests.support.strategies import clouds, requests

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/api.md").read_text()

SUFFIXED = "groups"
"""The parameter of the OpenAPI document that describes the keys of all suffixed groups."""


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
    if path in (EXPLANATION, FITS):
        return documented_keys(CANDIDATES) | documented_in_row(path)
    return documented_in_row(path)


def documented_in_row(path: str) -> set[str]:
    """Return the query keys in the row of a GET request in the table of all endpoints."""
    [row] = re.findall(rf"^\| `GET {path}` \|[^|]*\|(.*)\|$", PAGE, re.M)
    return set(re.findall(r"`(\w+)[=`]", row))


def test_every_query_schema_is_in_the_table() -> None:
    modules = (
        importlib.import_module(f"{schemas.__name__}.{module.name}")
        for module in pkgutil.iter_modules(schemas.__path__)
        # The pages of the console are not part of the API.
        if module.name != "console"
    )
    declared = {
        value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and name.endswith("Query")
    }
    assert declared - {UnsuffixedQuery, WholeRequestQuery} == {
        schema for found in SCHEMAS.values() for schema in found
    }


def test_old_form_of_the_candidates_query_has_no_keys_of_its_own() -> None:
    assert UnsuffixedQuery().fields.keys() <= keys(CANDIDATES)


def test_openapi_document_describes_the_keys_of_the_schemas(described_keys: dict[str, set[str]]) -> None:
    assert described_keys.pop(CANDIDATES) == keys(CANDIDATES) | {SUFFIXED}
    for path in (EXPLANATION, FITS):
        assert described_keys.pop(path) == keys(path) | {SUFFIXED}
    assert described_keys == {
        path: keys(path) for path in SCHEMAS if path not in (CANDIDATES, EXPLANATION, FITS)
    }


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


def test_oracle_has_every_key_of_a_candidates_request() -> None:
    assert GroupQuery().fields.keys() <= {field.name for field in fields(Group)}
    assert ExtendedRequestQuery().fields.keys() <= {field.name for field in fields(Request)}


@pytest.mark.parametrize(
    ("key", "suffixed"),
    [
        *((key, suffixed) for key in GroupQuery().fields for suffixed in (False, True)),
        *((key, False) for key in ExtendedRequestQuery().fields),
    ],
)
def test_property_test_draws_every_key_of_a_candidates_request(key: str, suffixed: bool) -> None:
    """Raise `NoSuchExample` if `tests/support/strategies.py` never draws the key or the oracle omits it."""

    def has_key(request: Request) -> bool:
        sent = {name for name, _ in parse_qsl(request.query())}
        return any(without_suffix(name) == key and (name != key) is suffixed for name in sent)

    find(
        clouds().flatmap(requests),
        has_key,
        settings=settings(max_examples=1000, deadline=None, phases=[Phase.generate], database=None),
        random=Random(0),
    )
