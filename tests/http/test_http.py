"""What the YAML of `gabbits/` cannot say of HTTP (`docs/spec/http.md`)."""

import io
import json
import logging
import re
from http import HTTPStatus

import pytest
from werkzeug.test import EnvironBuilder, TestResponse, run_wsgi_app

from placement_svc.api import candidates_response
from placement_svc.config import Settings
from placement_svc.db import providers
from placement_svc.http import json as http_json
from placement_svc.http.request_id import RequestIdFilter
from tests.conftest import ADMIN
from tests.support.cloud import read, uuid_of

JSON = {"Content-Type": "application/json"}
GLOBAL_ID = "req-0ae00000-0000-4000-8000-000000000009"
REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def send(app):
    """Return a function that sends a request exactly as it stands in the WSGI environment."""

    def send(method, path, body=b"", headers=ADMIN, **environ):
        """`path` is decoded, with one character for each byte; `environ` replaces what would be sent else."""
        builder = EnvironBuilder(data=body, headers=headers)
        request = builder.get_request()
        exact = {"REQUEST_METHOD": method, "PATH_INFO": path, **environ}
        return TestResponse(*run_wsgi_app(app, {**request.environ, **exact}, buffered=True), request=request)

    return send


def error_of(response, status):
    """Return the only error of an answer whose form is right."""
    assert response.status_code == status, response.text
    assert response.content_type == "application/json"
    assert response.json.keys() == {"errors"}
    [error] = response.json["errors"]
    assert error["status"] == status
    assert error["request_id"] == response.headers["x-openstack-request-id"]
    return error


# The mount point


def test_links_lead_below_the_mount_point(send):
    uuid = uuid_of("mounted")
    body = json.dumps({"name": "mounted", "uuid": uuid}).encode()
    mount = {"SCRIPT_NAME": "/placement", "HTTP_HOST": "cloud.example:8080", "wsgi.url_scheme": "https"}
    response = send("POST", "/resource_providers", body, ADMIN | JSON, **mount)
    self_path = f"/placement/resource_providers/{uuid}"
    rels = ["inventories", "usages", "aggregates", "traits", "allocations"]
    assert response.headers["Location"] == f"https://cloud.example:8080{self_path}"
    assert [link["href"] for link in response.json["links"]] == [
        self_path,
        *(f"{self_path}/{rel}" for rel in rels),
    ]


def test_location_of_a_trait_leads_below_the_mount_point(send):
    response = send("PUT", "/traits/CUSTOM_MOUNTED", SCRIPT_NAME="/placement")
    assert response.headers["Location"] == "http://localhost/placement/traits/CUSTOM_MOUNTED"


def test_resource_class_links_lead_below_the_mount_point(send):
    response = send("GET", "/resource_classes/VCPU", SCRIPT_NAME="/placement")
    assert response.json["links"] == [{"rel": "self", "href": "/placement/resource_classes/VCPU"}]


@pytest.mark.parametrize("prefix", ["", "/placement"])
def test_the_mount_point_without_slash_is_the_root_document(prefix, send):
    response = send("GET", "", SCRIPT_NAME=prefix)
    assert response.status_code == 200
    assert response.json["versions"][0]["links"] == [{"rel": "self", "href": ""}]
    assert response.headers["openstack-api-version"] == "placement 1.39"


def test_the_mount_point_without_slash_needs_a_token(send):
    response = send("GET", "", headers={}, SCRIPT_NAME="/placement")
    assert response.status_code == 401
    assert "openstack-api-version" not in response.headers


def test_the_mount_point_without_slash_has_one_method(send):
    response = send("POST", "")
    assert "The method POST is not allowed" in error_of(response, 405)["detail"]
    assert response.headers["Allow"] == "GET"


# Methods


def test_methods_are_written_in_upper_case(send):
    response = send("get", "/resource_providers")
    assert "The method get is not allowed for this resource." in error_of(response, 405)["detail"]
    assert response.headers["Allow"] == "GET, POST"


def test_a_method_in_lower_case_on_an_unknown_path(send):
    error_of(send("get", "/house"), 404)


