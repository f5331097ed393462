"""Clients that connect and send little or nothing do not delay others."""

import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.support.service import Service, received, serving

pytestmark = pytest.mark.long

CONNECTIONS = 5_000

MAX_SECONDS = 15
"""Seconds that a request may take meanwhile: half of the client timeout."""

POST = b"POST /resource_providers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
TOKEN = b"X-Auth-Token: admin\r\n"
LARGE = 16 * 1024 * 1024
INCOMPLETE = {
    "byte": b"G",
    "head": b"GET /traits HTTP/1.1\r\nHost: localhost\r\n",
    "body": POST + TOKEN + b"Content-Length: 1000\r\n\r\n{",
    "large body": POST + TOKEN + b"Content-Length: %d\r\n\r\n{" % LARGE,
    "chunks": POST + TOKEN + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{",
    "expected body": POST + TOKEN + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
    "end": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
}
"""The bytes that a client sends before it stops. The last request is complete; its client does not close."""


@pytest.fixture(scope="module")
def service(database_url: str) -> Iterator[Service]:
    with serving(2, 2, database_url=database_url) as service:
        yield service


@contextmanager
def many_connections(service: Service, sent: bytes) -> Iterator[None]:
    """Open `CONNECTIONS`, or as many as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = CONNECTIONS + 500 if hard == resource.RLIM_INFINITY else min(hard, CONNECTIONS + 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    try:
        with ExitStack() as connections:
            for _ in range(allowed - 500):
                connections.enter_context(service.connect(sent))
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("sent", INCOMPLETE.values(), ids=INCOMPLETE)
def test_waiting_connections_do_not_delay_others(service: Service, sent: bytes) -> None:
    with many_connections(service, sent):
        for path in ("/healthz", "/traits"):
            for _ in range(10):
                started = time.monotonic()
                assert service.get(path)[0] == 200
                assert time.monotonic() - started < MAX_SECONDS


@pytest.mark.parametrize(
    "headers",
    [
        b"Connection: CLOSE\r\n",
        b"Connection: TE, close\r\n",
        b"Connection: close,TE\r\n",
        b"Connection: TE\r\nConnection: close\r\n",
    ],
)
def test_connection_is_closed_if_the_client_asks_for_it(service: Service, headers: bytes) -> None:
    with service.connect(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n") as connection:
        response = received(connection)
    assert response.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nConnection: close\r\n" in response


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c"])
def test_upgrade_to_another_protocol_is_ignored(service: Service, protocol: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: %b\r\n\r\n"
    with service.connect(head % protocol) as connection:
        assert received(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: %d\r\n" % LARGE,
        b"Content-Length: %d\r\nExpect: 100-continue\r\n" % LARGE,
        b"Content-Length: 2\r\nExpect: 100-continue\r\n",
    ],
)
def test_caller_without_a_token_need_not_send_the_body(service: Service, header: bytes) -> None:
    with service.connect(POST + header + b"\r\n") as connection:
        response = received(connection)
    assert response.startswith(b"HTTP/1.1 401 ")
    assert b"\r\nConnection: close\r\n" in response
    assert response.count(b"HTTP/1.1 ") == 1


def test_body_that_the_client_announces_is_asked_for_after_the_checks(service: Service) -> None:
    head = POST + TOKEN + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    with service.connect(head) as connection:
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        response = received(connection)
    assert response.startswith(b"HTTP/1.1 400 ")
    assert response.count(b"HTTP/1.1 200 ") == 1


def test_large_body_of_a_caller_with_a_token_is_read(service: Service) -> None:
    length = LARGE - 1
    head = POST + TOKEN + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % length
    with service.connect(head) as connection:
        connection.sendall(b"x" * length)
        response = received(connection)
    assert response.startswith(b"HTTP/1.1 400 ")
    assert b"Malformed JSON" in response
