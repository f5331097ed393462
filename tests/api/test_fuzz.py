"""Random requests get an error in the format of the API, never a 500 (`docs/spec/http.md 6`)."""

import copy
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from flask import Flask
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from werkzeug.test import EnvironBuilder, TestResponse, run_wsgi_app

from placement_svc.schemas.candidates_query import GROUP_KEYS
from tests.conftest import examples
from tests.support.cloud import uuid_of
from tests.support.query_keys import SCHEMAS, keys

NO_DEADLINE = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

HOST, CHILD, SERVER, AGGREGATE = (uuid_of(name) for name in ("host", "child", "server", "aggregate"))
GENERATION = "the generation of the host"
INVENTORY = {
    "total": 8,
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 8,
    "step_size": 1,
    "allocation_ratio": 1.0,
}
INVENTORIES = {
    "resource_provider_generation": GENERATION,
    "inventories": {"VCPU": INVENTORY, "VGPU": INVENTORY},
}
OWNER = {"project_id": "project", "user_id": "user"}
CLAIM_1_0 = {
    "allocations": [{"resource_provider": {"uuid": HOST}, "resources": {"VCPU": 1}}],
}
CLAIM_1_12 = {"allocations": {HOST: {"generation": 1, "resources": {"VCPU": 1, "VGPU": 1}}}, **OWNER}
CLAIM = CLAIM_1_12 | {
    "consumer_generation": None,
    "consumer_type": "SERVER",
    "mappings": {"": [HOST], "1": [CHILD]},
}

WRITES: list[tuple[str, str, str, Any]] = [
    ("POST", "/resource_providers", "1.39", {"name": "n", "uuid": CHILD, "parent_provider_uuid": HOST}),
    ("PUT", f"/resource_providers/{HOST}", "1.39", {"name": "host", "parent_provider_uuid": None}),
    ("POST", f"/resource_providers/{HOST}/inventories", "1.39", {"resource_class": "DISK_GB", **INVENTORY}),
    ("PUT", f"/resource_providers/{HOST}/inventories", "1.39", INVENTORIES),
    (
        "PUT",
        f"/resource_providers/{HOST}/inventories/VCPU",
        "1.0",
        {**INVENTORY, "resource_provider_generation": GENERATION},
    ),
    ("PUT", f"/resource_providers/{HOST}/aggregates", "1.18", [AGGREGATE]),
    (
        "PUT",
        f"/resource_providers/{HOST}/aggregates",
        "1.19",
        {"aggregates": [AGGREGATE], "resource_provider_generation": GENERATION},
    ),
    (
        "PUT",
        f"/resource_providers/{HOST}/traits",
        "1.39",
        {"traits": ["HW_CPU_X86_AVX"], "resource_provider_generation": GENERATION},
    ),
    ("POST", "/resource_classes", "1.39", {"name": "CUSTOM_GOLD"}),
    ("PUT", "/resource_classes/CUSTOM_GOLD", "1.6", {"name": "CUSTOM_IRON"}),
    ("PUT", f"/allocations/{SERVER}", "1.0", CLAIM_1_0),
    ("PUT", f"/allocations/{SERVER}", "1.11", CLAIM_1_0 | OWNER),
    ("PUT", f"/allocations/{SERVER}", "1.12", CLAIM_1_12),
    ("PUT", f"/allocations/{SERVER}", "1.39", CLAIM),
    ("POST", "/allocations", "1.13", {SERVER: CLAIM_1_12, CHILD: CLAIM_1_12}),
    ("POST", "/allocations", "1.39", {SERVER: CLAIM, CHILD: CLAIM | {"allocations": {}}}),
    ("POST", "/reshaper", "1.39", {"inventories": {HOST: INVENTORIES}, "allocations": {SERVER: CLAIM}}),
]
"""Valid bodies: method, path, microversion and body."""

PATHS = [
    *("", "/", "/house", "/resource_providers", "/resource_classes", "/resource_classes/VCPU", "/traits"),
    *("/traits/CUSTOM_BLUE", "/usages", "/allocations", f"/allocations/{SERVER}", "/allocation_candidates"),
    *("/reshaper", "/aggregates", f"/aggregates/{AGGREGATE}", f"/resource_providers/{HOST}"),
    *(f"/resource_providers/{HOST}/{what}" for what in ("inventories", "usages", "aggregates", "traits")),
    *(f"/resource_providers/{HOST}/{what}" for what in ("allocations", "inventories/VCPU")),
]
KEYS = sorted(
    {key for path in SCHEMAS for key in keys(path)}
    | {f"{key}{suffix}" for key in GROUP_KEYS for suffix in ("1", "_A")}
)
FRAGMENTS = [
    *(HOST, AGGREGATE, "in:", "!", ",", ":", "VCPU", "VCPU:1", "VGPU:9999999999999999999999", "1", "0", "_A"),
    *("HW_CPU_X86_AVX", "CUSTOM_BLUE", "none", "isolate", "project", "all", "startswith:", "true", " ", "%"),
]
VERSIONS = ["placement 1.39", "placement 1.0", "placement 1.12", "placement 1.24", "placement latest"]

