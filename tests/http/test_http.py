"""Rules of HTTP that the YAML files of `gabbits/` cannot express (`docs/spec/http.md`)."""

import io
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http import HTTPStatus

import pytest
from werkzeug.test import EnvironBuilder, TestResponse, run_wsgi_app

from placement_svc.api import candidates_response
from placement_svc.config import Settings
from placement_svc.db import providers
from placement_svc.domain.execution.fair_semaphore import FairSemaphore
from placement_svc.domain.version_header import EXTENSION_VERSIONS, EXTENSIONS_HEADER
from placement_svc.http import json as http_json
from placement_svc.http.endpoint import get_info
from placement_svc.http.microversion import NEWEST
from placement_svc.http.request_id import RequestIdFilter
from tests.conftest import ADMIN
from tests.support.cloud import read, uuid_of
from tests.support.service import wait_until

JSON = {"Content-Type": "application/json"}
GLOBAL_ID = "req-0ae00000-0000-4000-8000-000000000009"
REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def send(app):
    """Return a function that sends a request with an exact WSGI environment."""
    return sender(app)


def sender(app):
    """Return a function that sends a request with an exact WSGI environment to `app`."""

    def send(method, path, body=b"", headers=ADMIN, **environ):
        """Send a request; `path` has one character per byte, and `environ` overrides the default keys."""
        builder = EnvironBuilder(data=body, headers=headers)
        request = builder.get_request()
        exact = {"REQUEST_METHOD": method, "PATH_INFO": path, **environ}
        return TestResponse(*run_wsgi_app(app, {**request.environ, **exact}, buffered=True), request=request)

    return send


def error_of(response, status):
    """Return the error of a response, after checking the envelope."""
    assert response.status_code == status, response.text
    assert response.content_type == "application/json"
    assert response.json.keys() == {"errors"}
    [error] = response.json["errors"]
    assert error["status"] == status
    assert error["request_id"] == response.headers["x-openstack-request-id"]
    return error


# The mount point


def test_links_include_the_mount_point(new_app, clean_database):
    send = sender(new_app(allowed_hosts=("cloud.example",)))
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


def test_location_of_a_trait_includes_the_mount_point(send):
    response = send("PUT", "/traits/CUSTOM_MOUNTED", SCRIPT_NAME="/placement")
    assert response.headers["Location"] == "http://localhost/placement/traits/CUSTOM_MOUNTED"


def test_resource_class_links_include_the_mount_point(send):
    response = send("GET", "/resource_classes/VCPU", SCRIPT_NAME="/placement")
    assert response.json["links"] == [{"rel": "self", "href": "/placement/resource_classes/VCPU"}]


@pytest.mark.parametrize("prefix", ["", "/placement"])
def test_mount_point_without_slash_is_the_root_document(prefix, send):
    response = send("GET", "", SCRIPT_NAME=prefix)
    assert response.status_code == 200
    assert response.json["versions"][0]["links"] == [{"rel": "self", "href": ""}]
    assert response.headers["openstack-api-version"] == "placement 1.39"


def test_mount_point_without_slash_needs_a_token(send):
    response = send("GET", "", headers={}, SCRIPT_NAME="/placement")
    assert response.status_code == 401
    assert "openstack-api-version" not in response.headers


def test_mount_point_without_slash_has_one_method(send):
    response = send("POST", "")
    assert "The method POST is not allowed" in error_of(response, 405)["detail"]
    assert response.headers["Allow"] == "GET"


# Methods


@pytest.mark.parametrize(
    ("method", "path", "headers", "line"),
    [
        ("GET", "/", ADMIN, "200 OK"),
        ("PUT", "/traits/CUSTOM_A", ADMIN, "201 Created"),
        ("DELETE", "/traits/CUSTOM_A", ADMIN, "404 Not Found"),
        ("HEAD", "/traits", ADMIN, "405 Method Not Allowed"),
        ("GET", "/traits", {}, "401 Unauthorized"),
    ],
)
def test_status_line_has_the_standard_reason(method, path, headers, line, send):
    assert send(method, path, headers=headers).status == line


