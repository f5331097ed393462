"""A claim during a database failure is granted or not, as a whole, and the response says so correctly."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Engine, text
from werkzeug.test import TestResponse

from placement_svc.db.claims import procedures
from tests.conftest import ADMIN, Api, NewApp
from tests.support.postgres_proxy import PostgresProxy


@pytest.fixture
def claim(api: Api) -> dict[str, Any]:
    """A claim on two providers, as a body."""
    uuids = [str(uuid4()) for _ in range(2)]
    for uuid in uuids:
        assert api("POST", "/resource_providers", {"name": uuid, "uuid": uuid}).status_code == 200
        inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
        assert api("PUT", f"/resource_providers/{uuid}/inventories", inventories).status_code == 200
    return {
        "allocations": {uuid: {"resources": {"VCPU": 1}} for uuid in uuids},
        "consumer_generation": None,
        "project_id": "project",
        "user_id": "user",
        "consumer_type": "INSTANCE",
    }


def put(app: Flask, path: str, body: Any) -> TestResponse:
    return app.test_client().put(path, json=body, headers=ADMIN)


def error_detail(response: TestResponse) -> str:
    """Return the last line of the detail of a 503 response."""
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    detail: str = response.json["errors"][0]["detail"]  # type: ignore[index]
    return detail.splitlines()[-1].strip()


CLAIM = procedures.CLAIM.partition("(")[0] + "("
DELETE = procedures.DELETE_CONSUMER.partition("(")[0] + "("
UNKNOWN = "The database was lost at the commit: it is not known whether anything has changed."


def test_claim_is_retried_if_the_connection_is_lost_before_it_arrives(
    api: Api, claim: Any, postgres_proxy: PostgresProxy, new_app: NewApp
) -> None:
    app, path = new_app(database_url=postgres_proxy.url), f"/allocations/{uuid4()}"
    postgres_proxy.drop_connection_at(CLAIM, delivered=False)
    assert put(app, path, claim).status_code == 204
    assert [sent.startswith(CLAIM) for sent in postgres_proxy.statements].count(True) == 2
    assert api("GET", path).json["consumer_generation"] == 1  # type: ignore[index]


def test_claim_is_granted_once_if_the_connection_is_lost_after_it(
    api: Api, claim: Any, postgres_proxy: PostgresProxy, new_app: NewApp, engine: Engine
) -> None:
    app, path = new_app(database_url=postgres_proxy.url), f"/allocations/{uuid4()}"
    for generation in (None, 1):
        claim["consumer_generation"] = generation
        postgres_proxy.drop_connection_at(CLAIM, delivered=True)
        assert put(app, path, claim).status_code == 204
    assert api("GET", path).json["consumer_generation"] == 2  # type: ignore[index]
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT used FROM inventories")).all() == [1, 1]
    claim |= {"allocations": {}, "consumer_generation": 2}
    postgres_proxy.drop_connection_at(CLAIM, delivered=True)
    assert put(app, path, claim).status_code == 204
    assert api("GET", path).json == {"allocations": {}}


@pytest.mark.parametrize("delivered", [False, True])
def test_release_whose_connection_is_lost_succeeds_if_the_consumer_is_gone(
    delivered: bool, api: Api, claim: Any, postgres_proxy: PostgresProxy, new_app: NewApp
) -> None:
    app, path = new_app(database_url=postgres_proxy.url), f"/allocations/{uuid4()}"
    assert put(app, path, claim).status_code == 204
    postgres_proxy.drop_connection_at(DELETE, delivered=delivered)
    response = app.test_client().delete(path, headers=ADMIN)
    if delivered:
        assert response.status_code == 204
    else:
        assert error_detail(response) == UNKNOWN
    # The consumer may have been released and created again: it is not deleted a second time.
    assert [sent.startswith(DELETE) for sent in postgres_proxy.statements].count(True) == 1
    assert bool(api("GET", path).json["allocations"]) != delivered  # type: ignore[index]


@pytest.mark.parametrize("delivered", [False, True])
def test_claim_without_a_generation_is_not_sent_again(
    delivered: bool, claim: Any, postgres_proxy: PostgresProxy, new_app: NewApp, engine: Engine
) -> None:
    app, path, old = (
        new_app(database_url=postgres_proxy.url),
        f"/allocations/{uuid4()}",
        {**ADMIN, "OpenStack-API-Version": "placement 1.12"},
    )
    del claim["consumer_generation"], claim["consumer_type"]
    postgres_proxy.drop_connection_at(CLAIM, delivered=delivered)
    assert error_detail(app.test_client().put(path, json=claim, headers=old)) == UNKNOWN
    assert [sent.startswith(CLAIM) for sent in postgres_proxy.statements].count(True) == 1
    with engine.connect() as connection:
        used = connection.scalars(text("SELECT used FROM inventories")).all()
    assert used == ([1, 1] if delivered else [0, 0])


def test_claim_that_waits_too_long_for_a_lock_is_unavailable(
    api: Api, claim: Any, new_app: NewApp, engine: Engine
) -> None:
    app, path = new_app(lock_timeout=1), f"/allocations/{uuid4()}"
    with engine.begin() as other:
        other.execute(text("SELECT FROM resource_providers FOR UPDATE"))
        detail = error_detail(put(app, path, claim))
    assert detail == "Another request has held what this one needs for too long."
    assert api("GET", path).json == {"allocations": {}}
    assert put(app, path, claim).status_code == 204


FULL_DISK = """
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END
    $$
"""


@pytest.fixture(params=["BEFORE INSERT ON allocations", "AFTER UPDATE ON inventories"])
def free_disk(request: pytest.FixtureRequest, engine: Engine, claim: Any) -> Iterator[Callable[[], None]]:
    """A full disk, on which some writes fail; the function frees space."""
    drop = "DROP FUNCTION IF EXISTS fail CASCADE"

    def run(*statements: str) -> None:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    run(FULL_DISK, f"CREATE TRIGGER fail {request.param} FOR EACH ROW EXECUTE FUNCTION fail()")
    yield lambda: run(drop)
    run(drop)


def test_claim_on_a_full_disk_is_unavailable_and_stores_nothing(
    api: Api, claim: Any, free_disk: Callable[[], None], engine: Engine
) -> None:
    path = f"/allocations/{uuid4()}"
    detail = error_detail(api("PUT", path, claim))
    assert detail == "The database is out of disk space, memory or connections."
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM consumers")) == 0
        assert connection.scalar(text("SELECT sum(generation) FROM resource_providers")) == 2
    free_disk()
    assert api("PUT", path, claim).status_code == 204