latin = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 1, 2**31 - 1, 2**31, 2**63, 2**64, 10**400, 5.0, 1.5, -0.0, 1e308, 3.5e38])
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["", HOST, HOST.upper(), "VCPU", "VCPU\n", "A" * 256, "\0", "\ud800", "☃", "unknown"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars.map(str), inner, max_size=3)
)
texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=4).map("".join)
queries = st.lists(
    st.tuples(st.sampled_from(KEYS) | texts, texts).map(
        lambda pair: f"{quote(pair[0], errors='ignore')}={quote(pair[1], errors='ignore')}"
    ),
    max_size=5,
).map("&".join)
headers = st.dictionaries(
    st.sampled_from(
        [
            "OpenStack-API-Version",
            "Accept",
            "Content-Type",
            "Content-Length",
            "X-Auth-Token",
            "X-Roles",
            "Host",
        ]
    )
    | st.sampled_from(["X-Openstack-Request-Id", "Transfer-Encoding", "If-Modified-Since", "Range", "Expect"])
    | st.sampled_from(["OpenStack-System-Scope", "X-Domain-Id", "X-Project-Id", "Cookie", "Origin", "Via"]),
    latin
    | st.sampled_from(
        [*VERSIONS, "application/json", "text/html", "text/plain", "*/*", "q=0", "admin", "-1"]
    ),
    max_size=4,
)

Path = list[str | int]


def member_paths(value: Any) -> list[Path]:
    """Return the path to each member of a JSON value, at every depth."""
    if isinstance(value, dict):
        members = list(value.items())
    else:
        members = list(enumerate(value)) if isinstance(value, list) else []
    return [[key, *rest] for key, member in members for rest in ([], *member_paths(member))]


@st.composite
def bodies(draw: st.DrawFn, valid: Any) -> Any:
    """Draw a valid body with up to three changes: members are replaced, removed or added."""
    body = copy.deepcopy(valid)
    for _ in range(draw(st.integers(0, 3))):
        paths = member_paths(body)
        if not paths:
            return draw(values)
        *parents, key = draw(st.sampled_from(paths))
        container = body
        for step in parents:
            container = container[step]
        change = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if change == "replace":
            container[key] = draw(values)
        elif change == "remove":
            del container[key]
        elif isinstance(container, list):
            container.append(draw(values))
        else:
            container[draw(scalars.map(str))] = draw(values)
    return body


def send(app: Flask, method: str, path: str, body: bytes, sent: dict[str, str], query: str = "") -> None:
    """Send a request, and check the form of the response."""
    token = {"X-Auth-Token": "admin", "X-Roles": "admin,service"}
    request = EnvironBuilder(method="GET", headers=token | sent, data=body).get_request()
    exact = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query}
    if "Content-Length" in sent:
        exact["CONTENT_LENGTH"] = sent["Content-Length"]
    response = TestResponse(*run_wsgi_app(app, {**request.environ, **exact}, buffered=True), request=request)
    note(f"{method} {path}?{query} {sent} {body[:500]!r} -> {response.status_code} {response.text[:500]}")
    assert response.status_code < 500
    assert REQUEST_ID.fullmatch(response.headers["x-openstack-request-id"])
    if response.status_code >= 400:
        check_error(response, method)
    elif response.status_code == 204:
        assert not response.data
    elif response.content_type == "text/html; charset=utf-8":
        assert path in ("", "/")
        assert "text/html" in sent["Accept"].lower()
    elif response.data:
        assert response.content_type == "application/json"
        json.loads(response.data)


def check_error(response: TestResponse, method: str) -> None:
    """Check that an error response has one of the three formats."""
    if method == "HEAD":
        assert not response.data
        return
    status = response.status_code
    if response.content_type == "application/json":
        if status == 401:
            assert response.json.keys() == {"message", "code", "title"}
            return
        [error] = response.json["errors"]
        assert response.json.keys() == {"errors"}
        assert error["status"] == status
        assert error["request_id"] == response.headers["x-openstack-request-id"]
        known = {"status", "title", "detail", "request_id", "code", "min_version", "max_version"}
        assert {"status", "title", "detail", "request_id"} <= error.keys() <= known
    else:
        assert response.content_type in ("text/html; charset=UTF-8", "text/plain; charset=UTF-8")
        assert f"{status} " in response.text


@settings(NO_DEADLINE, max_examples=examples(400))
@given(data=st.data(), write=st.sampled_from(WRITES))
def test_nearly_valid_bodies(
    app: Flask, api: Callable[..., TestResponse], data: st.DataObject, write: tuple[str, str, str, Any]
) -> None:
    method, path, version, valid = write
    found = api("GET", f"/resource_providers/{HOST}")
    if found.status_code == 404:
        created = api("POST", "/resource_providers", {"name": "host", "uuid": HOST})
        assert created.status_code in (200, 409)
    generation = found.json.get("generation", 0)
    body = data.draw(bodies(valid))
    text = json.dumps(body).replace(f'"{GENERATION}"', str(generation))
    sent = {"OpenStack-API-Version": f"placement {version}", "Content-Type": "application/json"}
    send(app, method, path, text.encode(), sent)


@settings(NO_DEADLINE, max_examples=examples(300))
@given(path=st.sampled_from(sorted(SCHEMAS)), query=queries | latin, version=st.sampled_from(VERSIONS))
def test_any_query(app: Flask, path: str, query: str, version: str) -> None:
    send(app, "GET", path, b"", {"OpenStack-API-Version": version}, query)


@settings(NO_DEADLINE, max_examples=examples(400))
@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "get", "!"]),
    path=st.sampled_from(PATHS) | st.tuples(st.sampled_from(PATHS), latin).map("/".join) | latin,
    body=st.binary(max_size=50) | values.map(lambda value: json.dumps(value).encode()),
    sent=headers,
    query=queries | latin,
)
def test_any_request(
    app: Flask, method: str, path: str, body: bytes, sent: dict[str, str], query: str
) -> None:
    send(app, method, path, body, {"OpenStack-API-Version": "placement 1.39"} | sent, query)