def test_method_in_lower_case_is_not_allowed(send):
    response = send("get", "/resource_providers")
    assert "The method get is not allowed for this resource." in error_of(response, 405)["detail"]
    assert response.headers["Allow"] == "GET, POST"


def test_method_in_lower_case_on_an_unknown_path(send):
    error_of(send("get", "/house"), 404)


@pytest.mark.parametrize(("path", "allow"), [("/", "GET"), ("/traits", "GET"), ("/reshaper", "POST")])
def test_response_to_head_has_no_body(path, allow, send):
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


def test_encoded_slash_is_a_slash(app):
    client = app.test_client()
    assert client.get("/traits%2FHW_CPU_X86_AVX", headers=ADMIN).status_code == 204
    assert client.get("/traits/HW_CPU%2FX86_AVX", headers=ADMIN).status_code == 404


@pytest.mark.parametrize(
    "path", ["/resource_providers/\xff\xfe", "/resource_classes/\xff", "/resource_providers/x/usages"]
)
def test_name_in_the_path_may_be_any_bytes(path, send):
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
        ("project_id=\xff", 403),
        ("project_id=%00", 403),
    ],
)
def test_reader_may_read_only_the_usages_of_the_own_project(query, status, send):
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


@pytest.mark.parametrize("blank", [" ", "\t"])
def test_blank_before_the_parameters_of_the_content_type(blank, send):
    headers = ADMIN | {"Content-Type": f"application/json{blank};q=1"}
    assert send("POST", "/resource_providers", b'{"name": "blank"}', headers).json["name"] == "blank"


@pytest.mark.parametrize("character", ["\xa0", "\x0b", "\x85"])
def test_other_blank_after_the_content_type(character, send):
    headers = ADMIN | {"Content-Type": f"application/json{character}"}
    error_of(send("POST", "/resource_providers", b'{"name": "blank"}', headers), 415)


def test_chunked_body(send):
    chunks = {"wsgi.input": io.BytesIO(b'{"name": "chunks"}'), "wsgi.input_terminated": True}
    response = send("POST", "/resource_providers", headers=ADMIN | JSON, **chunks, CONTENT_LENGTH="")
    assert response.json["name"] == "chunks"


def test_chunked_body_without_content_type(send):
    chunks = {"wsgi.input": io.BytesIO(b'{"name": "chunks"}'), "wsgi.input_terminated": True}
    error = error_of(send("POST", "/resource_providers", **chunks, CONTENT_LENGTH=""), 415)
    assert "The media type None is not supported, use application/json" in error["detail"]


@pytest.mark.parametrize("length", ["ten", "-1", "1.5", "0x1", "\xb2"])
@pytest.mark.parametrize("path", ["/resource_providers", "/house"])
def test_content_length_is_an_integer(length, path, send):
    error = error_of(send("GET", path, CONTENT_LENGTH=length), 400)
    assert "content-length header must be an integer" in error["detail"]


def test_too_large_body_is_not_read(send):
    body = io.BytesIO()
    response = send(
        "POST",
        "/resource_providers",
        headers=ADMIN | JSON,
        CONTENT_LENGTH=str(Settings.max_body + 1),
        **{"wsgi.input": body},
    )
    detail = error_of(response, 413)["detail"]
    assert detail == "The request body is too large.\n\n It may have at most 16,777,216 bytes.  "


def test_too_large_chunked_body_gets_413(send):
    chunks = {"wsgi.input": io.BytesIO(b" " * (Settings.max_body + 1)), "wsgi.input_terminated": True}
    response = send("POST", "/resource_providers", headers=ADMIN | JSON, **chunks, CONTENT_LENGTH="")
    assert error_of(response, 413)["title"] == HTTPStatus(413).phrase


