"""Compare random methods, paths and headers: the checks before a view runs (`docs/spec/http.md`)."""

import json
from collections.abc import Callable
from random import Random
from uuid import uuid4

import pytest

from tests.differential.conftest import SEEDS
from tests.differential.drawing import VERSIONS
from tests.differential.known import Exchange
from tests.differential.services import Request, Service, api_request

REQUESTS = 1500
MAX_SHOWN = 10

METHODS = ["GET", "GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"]
PATHS = [
    *("/", "/resource_providers", "/resource_providers/{host}", "/resource_providers/{host}/inventories"),
    *(
        "/resource_providers/{host}/inventories/VCPU",
        "/resource_providers/{host}/usages",
        "/traits",
        "/usages",
    ),
    *("/resource_providers/{host}/aggregates", "/resource_providers/{host}/allocations", "/reshaper"),
    *("/resource_providers/{host}/traits", "/traits/CUSTOM_RED", "/traits/HW_NUMA_ROOT", "/resource_classes"),
    *("/resource_classes/CUSTOM_GOLD", "/resource_classes/VCPU", "/allocations", "/allocations/{host}"),
    *("/allocation_candidates", "/allocation_candidates?resources=VCPU:1", "/usages?project_id=p"),
    *("/nothing", "//", "/resource_providers/", "//resource_providers", "/Resource_Providers", "/traits//x"),
    *(
        "/resource_providers/{host}/",
        "/resource_providers/{host}/nothing",
        "/resource_providers/x%2Finventories",
    ),
    *(
        "/resource_providers/{host}/inventories/%56CPU",
        "/reshaper/",
        "/traits/a/b",
        "/allocation_candidates/x",
    ),
]
ACCEPTS = [
    *("application/json", "*/*", "", " ", "text/html", "text/plain", "text/*", "application/*", "image/png"),
    *("text/html,application/json", "application/json;q=0", "text/html;q=0.5,application/json", "*/*;q=0.8"),
    *("application/json; charset=utf-8", "text/html;q=0.1,*/*;q=0.2", "APPLICATION/JSON", "nonsense", ";q=1"),
    *(",application/json,", "text/html;level=1", "*/*, text/html;q=0", "application/json;q=2", "*"),
]
CONTENT_TYPES = [
    *("application/json", "application/json; charset=utf-8", "Application/JSON", "text/plain", "json"),
    *("application/json;", "application/jsonx", "application/octet-stream", " application/json"),
]
VERSION_HEADERS = [
    *(f"placement {version}" for version in VERSIONS),
    *(
        "placement latest",
        "placement LATEST",
        "placement 1",
        "placement 1.x",
        "placement 1.2.3",
        "placement 1.40",
    ),
    *(
        "placement 0.9",
        "placement 2.0",
        "placement -1.5",
        "placement 01.05",
        "placement +1.5",
        "placement foo",
    ),
    *("PLACEMENT 1.5", "placement", "1.5", "compute 2.1", "compute 2.1, placement 1.7", "placement:1.7", ""),
    *(
        "placement 1.5, placement 1.9",
        "placement 1.5 x",
        "placement   1.8",
        "placement 1.5,",
        "placement\t1.6",
    ),
    *(
        "compute 2.1,placement 1.4,volume 3.2",
        "placement 1.",
        "placement .5",
        "placement 1. 5",
        "placements 1.5",
    ),
]
TOKENS = ["admin", "admin", "admin", "someone", "admin:project", "Admin", "someone:p", ":", "admin:p:x"]
ROLES = ["", "admin", "service", "reader", "member", "ADMIN", " admin , member", "admins", "reader,member"]


def draw_request(random: Random, host: str) -> Request:
    """Draw a request; any part of it may be invalid."""
    headers: list[tuple[str, str]] = []
    if random.random() < 0.96:
        headers.append(("X-Auth-Token", random.choice(TOKENS)))
    if random.random() < 0.9:
        is_valid = random.random() < 0.7
        version = random.choice(["placement 1.39", *VERSION_HEADERS[:40]] if is_valid else VERSION_HEADERS)
        headers.append(("OpenStack-API-Version", version))
        if random.random() < 0.05:
            headers.append(("openstack-api-version", random.choice(VERSION_HEADERS)))
    for name, values, chance in (
        ("Accept", ACCEPTS, 0.4),
        ("X-Roles", ROLES, 0.3),
        ("X-Project-Id", ["p", "q"], 0.1),
        ("X-Openstack-Request-Id", ["req-11111111-1111-1111-1111-111111111111", "x"], 0.1),
        ("OpenStack-placement-API-Version", ["1.5"], 0.05),
        ("If-Modified-Since", ["Fri, 20 Nov 2099 20:44:37 GMT"], 0.05),
        ("Origin", ["http://example.org"], 0.05),
    ):
        if random.random() < chance:
            headers.append((name, random.choice(values)))
    body = None
    if random.random() < 0.5:
        body = json.dumps(random.choice([{}, [], {"name": "host"}, 1])).encode()
        body = b"" if random.random() < 0.1 else body
        if random.random() < 0.9:
            headers.append(("Content-Type", random.choice([*["application/json"] * 5, *CONTENT_TYPES])))
    elif random.random() < 0.2:
        headers.append(("Content-Type", random.choice(CONTENT_TYPES)))
    path = random.choice(PATHS).format(host=host)
    return Request(random.choice(METHODS), path, tuple(headers), body)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_headers(seed: int, reference: Service, ours: Service, clear: Callable[[], None]) -> None:
    random = Random(seed)
    host = str(uuid4())
    unexplained = []
    for _ in range(REQUESTS):
        for service in (reference, ours):
            service.send(api_request("POST", "/resource_providers", {"name": "host", "uuid": host}))
        exchange = Exchange.between(draw_request(random, host), reference, ours)
        if exchange.unexplained:
            unexplained.append(str(exchange))
        if len(unexplained) == MAX_SHOWN:
            break
    assert not unexplained, "\n\n".join(unexplained)
