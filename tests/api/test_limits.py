"""Limits on the size of a request."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from placement_svc.config import Settings
from placement_svc.db.search import anchor_statement
from tests.conftest import ADMIN, Api, application
from tests.support.versions import EXTENDED_HEADER

MAXIMUM = 3

Get = Callable[[str], TestResponse]


@pytest.fixture(scope="module")
def limited(database_url: str) -> Iterator[Flask]:
    """An application with low limits."""
    settings = Settings(database_url=database_url, max_body=100, max_groups=MAXIMUM, max_items=MAXIMUM)
    with application(settings) as app:
        yield app


@pytest.fixture
def send(limited: Flask) -> Callable[..., TestResponse]:
    """A function that sends requests to `limited`."""

    def send(method: str, path: str, json: Any = None, headers: Mapping[str, str] = {}) -> TestResponse:
        return limited.test_client().open(path, method=method, json=json, headers={**ADMIN, **headers})

    return send


def detail(response: TestResponse) -> str:
    assert response.status_code == 400
    return response.json["errors"][0]["detail"]  # type: ignore[index]


def groups(count: int) -> str:
    suffixed = "".join(f"&resources_{n}=VCPU:1" for n in range(count - 1))
    return f"/allocation_candidates?resources=VCPU:1{suffixed}&group_policy=none"


def traits(count: int) -> str:
    return ",".join(f"CUSTOM_{n}" for n in range(count))


def uuids(count: int) -> str:
    return "in:" + ",".join(str(uuid4()) for _ in range(count))


def classes(count: int) -> str:
    return ",".join(f"CUSTOM_{n}:1" for n in range(count))


LISTS = {
    "resources": lambda n: f"/resource_providers?resources={classes(n)}",
    "member_of": lambda n: f"/resource_providers?member_of={uuids(n)}",
    "required": lambda n: f"/resource_providers?required=in:{traits(n)}",
    "repeated": lambda n: "/resource_providers?" + "&".join(f"required={traits(1)}" for _ in range(n)),
    "encoded": lambda n: f"/resource_providers?required={traits(n)}".replace(",", "%2C"),
    "name": lambda n: f"/traits?name=in:{traits(n)}",
    "of a group": lambda n: f"/allocation_candidates?resources=VCPU:1&member_of={uuids(n)}",
}


def test_number_of_request_groups_is_limited(send: Callable[..., TestResponse]) -> None:
    assert send("GET", groups(MAXIMUM)).status_code == 200
    assert f"there are more than {MAXIMUM} request groups" in detail(send("GET", groups(MAXIMUM + 1)))


@pytest.mark.parametrize("path", LISTS.values(), ids=LISTS)
def test_number_of_list_items_is_limited(
    send: Callable[..., TestResponse], path: Callable[[int], str]
) -> None:
    assert f"lists more than {MAXIMUM} items" in detail(send("GET", path(MAXIMUM + 1)))
    within = send("GET", path(MAXIMUM))
    assert within.status_code == 200 or "more than" not in detail(within)


def test_ignored_consumers_have_a_limit_of_their_own(send: Callable[..., TestResponse]) -> None:
    def ignoring(count: int) -> str:
        ignored = "".join(f"&ignore_consumer={uuid4()}" for _ in range(count))
        return f"/allocation_candidates?resources=VCPU:1{ignored}"

    extended = EXTENDED_HEADER
    assert send("GET", ignoring(1000), headers=extended).status_code == 200
    refused = send("GET", ignoring(1001), headers=extended)
    assert "'ignore_consumer' names 1001 consumers" in detail(refused)
    assert refused.json["errors"][0]["code"] == "placement.query.bad_value"  # type: ignore[index]


def test_lists_of_each_group_are_limited_separately(send: Callable[..., TestResponse]) -> None:
    listed = "&".join(f"resources_{n}=VCPU:1&member_of_{n}={uuids(MAXIMUM)}" for n in range(MAXIMUM))
    assert send("GET", f"/allocation_candidates?{listed}&group_policy=none").status_code == 200


def test_size_of_the_body_is_limited(send: Callable[..., TestResponse]) -> None:
    assert send("POST", "/resource_providers", {"name": "x" * 101}).status_code == 413
    assert send("GET", "/").status_code == 200


def test_default_limits_exceed_what_clients_use() -> None:
    assert Settings.max_groups >= 200
    assert Settings.max_items >= 1000


def test_requests_with_many_groups_leave_no_large_cache_entries(app: Flask, api: Api) -> None:
    def cached() -> list[int]:
        caches = (anchor_statement._cached_statement, anchor_statement._cached_shape)
        return [cache.cache_info().currsize for cache in caches]

    # Only what is repeated is cached, and no other test has sent this request.
    for _ in range(2):
        assert api("GET", "/allocation_candidates?resources=VCPU:1717").status_code == 200
    before = cached()
    assert all(before)
    many = "&".join(f"resources{n}=VCPU:{n}" for n in range(1, 101))
    for _ in range(2):
        assert api("GET", f"/allocation_candidates?{many}&group_policy=none").status_code == 200
    assert cached() == before
    compiled = app.extensions["database"].engine.get_execution_options()["compiled_cache"]
    assert all(len(statement.string) < 10_000 for statement in compiled.values())