@pytest.mark.parametrize("length", [str(Settings.max_body), ""], ids=["announced", "chunked"])
def test_body_of_the_maximum_size_is_read(length, send):
    body = io.BytesIO(b"{}" + b" " * (Settings.max_body - 2))
    chunks = {"wsgi.input": body, "wsgi.input_terminated": True}
    response = send("POST", "/resource_providers", headers=ADMIN | JSON, **chunks, CONTENT_LENGTH=length)
    assert "'name' is a required property" in error_of(response, 400)["detail"]


def test_error_for_many_unknown_keys_is_short(send):
    query = "&".join(f"key{number}=1" for number in range(1000))
    response = send("GET", "/allocation_candidates", QUERY_STRING=query)
    assert "'key0', 'key1', 'key10'" in error_of(response, 400)["detail"]
    assert len(response.data) < 4000


# The first sentence of the detail


MALFORMED = (
    "The server could not comply with the request since it is either malformed or otherwise incorrect."
)
NOT_ACCEPTABLE = (
    "The resource could not be generated that was acceptable to your browser (content of type {}. "
)
UNSUPPORTED = "The request media type {} is not supported by this server. "
UNVERSIONED = {"X-Auth-Token": "admin"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "sentence"),
    [
        ("GET", "/resource_providers", {"OpenStack-API-Version": "placement x"}, 400, MALFORMED),
        ("GET", "/usages", {}, 400, MALFORMED),
        ("GET", "/traits", {"X-Roles": ""}, 403, "Access was denied to this resource."),
        ("GET", "/house", {}, 404, "The resource could not be found."),
        ("PUT", "/traits", {}, 405, "The method PUT is not allowed for this resource."),
        (
            "GET",
            "/",
            {"OpenStack-API-Version": "placement 1.40", "Accept": "application/json, a/b"},
            406,
            NOT_ACCEPTABLE.format("application/json, a/b"),
        ),
        (
            "GET",
            "/",
            {"OpenStack-API-Version": "placement 1.40"},
            406,
            NOT_ACCEPTABLE.format("application/json"),
        ),
        (
            "GET",
            "/",
            {"OpenStack-API-Version": "placement 1.40", "Accept": "*/*"},
            406,
            NOT_ACCEPTABLE.format("application/json"),
        ),
        ("POST", "/resource_providers", {"Content-Type": "a/b"}, 415, UNSUPPORTED.format("a/b")),
        ("POST", "/resource_providers", {}, 415, UNSUPPORTED.format("None")),
    ],
)
def test_first_sentence_of_the_detail(method, path, headers, status, sentence, send):
    response = send(method, path, headers=ADMIN | headers)
    error = response.json["errors"][0]
    assert (error["status"], error["detail"].split("\n\n ")[0]) == (status, sentence)


def test_first_sentence_in_plain_text(send):
    response = send("GET", "/traits", headers=ADMIN | {"Accept": "a/b"})
    assert NOT_ACCEPTABLE.format("a/b") + "\n\n Only application/json is provided" in response.text


def test_first_sentence_of_a_conflict(send):
    body = b'{"name": "conflict"}'
    send("POST", "/resource_providers", body, ADMIN | JSON)
    detail = error_of(send("POST", "/resource_providers", body, ADMIN | JSON), 409)["detail"]
    assert detail.startswith("There was a conflict when trying to complete your request.\n\n ")


def test_first_sentence_quotes_little_of_a_long_type(send):
    response = send("POST", "/resource_providers", headers=ADMIN | {"Content-Type": "a/" + "b" * 8000})
    assert len(response.json["errors"][0]["detail"].split("\n\n ")[0]) < 300


# Requests at a microversion that is too old


