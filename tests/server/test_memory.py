"""The memory that a worker needs for requests with large bodies."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.service import Service, received, serving

CLIENTS = 24
MAX_MEGABYTES = 300

HEAD = (
    b"POST /allocations HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: admin\r\nConnection: close\r\n"
    b"OpenStack-API-Version: placement 1.39\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


@pytest.fixture(scope="module")
def service(database_url: str) -> Iterator[Service]:
    with serving(1, 4, database_url=database_url) as service:
        yield service


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "' + rb"\u0041" * 2_600_000 + b'"}',
        b"{" + b",".join(b'"%d": {}' % number for number in range(1_000_000)) + b"}",
    ],
    ids=["string", "objects"],
)
def test_large_bodies_of_many_clients_need_little_memory(service: Service, body: bytes) -> None:
    """Each takes up to 64 MiB; without a limit of the heaps, the worker needed 500 MB."""

    def send(_: int) -> bytes:
        with service.connect(HEAD % len(body) + body) as connection:
            return received(connection)[:12]

    with ThreadPoolExecutor(CLIENTS) as threads:
        assert set(threads.map(send, range(2 * CLIENTS))) == {b"HTTP/1.1 400"}
    [worker] = service.workers()
    status = Path(f"/proc/{worker}/status").read_text().splitlines()
    [peak] = [int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM:")]
    assert peak < MAX_MEGABYTES
