"""Short requests do not wait for requests that compute for long."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from threading import Event
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import ADMIN
from tests.support.claims_oracle import consumer
from tests.support.service import TIMEOUT, Service, serving
from tests.support.versions import EXTENDED_HEADER

pytestmark = pytest.mark.long

LONG_REQUESTS = 20
"""The clients that send long requests: more than a worker has database connections."""

SHORT_REQUESTS = 100

HEADERS = ADMIN | {
    "Content-Type": "application/json",
    **EXTENDED_HEADER,
}

CHILDREN = 10
GROUPS = "&".join(f"resources_{n}=VCPU:1" for n in range(8))
UNLIMITED = f"/allocation_candidates?{GROUPS}&group_policy=none"
"""A request for 100 million candidates."""

IMPOSSIBLE = (
    f"/allocation_candidates?{'&'.join(f'resources_{n}=VCPU:1' for n in range(11))}&group_policy=isolate"
)
"""A request for eleven groups of ten providers."""

CANDIDATES = 10_000
TENTHS = f"/allocation_candidates?{GROUPS}&group_policy=none&limit={CANDIDATES}"
"""A request that takes some tenths of a second."""

RESHAPED = 1_000
MAX_BODY = 16 * 1024 * 1024

DENSE = b"[" + b"1," * (MAX_BODY // 2 - 2) + b"1]"
"""A body of the maximum size that is refused for its number of values."""

LONG_NAME = b'{"name":"' + b"A" * (MAX_BODY - 20) + b'"}'
"""A body of the maximum size that is parsed."""

LARGE = 1_200_000
"""The size in bytes of a body for which a worker waits only when the application asks for it."""


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


@pytest.fixture(scope="module")
def reshape(service: Service) -> bytes:
    """A reshape of many providers that changes nothing: the generation of the last one is wrong."""
    client = service.client()
    inventories: dict[str, Any] = {}
    for _ in range(RESHAPED):
        uuid = str(uuid4())
        client.result("POST", "/resource_providers", {"name": uuid, "uuid": uuid})
        inventories[uuid] = {"resource_provider_generation": 0, "inventories": {"DISK_GB": {"total": 10}}}
    inventories[uuid]["resource_provider_generation"] = 7
    return json.dumps({"inventories": inventories, "allocations": {}}).encode()


def write_until(service: Service, path: str, body: bytes, statuses: set[int], stop: Event) -> None:
    """Send a request with a large body again and again; it is refused with one of the statuses."""
    while not stop.is_set():
        with closing(HTTPConnection("127.0.0.1", service.port, timeout=TIMEOUT)) as connection:
            connection.request("POST", path, body, headers=HEADERS)
            assert connection.getresponse().status in statuses


def p99_during(service: Service, requests: list[Callable[[Event], None]]) -> float:
    """Return the 99th percentile of the time of a short request during long ones, in seconds."""
    stop = Event()
    times = []
    with ThreadPoolExecutor(LONG_REQUESTS) as threads:
        running = [threads.submit(requests[n % len(requests)], stop) for n in range(LONG_REQUESTS)]
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
    p99 = sorted(times)[98]
    print(f"GET /traits: 99th percentile {p99 * 1000:.0f} ms")
    return p99


@pytest.mark.parametrize("paths", [[UNLIMITED], [IMPOSSIBLE], [UNLIMITED, IMPOSSIBLE]])
def test_long_searches_do_not_delay_short_requests(service: Service, paths: list[str]) -> None:
    def search(path: str) -> Callable[[Event], None]:
        return lambda stop: read_until(service, path, stop)

    assert p99_during(service, [search(path) for path in paths]) < 2


def test_no_request_is_refused_because_others_are_long(service: Service, database_url: str) -> None:
    """There are more of them at a time than keep their database connections."""
    with (
        serving(1, 8, database_url=database_url, pool_size="10") as limited,
        ThreadPoolExecutor(8) as threads,
    ):
        answers = list(threads.map(lambda _: limited.client().result("GET", TENTHS), range(24)))
    assert [len(each["allocation_requests"]) for each in answers] == [CANDIDATES] * 24


def test_large_bodies_do_not_delay_short_requests(service: Service, reshape: bytes) -> None:
    def write(path: str, body: bytes, *statuses: int) -> Callable[[Event], None]:
        return lambda stop: write_until(service, path, body, {*statuses, 503}, stop)

    requests = [
        write("/reshaper", reshape, 409),
        write("/reshaper", DENSE, 400),
        write("/resource_providers", LONG_NAME, 400),
    ]
    assert p99_during(service, requests) < 2


def test_long_calls_with_large_bodies_do_not_delay_short_requests(service: Service) -> None:
    call = {"request": IMPOSSIBLE.partition("?")[2], "consumers": [consumer(str(uuid4()))], "dry_run": True}
    body = json.dumps(call).encode().ljust(LARGE)

    def place(stop: Event) -> None:
        write_until(service, "/claims", body, {409}, stop)

    assert p99_during(service, [place]) < 2