@pytest.mark.parametrize(
    ("method", "path", "introduced"),
    [
        ("GET", "/traits", "1.6"),
        ("GET", "/usages", "1.9"),
        ("GET", "/allocation_candidates", "1.10"),
        ("POST", "/reshaper", "1.30"),
        ("PUT", "/resource_classes/CUSTOM_X", "1.2"),
        ("GET", "/resource_providers/x/aggregates", "1.1"),
    ],
)
@pytest.mark.parametrize("headers", [{}, {"OpenStack-API-Version": "compute 2.1"}])
def test_missing_version_is_explained(method, path, introduced, headers, send):
    detail = error_of(send(method, path, headers=UNVERSIONED | JSON | headers), 404)["detail"]
    assert detail.startswith("The resource could not be found.\n\n ")
    assert f"send the header OpenStack-API-Version: placement {introduced}." in detail


def test_missing_version_is_explained_for_a_method(send):
    response = send("DELETE", "/resource_providers/x/inventories", headers=UNVERSIONED)
    detail = error_of(response, 405)["detail"]
    assert "The method DELETE is not allowed for this resource." in detail
    assert "send the header OpenStack-API-Version: placement 1.5." in detail
    assert "Allow" not in response.headers


def test_version_that_is_too_old_is_explained(send):
    headers = UNVERSIONED | {"OpenStack-API-Version": "placement 1.5"}
    assert error_of(send("GET", "/traits", headers=headers), 404)["detail"] == (
        "The resource could not be found.\n\n This request needs microversion 1.6 or later."
        " The request selects microversion 1.5: send the header OpenStack-API-Version: placement 1.6.  "
    )


def test_every_later_endpoint_names_its_version(app, send):
    later = []
    for rule in app.url_map.iter_rules():
        introduced = get_info(app.view_functions[rule.endpoint]).introduced
        if introduced == "1.0":
            continue
        (method,) = rule.methods
        path = re.sub("<.*?>", "x", rule.rule)
        before = f"placement 1.{int(introduced.partition('.')[2]) - 1}"
        for headers in ({}, {"OpenStack-API-Version": before}):
            response = send(method, path, headers=UNVERSIONED | JSON | headers)
            assert response.status_code == (405 if rule.endpoint == "inventories.delete_inventories" else 404)
            detail = response.get_json()["errors"][0]["detail"]
            assert f"send the header OpenStack-API-Version: placement {introduced}." in detail
        later.append(f"{method} {rule.rule}")
    assert len(later) == 19


@pytest.mark.parametrize(
    ("path", "version", "hint"),
    [
        ("/resource_providers?required=X", "1.17", "'required' needs microversion 1.18 or later"),
        ("/resource_providers?member_of=X&in_tree=Y", "1.0", "'in_tree', 'member_of' need microversion 1.14"),
        ("/usages?project_id=p&consumer_type=X", "1.37", "'consumer_type' needs microversion 1.38 or later"),
        ("/allocation_candidates?resources=VCPU:1&limit=1", "1.15", "'limit' needs microversion 1.16"),
        ("/allocation_candidates?resources=VCPU:1&root_required=X", "1.20", "'root_required' needs"),
        ("/allocation_candidates?resources=VCPU:1&group_policy=none", "1.24", "'group_policy' needs"),
        ("/allocation_candidates?resources1=VCPU:1&resources=VCPU:1", "1.24", "'resources1' needs"),
        ("/allocation_candidates?resources_A=VCPU:1", "1.32", "'resources_A' needs microversion 1.33 or"),
        ("/allocation_candidates?resources=VCPU:1&in_tree=X", "1.30", "'in_tree' needs microversion 1.31"),
        ("/allocation_candidates?resources=VCPU:1&same_subtree=_A", "1.35", "'same_subtree' needs"),
    ],
)
def test_key_of_a_later_version_is_explained(path, version, hint, send):
    path, _, query = path.partition("?")
    headers = UNVERSIONED | {"OpenStack-API-Version": f"placement {version}"}
    detail = error_of(send("GET", path, headers=headers, QUERY_STRING=query), 400)["detail"]
    assert hint in detail
    assert detail.endswith("or later in the header OpenStack-API-Version.  ")