@pytest.mark.parametrize(("path", "allow"), [("/", "GET"), ("/traits", "GET"), ("/reshaper", "POST")])
def test_head_has_no_body(path, allow, send):
    response = send("HEAD", path)
    assert response.status_code == 405
    assert response.data == b""
    assert response.headers["Allow"] == allow
    assert response.headers["Content-Length"] == "0"
    assert response.mimetype == "text/html"
    assert REQUEST_ID.fullmatch(response.headers["x-openstack-request-id"])


# Paths


@pytest.mark.parametrize(
    "path",
    [
        "//",
        "//resource_providers",
        "//traits/HW_CPU_X86_AVX",
        "/traits//HW_CPU_X86_AVX",
        "/traits/HW_CPU_X86_AVX/",
        "/traits/",
        "/traits/\0",
        "/traits/HW_CPU_X86_AVX\0",
        "/\0",
        "/house",
        "house",
        "/\xff",
    ],
)
def test_unknown_path(path, send):
    response = send("GET", path)
    assert error_of(response, 404)["detail"].startswith("The resource could not be found.\n\n   ")
    assert "Location" not in response.headers


def test_an_encoded_slash_is_a_slash(app):
    client = app.test_client()
    assert client.get("/traits%2FHW_CPU_X86_AVX", headers=ADMIN).status_code == 204
    assert client.get("/traits/HW_CPU%2FX86_AVX", headers=ADMIN).status_code == 404


@pytest.mark.parametrize(
    "path", ["/resource_providers/\xff\xfe", "/resource_classes/\xff", "/resource_providers/x/usages"]
)
def test_a_name_in_the_path_may_be_any_bytes(path, send):
    assert re.search("No (resource provider|such resource class)", error_of(send("GET", path), 404)["detail"])


@pytest.mark.parametrize("query", ["name=\xff", "name=%FF", "\xff=1", "name=a%00b", "name=a\0b"])
@pytest.mark.parametrize("path", ["/resource_providers", "/allocation_candidates", "/traits", "/usages"])
def test_undecodable_query(path, query, send):
    error = error_of(send("GET", path, QUERY_STRING=query), 400)
    assert "Invalid query string parameters: " in error["detail"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("project_id=own", 200),
        ("project_id=other&project_id=own", 200),
        ("project_id=other", 403),
        ("project_id=own&project_id=other", 403),
        ("project_id=own;project_id=other", 403),
        ("project_id=own&user_id=user;project_id=other", 403),
        ("user_id=user", 403),
        ("project_id=\xff", 400),
    ],
)
def test_the_project_of_a_reader_is_the_one_that_is_read(query, status, send):
    reader = ADMIN | {"X-Auth-Token": "reader:own", "X-Roles": "reader"}
    assert send("GET", "/usages", headers=reader, QUERY_STRING=query).status_code == status


# Bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b'{"name": "\xff"}',
        b'{"name": "\xed\xa0\x80"}',
        b'{"name": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"name": "a"} {}',
        b'{"name": "a"',
        '{"name": "a"}'.encode("utf-16"),
        b"[" * 100_000,
        b'{"name": "a", "total": 1e999}',
    ],
)
def test_malformed_json(body, send):
    error = error_of(send("POST", "/resource_providers", body, ADMIN | JSON), 400)
    assert " Malformed JSON: " in error["detail"]


def test_body_in_chunks(send):
    chunks = {"wsgi.input": io.BytesIO(b'{"name": "chunks"}'), "wsgi.input_terminated": True}
    response = send("POST", "/resource_providers", headers=ADMIN | JSON, **chunks, CONTENT_LENGTH="")
    assert response.json["name"] == "chunks"


def test_body_in_chunks_without_a_type(send):
    chunks = {"wsgi.input": io.BytesIO(b'{"name": "chunks"}'), "wsgi.input_terminated": True}
    error = error_of(send("POST", "/resource_providers", **chunks, CONTENT_LENGTH=""), 415)
    assert "The media type None is not supported, use application/json" in error["detail"]


