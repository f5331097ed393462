"""The maximum size of a body, over HTTP."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.service import Service, received, serving

MAX_BODY = 1000

HEAD = (
    b"POST /resource_classes HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: admin\r\nConnection: close\r\n"
    b"OpenStack-API-Version: placement 1.39\r\nContent-Type: application/json\r\n"
)

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.fixture(scope="module")
def service(database_url: str) -> Iterator[Service]:
    with serving(1, 2, database_url=database_url, max_body=MAX_BODY) as service:
        yield service


def announced(length: int) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (length, b"{}".ljust(length))


def expected(length: int) -> bytes:
    return b"Expect: 100-continue\r\n" + announced(length)


def chunked(length: int) -> bytes:
    return b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (length, b"{}".ljust(length))


@pytest.mark.parametrize("body", [announced, expected, chunked])
def test_body_of_the_maximum_size_is_read(service: Service, body: Callable[[int], bytes]) -> None:
    with service.connect(HEAD + body(MAX_BODY)) as connection:
        response = received(connection).removeprefix(CONTINUE)
    assert response.startswith(b"HTTP/1.1 400 ")
    assert b"'name' is a required property" in response


@pytest.mark.parametrize("body", [announced, expected, chunked])
def test_larger_body_is_refused(service: Service, body: Callable[[int], bytes]) -> None:
    with service.connect(HEAD + body(MAX_BODY + 1)) as connection:
        response = received(connection)
    assert response.startswith(b"HTTP/1.1 413 ")
    assert b"It may have at most 1,000 bytes." in response