@pytest.mark.parametrize(
    ("path", "versions", "named"),
    [
        (
            "/resource_providers?include=traits",
            ["placement 1.39", "placement 1.0"],
            "'include' is an extension",
        ),
        ("/resource_providers?limit=1&stale=ok&x=1", ["placement 1.39"], "'limit', 'stale' are extensions"),
        ("/traits?stale=ok", ["placement 1.39"], "'stale' is an extension"),
        ("/usages?project_id=p&stale=ok", ["placement 1.39"], "'stale' is an extension"),
        (
            "/allocation_candidates?resources=VCPU:1&order_by=random",
            ["placement 1.39", "placement 1.20", "placement 1.38, placement-svc 1.0"],
            "'order_by' is an extension",
        ),
    ],
)
def test_key_that_is_an_extension_is_explained(path, versions, named, send):
    path, _, query = path.partition("?")
    for version in versions:
        headers = UNVERSIONED | {"OpenStack-API-Version": version}
        detail = error_of(send("GET", path, headers=headers, QUERY_STRING=query), 400)["detail"]
        assert detail.endswith(
            f"{named}: send the header OpenStack-API-Version: placement 1.39, placement-svc 1.0.  "
        )


def test_header_of_extensions_names_the_newest_versions():
    versions = f"placement {NEWEST}, placement-svc {EXTENSION_VERSIONS[-1]}"
    assert f"OpenStack-API-Version: {versions}" == EXTENSIONS_HEADER


@pytest.mark.parametrize(
    ("method", "path", "allow"), [("GET", "/allocations", "POST"), ("PATCH", "/traits", None)]
)
def test_method_that_is_an_extension_is_explained(method, path, allow, send):
    response = send(method, path)
    detail = error_of(response, 405)["detail"]
    assert f"The method {method} is not allowed for this resource." in detail
    header = "send the header OpenStack-API-Version: placement 1.39, placement-svc 1.0"
    assert (header in detail) == (allow is not None)
    assert response.headers["Allow"] == (allow or "GET")


@pytest.mark.parametrize(
    "path", ["/resource_providers?house=1", "/allocation_candidates?resources=VCPU:1&house=1", "/traits?a=b"]
)
@pytest.mark.parametrize("version", ["1.10", "1.39"])
def test_unknown_key_is_not_explained_by_the_version(path, version, send):
    path, _, query = path.partition("?")
    headers = UNVERSIONED | {"OpenStack-API-Version": f"placement {version}"}
    response = send("GET", path, headers=headers, QUERY_STRING=query)
    assert response.status_code == 400
    assert "needs microversion" not in response.text


def test_member_of_a_later_version_is_explained(send):
    headers = UNVERSIONED | JSON
    body = json.dumps({"name": "host", "parent_provider_uuid": None}).encode()
    detail = error_of(send("POST", "/resource_providers", body, headers=headers), 400)["detail"]
    assert "'parent_provider_uuid' needs microversion 1.14 or later in the header OpenStack" in detail


def test_unknown_path_is_not_explained_by_the_version(send):
    assert "OpenStack-API-Version" not in error_of(send("GET", "/house", headers=UNVERSIONED), 404)["detail"]


# Unexpected errors


@pytest.fixture
def broken(monkeypatch):
    """Make every lookup of a provider fail with an unexpected exception."""

    def get(*_):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(providers, "get", get)


@pytest.mark.usefixtures("broken")
def test_unexpected_error_reveals_nothing(send):
    response = send("GET", "/resource_providers/x")
    error = error_of(response, 500)
    assert error.keys() == {"status", "title", "detail", "request_id"}
    assert error["title"] == "Internal Server Error"
    assert error["detail"].split("\n\n ")[0] == (
        "The server has either erred or is incapable of performing the requested operation."
    )
    assert "secret" not in response.text
    for name in ("openstack-api-version", "vary", "cache-control", "last-modified"):
        assert name not in response.headers