@pytest.mark.parametrize("length", ["ten", "-1", "1.5", "0x1", "\xb2"])
@pytest.mark.parametrize("path", ["/resource_providers", "/house"])
def test_content_length_is_an_integer(length, path, send):
    error = error_of(send("GET", path, CONTENT_LENGTH=length), 400)
    assert "content-length header must be an integer" in error["detail"]


def test_too_large_a_body_is_not_read(send):
    body = io.BytesIO()
    response = send(
        "POST",
        "/resource_providers",
        headers=ADMIN | JSON,
        CONTENT_LENGTH=str(Settings.max_body + 1),
        **{"wsgi.input": body},
    )
    assert "The request body is too large." in error_of(response, 413)["detail"]


def test_too_large_a_body_in_chunks_is_refused(send):
    chunks = {"wsgi.input": io.BytesIO(b" " * (Settings.max_body + 1)), "wsgi.input_terminated": True}
    response = send("POST", "/resource_providers", headers=ADMIN | JSON, **chunks, CONTENT_LENGTH="")
    assert error_of(response, 413)["title"] == HTTPStatus(413).phrase


# What nobody foresaw


@pytest.fixture
def broken(monkeypatch):
    """Let a provider that is looked up be no provider but a fault of the service."""

    def get(*_):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(providers, "get", get)


@pytest.mark.usefixtures("broken")
def test_an_unforeseen_failure_says_nothing_of_itself(send):
    response = send("GET", "/resource_providers/x")
    error = error_of(response, 500)
    assert error.keys() == {"status", "title", "detail", "request_id"}
    assert error["title"] == "Internal Server Error"
    assert "secret" not in response.text
    for name in ("openstack-api-version", "vary", "cache-control", "last-modified"):
        assert name not in response.headers


@pytest.mark.usefixtures("broken")
def test_an_unforeseen_failure_is_logged_under_the_request_id(send, caplog):
    caplog.handler.addFilter(RequestIdFilter())
    with caplog.at_level(logging.ERROR):
        response = send("GET", "/resource_providers/x", headers=ADMIN | {"X-Openstack-Request-Id": GLOBAL_ID})
    [record] = caplog.records
    assert record.request_id == response.headers["x-openstack-request-id"]
    assert record.global_request_id == GLOBAL_ID
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_a_request_id_that_was_sent_is_not_sent_back(send):
    response = send("GET", "/", headers=ADMIN | {"X-Openstack-Request-Id": GLOBAL_ID})
    assert REQUEST_ID.fullmatch(response.headers["x-openstack-request-id"])
    assert response.headers["x-openstack-request-id"] != GLOBAL_ID


# Long answers


@pytest.fixture
def six_hosts(load_cloud):
    load_cloud(read("a{VCPU8}; b{VCPU8}; c<b{VCPU8}; d{VCPU8}; e{VCPU8}; f{VCPU8}"))
    return {"QUERY_STRING": "resources=VCPU:1"}


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 6, 7])
def test_a_long_answer_says_the_same_as_a_short_one(at_once, send, six_hosts, monkeypatch):
    short = send("GET", "/allocation_candidates", **six_hosts)
    monkeypatch.setattr(candidates_response, "ITEMS_PER_PIECE", at_once)
    monkeypatch.setattr(http_json, "WHOLE", 6)
    long = send("GET", "/allocation_candidates", **six_hosts)
    assert len(short.json["allocation_requests"]) == 6
    assert long.data == short.data
    assert long.content_type == short.content_type == "application/json"
    # Three pieces are always there, and as many again as candidates and providers need.
    assert ("Content-Length" in long.headers) == (at_once >= 6)


@pytest.mark.usefixtures("six_hosts")
def test_only_so_many_long_answers_are_on_their_way(app, monkeypatch):
    def ask():
        return app.test_client().get("/allocation_candidates?resources=VCPU:1", headers=ADMIN)

    monkeypatch.setattr(http_json, "WHOLE", 1)
    on_their_way = [ask() for _ in range(http_json.LONG_ANSWERS)]
    refused = ask()
    assert refused.status_code == 503
    assert f"{http_json.LONG_ANSWERS} long answers" in refused.text
    for answer in on_their_way:
        answer.close()
        answer.close()
    assert len(ask().json["allocation_requests"]) == 6
