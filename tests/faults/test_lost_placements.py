"""A search with a claim during a failure is granted or not, as a whole, and the response says so."""

from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from tests.conftest import ADMIN, Api, LoadCloud, NewApp
from tests.faults.test_claim import CLAIM, error_detail
from tests.support.claims_oracle import consumer
from tests.support.cloud import read
from tests.support.postgres_proxy import PostgresProxy


def body(consumers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"request": "resources=VCPU:1", "consumers": consumers}


def used(engine: Engine) -> int:
    """Return the sum of the used amounts of all inventories."""
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT sum(used) FROM inventories")).scalar_one())


@pytest.mark.parametrize("delivered", [False, True])
def test_new_consumers_are_not_placed_twice(
    delivered: bool, load_cloud: LoadCloud, postgres_proxy: PostgresProxy, new_app: NewApp, engine: Engine
) -> None:
    load_cloud(read("g{VCPU8}; h{VCPU8}"))
    client = new_app(database_url=postgres_proxy.url).test_client()
    sent = body([consumer(str(uuid4())) for _ in range(3)])
    postgres_proxy.drop_connection_at(CLAIM, delivered=delivered)
    response = client.post("/claims", json=sent, headers=ADMIN)
    assert response.status_code == 200
    assert used(engine) == 3
    again = client.post("/claims", json=sent, headers=ADMIN)
    assert again.status_code == 409
    assert again.json["errors"][0]["code"] == "placement.concurrent_update"
    assert used(engine) == 3


@pytest.mark.parametrize("statement", ["SELECT * FROM release", "SELECT insert_"])
def test_a_move_is_repeated_if_the_connection_is_lost_before_its_end(
    api: Api,
    load_cloud: LoadCloud,
    postgres_proxy: PostgresProxy,
    new_app: NewApp,
    engine: Engine,
    statement: str,
) -> None:
    load_cloud(read("g{VCPU8}; h{VCPU8}"))
    uuid = str(uuid4())
    assert api("POST", "/claims", json=body([consumer(uuid)])).status_code == 200
    client = new_app(database_url=postgres_proxy.url).test_client()
    postgres_proxy.drop_connection_at(statement, delivered=False)
    sent = {"request": "resources=VCPU:3", "consumers": [consumer(uuid, 1)]}
    response = client.post("/claims", json=sent, headers=ADMIN)
    assert response.status_code == 200, response.json
    assert response.json["claims"][0]["consumer_generation"] == 2
    assert [each.startswith(statement) for each in postgres_proxy.statements].count(True) == 2
    assert used(engine) == 3


def test_a_claim_that_waits_too_long_for_a_lock_is_unavailable(
    load_cloud: LoadCloud, new_app: NewApp, engine: Engine
) -> None:
    load_cloud(read("g{VCPU8}"))
    client = new_app(lock_timeout=1).test_client()
    with engine.begin() as connection:
        connection.execute(text("SELECT FROM resource_providers FOR UPDATE"))
        response = client.post("/claims", json=body([consumer(str(uuid4()))]), headers=ADMIN)
    assert error_detail(response) == "Another request has held what this one needs for too long."
    assert used(engine) == 0