@pytest.mark.usefixtures("broken")
def test_unexpected_error_is_logged_with_the_request_id(send, caplog):
    caplog.handler.addFilter(RequestIdFilter())
    with caplog.at_level(logging.ERROR):
        response = send("GET", "/resource_providers/x", headers=ADMIN | {"X-Openstack-Request-Id": GLOBAL_ID})
    [record] = caplog.records
    assert record.request_id == response.headers["x-openstack-request-id"]
    assert record.global_request_id == GLOBAL_ID
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_request_id_of_the_caller_is_not_returned(send):
    response = send("GET", "/", headers=ADMIN | {"X-Openstack-Request-Id": GLOBAL_ID})
    assert REQUEST_ID.fullmatch(response.headers["x-openstack-request-id"])
    assert response.headers["x-openstack-request-id"] != GLOBAL_ID


# Long responses


@pytest.fixture
def six_hosts(load_cloud):
    load_cloud(read("a{VCPU8}; b{VCPU8}; c<b{VCPU8}; d{VCPU8}; e{VCPU8}; f{VCPU8}"))
    return {"QUERY_STRING": "resources=VCPU:1"}


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 6, 7])
def test_streamed_response_equals_a_whole_one(at_once, send, six_hosts, monkeypatch):
    short = send("GET", "/allocation_candidates", **six_hosts)
    monkeypatch.setattr(candidates_response, "ITEMS_PER_PIECE", at_once)
    monkeypatch.setattr(http_json, "STREAMING_THRESHOLD", 6)
    long = send("GET", "/allocation_candidates", **six_hosts)
    assert len(short.json["allocation_requests"]) == 6
    assert long.data == short.data
    assert long.content_type == short.content_type == "application/json"
    # Three pieces are fixed; the number of others depends on the candidates and providers.
    assert ("Content-Length" in long.headers) == (at_once >= 6)


def get_candidates(app):
    return app.test_client().get("/allocation_candidates?resources=VCPU:1", headers=ADMIN)


@pytest.fixture
def streamed(app, six_hosts, monkeypatch):
    """As many responses as a process streams at a time, which are being sent."""
    monkeypatch.setattr(http_json, "STREAMING_THRESHOLD", 1)
    responses = [get_candidates(app) for _ in range(http_json.MAX_STREAMED_RESPONSES)]
    yield responses
    for response in responses:
        response.close()


def test_long_response_waits_until_another_has_been_sent(app, streamed):
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(get_candidates, app) for _ in range(2)]
        wait_until(lambda: len(http_json._streamed_responses._waiting) == 2)
        # A response that is closed twice makes room for one.
        streamed[0].close()
        streamed[0].close()
        wait_until(lambda: any(each.done() for each in waiting))
        first, second = sorted(waiting, key=lambda each: not each.done())
        assert not second.done()
        with closing(first.result()) as response:
            assert len(response.json["allocation_requests"]) == 6
        with closing(second.result()) as response:
            assert len(response.json["allocation_requests"]) == 6


@pytest.mark.usefixtures("streamed")
def test_long_response_waits_until_the_deadline(new_app):
    response = get_candidates(new_app(request_deadline=0.5))
    assert response.status_code == 503
    assert "longer than 0.5 seconds" in response.text


@pytest.mark.usefixtures("streamed")
def test_number_of_long_responses_that_wait_is_limited(app, monkeypatch):
    monkeypatch.setattr(http_json, "_streamed_responses", FairSemaphore(0, max_waiting=0))
    response = get_candidates(app)
    assert response.status_code == 503
    assert f"{http_json.MAX_STREAMED_RESPONSES} long responses" in response.text


def test_reserved_stream_is_free_again_if_the_response_is_short(app, streamed, monkeypatch):
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(get_candidates, app)
        wait_until(lambda: http_json._streamed_responses._waiting)
        monkeypatch.setattr(http_json, "STREAMING_THRESHOLD", 100)
        streamed[0].close()
        assert "Content-Length" in waiting.result().headers
    monkeypatch.setattr(http_json, "STREAMING_THRESHOLD", 1)
    with closing(get_candidates(app)) as response:
        assert response.status_code == 200
