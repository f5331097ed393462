"""Short requests do not wait for requests that compute for long."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from threading import Event
from uuid import uuid4

import pytest

from tests.conftest import ADMIN
from tests.support.service import TIMEOUT, Service, serving

pytestmark = pytest.mark.long

LONG_REQUESTS = 12
SHORT_REQUESTS = 100

CHILDREN = 10
GROUPS = "&".join(f"resources_{n}=VCPU:1" for n in range(8))
UNLIMITED = f"/allocation_candidates?{GROUPS}&group_policy=none"
"""A request for 100 million candidates."""

IMPOSSIBLE = (
    f"/allocation_candidates?{'&'.join(f'resources_{n}=VCPU:1' for n in range(11))}&group_policy=isolate"
)
"""A request for eleven groups of ten providers."""


@pytest.fixture(scope="module")
def service(database_url: str) -> Iterator[Service]:
    with serving(1, 4, database_url=database_url) as service:
        client = service.client()
        root = str(uuid4())
        client.result("POST", "/resource_providers", {"name": root, "uuid": root})
        for _ in range(CHILDREN):
            child = str(uuid4())
            body = {"name": child, "uuid": child, "parent_provider_uuid": root}
            client.result("POST", "/resource_providers", body)
            inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1000}}}
            client.result("PUT", f"/resource_providers/{child}/inventories", inventories)
        yield service


def read_until(service: Service, path: str, stop: Event) -> None:
    """Send a long request again and again, and read the responses."""
    while not stop.is_set():
        with closing(HTTPConnection("127.0.0.1", service.port, timeout=TIMEOUT)) as connection:
            connection.request("GET", path, headers=ADMIN)
            response = connection.getresponse()
            if response.status == 503:
                assert response.headers["Retry-After"]
                time.sleep(0.1)
            while not stop.is_set() and response.read(65536):
                pass


@pytest.mark.parametrize("paths", [[UNLIMITED], [IMPOSSIBLE], [UNLIMITED, IMPOSSIBLE]])
def test_long_requests_do_not_delay_short_ones(service: Service, paths: list[str]) -> None:
    stop = Event()
    times = []
    with ThreadPoolExecutor(LONG_REQUESTS) as threads:
        running = [
            threads.submit(read_until, service, paths[n % len(paths)], stop) for n in range(LONG_REQUESTS)
        ]
        time.sleep(1)
        try:
            for _ in range(SHORT_REQUESTS):
                started = time.monotonic()
                assert service.get("/traits")[0] == 200
                times.append(time.monotonic() - started)
        finally:
            stop.set()
        for done in running:
            done.result()
    times.sort()
    assert times[98] < 2
