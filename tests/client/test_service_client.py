"""The HTTP client: redirects, errors, limits, and services without the extensions."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import BaseRequestHandler, TCPServer, ThreadingTCPServer
from threading import Event

import pytest
import urllib3

from placement_svc.client import service_client
from placement_svc.client.service_client import ClientError, ServiceClient, StatusError, UnreachableError
from tests.support.servers import responding, run_in_thread
from tests.support.versions import EXTENDED


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_token_is_not_sent_to_another_server(host: str) -> None:
    with responding(200) as (target, received):
        redirect = {"Location": f"http://{host}:{target}/other"}
        with responding(302, headers=redirect) as (port, first):
            assert ServiceClient(f"http://127.0.0.1:{port}", "secret").get("/") == {}
    assert first[0]["X-Auth-Token"] == "secret"
    assert received[0]["X-Auth-Token"] is None


@pytest.mark.parametrize("base", ["", "/placement"])
def test_redirect_to_a_server_that_needs_the_token_is_an_error(base: str) -> None:
    with responding(401) as (target, _):
        redirect = {"Location": f"http://user:s3cret@127.0.0.1:{target}{base}/capacity?key=s3cret#part"}
        with responding(302, headers=redirect) as (port, _):
            url = f"http://127.0.0.1:{port}"
            with pytest.raises(ClientError) as raised:
                ServiceClient(url, "token").get("/capacity?group_by=root")
    other = f"http://127.0.0.1:{target}{base}"
    assert str(raised.value) == (
        f"{url} redirects to {other}, and the token is not sent to another server: name {other} instead"
    )


def test_redirect_within_a_server_keeps_the_token() -> None:
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append((self.path, self.headers["X-Auth-Token"]))
            self.send_response(302 if self.path == "/capacity" else 401)
            self.send_header("Location", "/other")
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Handler)
    with run_in_thread(server), pytest.raises(StatusError) as raised:
        ServiceClient(f"http://127.0.0.1:{server.server_address[1]}", "secret").get("/capacity")
    assert raised.value.status == 401
    assert received == [("/capacity", "secret"), ("/other", "secret")]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://localhost:99999", "Port out of range 0-65535"),
        ("http://localhost:abc", "Port could not be cast to integer value as 'abc'"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://", "it has no host"),
        ("http://:8778", "it has no host"),
        ("https:///placement", "it has no host"),
        ("http://localhost/?a=b", "it must not contain ? or #"),
        ("http://localhost?", "it must not contain ? or #"),
        ("http://localhost/placement#a", "it must not contain ? or #"),
    ],
)
def test_error_for_an_invalid_url_says_what_is_wrong(url: str, reason: str) -> None:
    with pytest.raises(ClientError) as raised:
        ServiceClient(url, "secret")
    assert str(raised.value) == f"{url} is not a service URL: {reason}"


@pytest.mark.parametrize(
    "url", ["http://user:secret@localhost", "http://secret@localhost:x", "postgresql://u:secret@localhost/db"]
)
def test_password_in_a_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ClientError, match="must not have a user or a password") as raised:
        ServiceClient(url, "token")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("status", [200, 400, 404])
def test_service_without_extensions_is_an_error(status: int) -> None:
    headers = {"OpenStack-API-Version": "placement 1.39"}
    with responding(status, headers=headers) as (port, _):
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(ClientError, match=f"^{url} is not placement-svc"):
            ServiceClient(url, "token", version=EXTENDED).get("/capacity")


def test_error_has_the_reason_without_the_general_sentence() -> None:
    body = b'{"errors": [{"detail": "The request is malformed.\\n\\n No such trait.  "}]}'
    with responding(400, body) as (port, _), pytest.raises(StatusError) as raised:
        ServiceClient(f"http://127.0.0.1:{port}", "token").get("/")
    assert (raised.value.status, raised.value.reason) == (400, "No such trait.")


@contextmanager
def sending(*parts: bytes, then: bytes = b"") -> Iterator[tuple[str, list[bytes]]]:
    """Run a server that answers each connection by a part, or in the end by a part and endless bytes `then`.

    Yields its URL, and a list with an element for each connection.
    """
    connections: list[bytes] = []
    is_stopped = Event()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            part = parts[min(len(connections), len(parts) - 1)]
            connections.append(part)
            self.request.recv(65536)
            with suppress(OSError):
                self.request.sendall(part)
                while then and not is_stopped.wait(0.001):
                    self.request.sendall(then)

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    with run_in_thread(server):
        yield f"http://127.0.0.1:{server.server_address[1]}", connections
        is_stopped.set()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "part", [b"", OK + b"X-Slow: ", OK + b"\r\n", OK + b"Content-Length: 9999\r\n\r\n"], ids=str
)
def test_slow_response_is_an_error(monkeypatch: pytest.MonkeyPatch, part: bytes) -> None:
    monkeypatch.setattr(service_client, "MAX_SECONDS", 0.5)
    with sending(part, then=b"1") as (url, _), pytest.raises(UnreachableError) as raised:
        ServiceClient(url, "token").get("/")
    assert str(raised.value) == f"GET {url}/ failed: no complete response within 0.5 seconds"


@pytest.mark.parametrize("status", [b"200 OK", b"404 Not Found"])
@pytest.mark.parametrize(
    ("header", "then"),
    [
        (b"", b"1" * 10_000),
        (b"Content-Length: 100000000\r\n", b"1" * 10_000),
        (b"Transfer-Encoding: chunked\r\n", b"2710\r\n" + b"1" * 10_000 + b"\r\n"),
    ],
)
def test_endless_response_is_an_error(
    monkeypatch: pytest.MonkeyPatch, status: bytes, header: bytes, then: bytes
) -> None:
    monkeypatch.setattr(service_client, "MAX_BODY_BYTES", 1_000_000)
    head = b"HTTP/1.1 " + status + b"\r\n" + header + b"\r\n"
    with sending(head, then=then) as (url, _), pytest.raises(ClientError) as raised:
        ServiceClient(url, "token").get("/")
    assert str(raised.value) == f"GET {url}/ returned more than 1,000,000 bytes"


def test_compressed_response_is_bounded_by_its_decompressed_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_client, "MAX_BODY_BYTES", 1_000_000)
    body = gzip.compress(b"1" * 1_000_001)
    with (
        responding(200, body, {"Content-Encoding": "gzip"}) as (port, _),
        pytest.raises(ClientError) as raised,
    ):
        ServiceClient(f"http://127.0.0.1:{port}", "token").get("/")
    assert str(raised.value).endswith("returned more than 1,000,000 bytes")


def test_response_that_breaks_off_is_requested_again() -> None:
    head = OK + b"Content-Length: 10\r\n\r\n"
    with sending(head + b"{", head + b'{"a": 123}') as (url, connections):
        assert ServiceClient(url, "token").get("/") == {"a": 123}
    assert len(connections) == 2


def test_response_that_always_breaks_off_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib3.Retry, "sleep", lambda *arguments: None)
    with sending(OK + b"Content-Length: 10\r\n\r\n{") as (url, connections), pytest.raises(UnreachableError):
        ServiceClient(url, "token").get("/")
    assert len(connections) == 5


def test_tls_error_is_reported_at_the_first_attempt() -> None:
    attempts = []

    class WithoutTls(BaseRequestHandler):
        def handle(self) -> None:
            attempts.append(self.client_address)
            self.request.recv(65536)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = TCPServer(("127.0.0.1", 0), WithoutTls)
    with run_in_thread(server), pytest.raises(UnreachableError) as raised:
        ServiceClient(f"https://127.0.0.1:{server.server_address[1]}", "token").get("/")
    assert raised.value.reason == "it does not use TLS: write http://"
    assert len(attempts) == 1
