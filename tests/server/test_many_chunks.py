"""Chunked bodies of very many chunks: their cost is proportional to their bytes."""

from collections.abc import Iterator

import pytest

from placement_svc.server.bodies import MAX_CHUNKS
from tests.cost.measuring import cpu_seconds
from tests.support.processor_time import reference_seconds
from tests.support.service import Service, received, serving

MAX_COST = 5.0
"""A generous bound, as a multiple of `reference_seconds()`: 60,000 chunks cost about 1."""

TOKEN = b"X-Auth-Token: admin\r\n"


@pytest.fixture(scope="module")
def service(database_url: str) -> Iterator[Service]:
    with serving(1, 2, database_url=database_url) as service:
        yield service


def chunked(count: int, token: bytes = TOKEN) -> bytes:
    """Return a request whose body is an empty JSON object in chunks of one byte."""
    chunks = b"1\r\n \r\n" * (count - 2)
    return (
        b"POST /resource_classes HTTP/1.1\r\nHost: localhost\r\n%b"
        b"OpenStack-API-Version: placement 1.39\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n%b1\r\n}\r\n0\r\n\r\n" % (token, chunks)
    )


def cost(service: Service, sent: bytes) -> tuple[bytes, float]:
    """Return the response to a request, and its processor time as a multiple of `reference_seconds()`."""
    [worker] = service.workers()
    before = cpu_seconds(worker)
    with service.connect(sent) as connection:
        response = received(connection)
    return response, (cpu_seconds(worker) - before) / reference_seconds()


@pytest.mark.parametrize("count", [2, 900, 60_000])
def test_body_of_many_chunks_is_read(service: Service, count: int) -> None:
    response, multiple = cost(service, chunked(count))
    assert response.startswith(b"HTTP/1.1 400 ")
    assert b"'name' is a required property" in response
    assert multiple < MAX_COST


def test_body_of_too_many_chunks_is_refused(service: Service) -> None:
    response, multiple = cost(service, chunked(MAX_CHUNKS + 1))
    assert response.startswith(b"HTTP/1.1 400 ")
    assert b"The body has more than 65,536 chunks" in response
    assert multiple < MAX_COST


def test_caller_without_a_token_costs_little(service: Service) -> None:
    response, multiple = cost(service, chunked(60_000, token=b""))
    assert response.startswith(b"HTTP/1.1 401 ")
    # Less than half of what it costs to read the body.
    assert multiple < MAX_COST / 10
