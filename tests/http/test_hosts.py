"""The hosts whose requests are accepted: protection against DNS rebinding (`docs/spec/http.md 14`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from werkzeug.test import EnvironBuilder, TestResponse, run_wsgi_app

from placement_svc.http import token_file
from placement_svc.http.probes import ALIVE, METRICS, READY
from tests.conftest import ADMIN, NewApp
from tests.support.service import Service, received, serving

REBOUND = "rebound.example.org"
"""A name that an attacker resolves to the address of the service."""

LOOPBACK = [
    "localhost",
    "LocalHost",
    "localhost.",
    "127.0.0.1",
    "127.0.0.1.",
    "127.1.2.3",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
]

OTHERS = [
    REBOUND,
    "localhost.example.org",
    "127.0.0.1.example.org",
    "x.localhost",
    "192.0.2.1",
    "0.0.0.0",
    "[::]",
    "[2001:db8::1]",
]

MALFORMED = [
    "",
    "::1",
    "[::1",
    "[::1]x",
    "[127.0.0.1]",
    "[::1%lo]",
    "[:::]",
    "localhost..",
    ".localhost",
    ".",
    ":8778",
    "localhost:http",
    "localhost:-1",
    "localhost:123456",
    "admin@localhost",
    "localhost@rebound.example.org",
    "localhost,rebound.example.org",
    "localhost rebound.example.org",
    "localhost/",
    "localhost\\",
    "http://localhost",
    "2130706433",
    "127.1",
    "0x7f.0.0.1",
    "127.0.0.01",
    "l\xf6calhost",
    "\xff",
    "a" * 8000,
]


def send(
    app: Flask, host: str | None, method: str = "GET", path: str = "/traits", **keys: Any
) -> TestResponse:
    """Send a request with exactly this `Host` header, or none, and these keys of the WSGI environment."""
    request = EnvironBuilder(path, method=method, headers=ADMIN).get_request()
    environ = request.environ | keys
    del environ["HTTP_HOST"]
    if host is not None:
        environ["HTTP_HOST"] = host
    return TestResponse(*run_wsgi_app(app, environ, buffered=True), request=request)


def reason(response: TestResponse) -> str:
    """Return the last line of a 421 in the format of the API."""
    assert response.status_code == 421, response.text
    [error] = response.json["errors"]
    assert (error["status"], error["title"]) == (421, "Misdirected Request")
    assert error["request_id"] == response.headers["x-openstack-request-id"]
    return str(error["detail"].split("\n\n")[1].strip())


@pytest.mark.parametrize("port", ["", ":8778", ":80", ":0", ":65535", ":99999"])
@pytest.mark.parametrize("host", LOOPBACK)
def test_noauth_accepts_loopback(app: Flask, host: str, port: str) -> None:
    assert send(app, f"{host}{port}").status_code == 200


@pytest.mark.parametrize("host", [*OTHERS, *(f"{host}:8778" for host in OTHERS), *MALFORMED])
def test_noauth_refuses_other_hosts(app: Flask, host: str) -> None:
    assert "PLACEMENT_ALLOWED_HOSTS" in reason(send(app, host))


def test_noauth_refuses_a_request_without_a_host(app: Flask) -> None:
    refusal = reason(send(app, None, SERVER_PROTOCOL="HTTP/1.0"))
    assert refusal.startswith("The service does not accept requests without a host.")


def test_refusal_names_the_host_and_the_setting(app: Flask) -> None:
    assert reason(send(app, f"{REBOUND}:8778")) == (
        "The service does not accept the host rebound.example.org:8778. It accepts localhost, loopback"
        " addresses and the hosts that PLACEMENT_ALLOWED_HOSTS names."
    )


def test_refused_claim_changes_nothing(app: Flask) -> None:
    path = f"/traits/CUSTOM_{uuid4().hex.upper()}"
    assert send(app, REBOUND, "PUT", path).status_code == 421
    assert send(app, "localhost", path=path).status_code == 404
    assert send(app, "localhost", "PUT", path).status_code == 201


@pytest.mark.parametrize("key", ["RAW_URI", "REQUEST_URI"])
@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/traits", 200),
        ("//rebound.example.org/traits", 200),
        ("*", 200),
        ("http://localhost:8778/traits", 200),
        ("HTTP://127.0.0.1", 200),
        ("http://rebound.example.org/traits", 421),
        ("http://rebound.example.org", 421),
        ("http://localhost@rebound.example.org/", 421),
        ("http://localhost\\@rebound.example.org/", 421),
        ("http://rebound.example.org?localhost/", 421),
        ("http:///traits", 421),
        ("rebound.example.org:8778", 421),
        ("localhost:8778", 200),
    ],
)
def test_host_of_the_target_counts_too(app: Flask, key: str, target: str, status: int) -> None:
    targets = {"RAW_URI": "", "REQUEST_URI": ""} | {key: target}
    assert send(app, "localhost", **targets).status_code == status


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ("placement-api", "placement-api:8778", 200),
        ("placement-api", "PLACEMENT-API.", 200),
        ("Placement-API.", "placement-api", 200),
        ("placement-api", "localhost", 200),
        ("placement-api", "x.placement-api", 421),
        ("placement-api", "xplacement-api", 421),
        ("placement-api", "192.0.2.1", 421),
        (".example.org", "example.org", 200),
        (".example.org", "a.b.EXAMPLE.org:80", 200),
        (".example.org", "badexample.org", 421),
        (".example.org", "example.org.evil", 421),
        ("192.0.2.1", "192.0.2.1:8778", 200),
        ("192.0.2.1", "192.0.2.2", 421),
        ("[2001:DB8:0::1]", "[2001:db8::1]:8778", 200),
        ("[2001:db8::1]", "[2001:db8::2]", 421),
        ("*", REBOUND, 200),
        ("*", "not a host", 200),
    ],
)
def test_setting_allows_hosts(new_app: NewApp, allowed: str, host: str, status: int) -> None:
    assert send(new_app(allowed_hosts=("other", allowed)), host).status_code == status


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("placement_api:8778", "placement_api:8778"),
        ("[2001:db8::1]:8778", "[2001:db8::1]:8778"),
        ("placement:80", "placement"),
        ("localhost:0", "localhost:0"),
        # The address of the server.
        ("placement:99999", "localhost"),
        ("a..b", "localhost"),
        (f"{'a' * 64}.b", "localhost"),
        ("[:::]", "localhost"),
        ("a b", "localhost"),
        ("", "localhost"),
        (None, "localhost"),
    ],
)
def test_urls_name_the_host_of_the_request(new_app: NewApp, host: str | None, shown: str) -> None:
    app = new_app(allowed_hosts=("*",))
    trait = send(app, host, "PUT", f"/traits/CUSTOM_{uuid4().hex.upper()}")
    assert trait.headers["Location"].startswith(f"http://{shown}/traits/CUSTOM_")
    page = send(app, host, path="/console/ask?resources=VCPU:1")
    assert f"<code>http://{shown}/console/ask?resources=VCPU%3A1</code>" in page.text
    assert f"http://{shown}/allocation_candidates?resources=VCPU%3A1" in page.text


@pytest.mark.parametrize("path", ["/console//hosts", "//resource_providers", "/resource_providers//x"])
def test_no_response_redirects_to_a_path_with_fewer_slashes(app: Flask, path: str) -> None:
    assert send(app, "localhost", path=f"http://localhost{path}").status_code == 404


@pytest.mark.parametrize(
    ("host", "status"), [("192.0.2.1:8778", 200), ("[2001:db8::1]", 200), (REBOUND, 421), ("", 421)]
)
def test_insecure_noauth_accepts_every_ip_address(new_app: NewApp, host: str, status: int) -> None:
    """The service cannot know all addresses that lead to it, and a page cannot be rebound to an address."""
    assert send(new_app(allow_insecure=True), host).status_code == status


@pytest.fixture
def with_tokens(new_app: NewApp, tmp_path: Path) -> Callable[..., TestResponse]:
    """A function that sends a request with a valid token to an application with the given settings."""
    file = tmp_path / "tokens.json"
    token = token_file.add(file, "scheduler", "services", ["service"])

    def with_tokens(host: str | None, path: str = "/traits", **settings: Any) -> TestResponse:
        app = new_app(auth="token", token_file=file, **settings)
        return send(app, host, path=path, HTTP_X_AUTH_TOKEN=token)

    return with_tokens


@pytest.mark.parametrize("host", [*LOOPBACK, *OTHERS, None])
def test_other_authentication_accepts_every_host(
    with_tokens: Callable[..., TestResponse], host: str | None
) -> None:
    assert with_tokens(host).status_code == 200


@pytest.mark.parametrize("host", [*MALFORMED, ".", "a..b", ".example.org", f"{'a' * 64}.example.org", ""])
@pytest.mark.parametrize("path", ["/traits", "/console/ask"])
def test_other_authentication_accepts_malformed_hosts(
    with_tokens: Callable[..., TestResponse], host: str, path: str
) -> None:
    """As OpenStack Placement does."""
    assert with_tokens(host, path=path).status_code in (200, 303)


@pytest.mark.parametrize(
    ("host", "status"), [("cloud.example.org", 200), ("localhost", 200), (REBOUND, 421), ("192.0.2.1", 421)]
)
def test_setting_applies_to_other_authentication(
    with_tokens: Callable[..., TestResponse], host: str, status: int
) -> None:
    assert with_tokens(host, allowed_hosts=("cloud.example.org",)).status_code == status


def test_host_is_checked_before_cross_origin_requests(new_app: NewApp) -> None:
    app = new_app(cors_allowed_origins=("https://dashboard.example.org",))
    preflight = {
        "HTTP_ORIGIN": "https://dashboard.example.org",
        "HTTP_ACCESS_CONTROL_REQUEST_METHOD": "PUT",
    }
    assert send(app, "localhost", "OPTIONS", **preflight).status_code == 200
    assert send(app, REBOUND, "OPTIONS", **preflight).status_code == 421


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"]
)
def test_simple_cross_origin_request_is_refused(app: Flask, content_type: str) -> None:
    """A page of another origin may send these without a preflight request, but cannot send a token."""
    headers = {"Origin": "https://elsewhere.example.org", "Content-Type": content_type}
    response = app.test_client().post("/allocations", headers=headers, data="{}")
    assert response.status_code == 401
    assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize("header", ["X-Auth-Token", "OpenStack-API-Version", "Content-Type"])
def test_preflight_of_another_origin_is_refused(app: Flask, header: str) -> None:
    headers = {
        "Origin": "https://elsewhere.example.org",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": header,
    }
    response = app.test_client().options("/allocations", headers=headers)
    assert response.status_code == 401
    assert "Access-Control-Allow-Origin" not in response.headers


# Probes and metrics


@pytest.mark.parametrize("host", [*LOOPBACK, *OTHERS, *MALFORMED, None])
@pytest.mark.parametrize("path", [ALIVE, READY])
def test_probes_accept_every_host(app: Flask, path: str, host: str | None) -> None:
    assert send(app, host, path=path).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("192.0.2.1:8778", 200), ("[2001:db8::1]:8778", 200), ("api", 200), (REBOUND, 421)],
)
def test_metrics_accept_every_ip_address(new_app: NewApp, host: str, status: int) -> None:
    response = send(new_app(allowed_hosts=("api",)), host, path=METRICS)
    assert response.status_code == status
    assert ("placement_inventory" in response.text) == (status == 200)
    assert ("PLACEMENT_ALLOWED_HOSTS" in response.text) == (status == 421)


def test_metrics_accept_every_host_with_other_authentication(new_app: NewApp, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    token_file.add(file, "u", "p", ["r"])
    assert send(new_app(auth="token", token_file=file), REBOUND, path=METRICS).status_code == 200


# Proxies


@pytest.mark.parametrize(
    ("host", "forwarded", "status"),
    [
        ("localhost", {}, 200),
        (REBOUND, {}, 421),
        ("localhost", {"HTTP_X_FORWARDED_HOST": "localhost:8778"}, 200),
        ("localhost", {"HTTP_X_FORWARDED_HOST": REBOUND}, 421),
        ("localhost", {"HTTP_FORWARDED": f"host={REBOUND}"}, 421),
        (REBOUND, {"HTTP_X_FORWARDED_HOST": "localhost"}, 421),
        (REBOUND, {"HTTP_FORWARDED": "host=localhost"}, 421),
        (None, {"HTTP_X_FORWARDED_HOST": "localhost"}, 421),
    ],
)
def test_hosts_of_proxy_and_client_count(
    new_app: NewApp, host: str | None, forwarded: dict[str, str], status: int
) -> None:
    """A page whose requests do not pass the proxy can send `X-Forwarded-Host` itself."""
    assert send(new_app(proxy_headers=True), host, **forwarded).status_code == status


# The real server


def status_of(service: Service, head: bytes) -> int:
    """Return the status of the response to a request with this head."""
    with service.connect(head + b"X-Auth-Token: admin\r\nConnection: close\r\n\r\n") as connection:
        return int(received(connection).split()[1])


def test_server_passes_hosts_to_the_check(database_url: str) -> None:
    with serving(database_url=database_url) as service:
        for head, status in (
            (b"GET /resource_providers HTTP/1.1\r\nHost: localhost\r\n", 200),
            (b"GET /resource_providers HTTP/1.1\r\nHost: rebound.example.org\r\n", 421),
            (b"GET /resource_providers HTTP/1.1\r\nHost:\r\n", 421),
            (b"GET /resource_providers HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example.org\r\n", 400),
            (b"GET /resource_providers HTTP/1.0\r\n", 421),
            (b"GET http://rebound.example.org/resource_providers HTTP/1.1\r\nHost: localhost\r\n", 421),
            (b"GET http://localhost/resource_providers HTTP/1.1\r\nHost: rebound.example.org\r\n", 421),
            (b"GET http://localhost/resource_providers HTTP/1.1\r\nHost: localhost\r\n", 200),
            (b"GET /healthz HTTP/1.0\r\n", 200),
        ):
            assert status_of(service, head) == status, head
