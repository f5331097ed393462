"""A claim takes one round trip to PostgreSQL, however many amounts it has."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask

from tests.conftest import ADMIN, NewApp
from tests.support.postgres_proxy import PostgresProxy

Send = Callable[[str, str, Any], list[str]]


@pytest.fixture
def send(app: Flask, postgres_proxy: PostgresProxy, new_app: NewApp) -> Send:
    """A function that sends a request, which must succeed, and returns the statements it took."""
    proxied = new_app(database_url=postgres_proxy.url)

    def send(method: str, path: str, body: Any) -> list[str]:
        postgres_proxy.statements.clear()
        response = proxied.test_client().open(path, method=method, json=body, headers=ADMIN)
        assert response.status_code in (200, 204), response.text
        return list(postgres_proxy.statements)

    return send


@pytest.fixture(params=[1, 20])
def hosts(request: pytest.FixtureRequest, send: Send) -> list[str]:
    """The uuids of one provider, or of twenty."""
    uuids = [str(uuid4()) for _ in range(request.param)]
    for uuid in uuids:
        send("POST", "/resource_providers", {"name": uuid, "uuid": uuid})
        inventories = {"VCPU": {"total": 100}, "DISK_GB": {"total": 100}}
        body = {"resource_provider_generation": 0, "inventories": inventories}
        send("PUT", f"/resource_providers/{uuid}/inventories", body)
    return uuids


def claim(hosts: list[str], generation: int | None) -> dict[str, Any]:
    return {
        "allocations": {host: {"resources": {"VCPU": 1, "DISK_GB": 2}} for host in hosts},
        "consumer_generation": generation,
        "project_id": "project",
        "user_id": "user",
        "consumer_type": "INSTANCE",
    }


def test_claim_is_one_round_trip(send: Send, hosts: list[str]) -> None:
    first, server, other = uuid4(), f"/allocations/{uuid4()}", str(uuid4())
    send("PUT", f"/allocations/{first}", claim(hosts, None))
    new = send("PUT", server, claim(hosts, None))
    changed = send("PUT", server, claim(hosts, 1))
    moved = send("POST", "/allocations", {str(first): claim([], 1), other: claim(hosts, None)})
    deleted = send("PUT", server, claim([], 2))
    for statements in (new, changed, moved, deleted):
        assert len(statements) == 1


def test_first_claim_of_a_project_a_user_and_a_type_is_one_round_trip(send: Send, hosts: list[str]) -> None:
    assert len(send("PUT", f"/allocations/{uuid4()}", claim(hosts, None))) == 1


def test_claim_after_a_read_on_the_same_connection_is_one_round_trip(send: Send, hosts: list[str]) -> None:
    send("GET", "/resource_providers", None)
    assert len(send("PUT", f"/allocations/{uuid4()}", claim(hosts, None))) == 1
    assert send("GET", "/resource_providers", None)[0].startswith("BEGIN ISOLATION LEVEL REPEATABLE READ")


def test_delete_is_one_round_trip(send: Send, hosts: list[str]) -> None:
    path = f"/allocations/{uuid4()}"
    send("PUT", path, claim(hosts, None))
    assert len(send("DELETE", path, None)) == 1
