"""What a request may have too much of."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from placement_svc.config import Settings
from placement_svc.db.search import anchors
from tests.conftest import ADMIN, Api, application

MOST = 3

Get = Callable[[str], TestResponse]


@pytest.fixture(scope="module")
def limited(database_url: str) -> Iterator[Flask]:
    """An application that does not bear much."""
    settings = Settings(database_url=database_url, max_body=100, max_groups=MOST, max_items=MOST)
    with application(settings) as app:
        yield app


@pytest.fixture
def send(limited: Flask) -> Callable[..., TestResponse]:
    """A function that asks it."""

    def send(method: str, path: str, json: Any = None) -> TestResponse:
        return limited.test_client().open(path, method=method, json=json, headers=ADMIN)

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


def test_request_may_have_so_many_groups(send: Callable[..., TestResponse]) -> None:
    assert send("GET", groups(MOST)).status_code == 200
    assert f"there are more than {MOST} request groups" in detail(send("GET", groups(MOST + 1)))


@pytest.mark.parametrize("path", LISTS.values(), ids=LISTS)
def test_list_may_have_so_many_items(send: Callable[..., TestResponse], path: Callable[[int], str]) -> None:
    assert f"lists more than {MOST} items" in detail(send("GET", path(MOST + 1)))
    within = send("GET", path(MOST))
    assert within.status_code == 200 or "more than" not in detail(within)


def test_lists_of_groups_count_for_themselves(send: Callable[..., TestResponse]) -> None:
    listed = "&".join(f"resources_{n}=VCPU:1&member_of_{n}={uuids(MOST)}" for n in range(MOST))
    assert send("GET", f"/allocation_candidates?{listed}&group_policy=none").status_code == 200


def test_body_may_have_so_many_bytes(send: Callable[..., TestResponse]) -> None:
    assert send("POST", "/resource_providers", {"name": "x" * 101}).status_code == 413
    assert send("GET", "/").status_code == 200


def test_usual_limits_are_beyond_what_clients_use() -> None:
    assert Settings.max_groups >= 200
    assert Settings.max_items >= 1000


def test_nothing_large_is_kept_of_a_request_with_many_groups(app: Flask, api: Api) -> None:
    compiled = app.extensions["database"].engine.get_execution_options()["compiled_cache"]
    assert api("GET", "/allocation_candidates?resources=VCPU:1").status_code == 200
    searches = anchors._cached_statement.cache_info().currsize
    assert searches
    many = "&".join(f"resources{n}=VCPU:{n}" for n in range(1, 101))
    assert api("GET", f"/allocation_candidates?{many}&group_policy=none").status_code == 200
    assert anchors._cached_statement.cache_info().currsize == searches
    assert 1_000 < max(len(statement.string) for statement in compiled.values()) < 10_000
