"""A claim whose database fails it: it is whole or absent, and what the client is told is so."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Engine, text
from werkzeug.test import TestResponse

from tests.conftest import ADMIN, Api, NewApp
from tests.support.postgres_proxy import Wire


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


def problem(response: TestResponse) -> str:
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    detail: str = response.json["errors"][0]["detail"]  # type: ignore[index]
    return detail.splitlines()[-1].strip()


CLAIM = "\n    CALL claim("
UNKNOWN = "The database was lost at the commit: it is not known whether anything has changed."


def test_connection_lost_before_a_claim_arrives_goes_unnoticed(
    api: Api, claim: Any, wire: Wire, new_app: NewApp
) -> None:
    app, path = new_app(database_url=wire.url), f"/allocations/{uuid4()}"
    wire.cut_at(CLAIM, arrives=False)
    assert put(app, path, claim).status_code == 204
    assert [asked.startswith(CLAIM) for asked in wire.asked].count(True) == 2
    assert api("GET", path).json["consumer_generation"] == 1  # type: ignore[index]


def test_connection_lost_when_a_claim_is_granted(
    api: Api, claim: Any, wire: Wire, new_app: NewApp, engine: Engine
) -> None:
    app, path = new_app(database_url=wire.url), f"/allocations/{uuid4()}"
    wire.cut_at(CLAIM, arrives=True)
    assert problem(put(app, path, claim)) == UNKNOWN
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT used FROM inventories")).all() == [1, 1]
    assert put(app, path, claim).status_code == 409


@pytest.mark.parametrize("arrives", [False, True])
def test_claim_without_a_generation_is_not_sent_again(
    arrives: bool, claim: Any, wire: Wire, new_app: NewApp, engine: Engine
) -> None:
    app, path, old = (
        new_app(database_url=wire.url),
        f"/allocations/{uuid4()}",
        {**ADMIN, "OpenStack-API-Version": "placement 1.12"},
    )
    del claim["consumer_generation"], claim["consumer_type"]
    wire.cut_at(CLAIM, arrives=arrives)
    assert problem(app.test_client().put(path, json=claim, headers=old)) == UNKNOWN
    assert [asked.startswith(CLAIM) for asked in wire.asked].count(True) == 1
    with engine.connect() as connection:
        held = connection.scalars(text("SELECT used FROM inventories")).all()
    assert held == ([1, 1] if arrives else [0, 0])


def test_lock_that_is_held_too_long_is_unavailable(
    api: Api, claim: Any, new_app: NewApp, engine: Engine
) -> None:
    app, path = new_app(lock_timeout=1), f"/allocations/{uuid4()}"
    with engine.begin() as other:
        other.execute(text("SELECT FROM resource_providers FOR UPDATE"))
        told = problem(put(app, path, claim))
    assert told == "Another request has held what this one needs for too long."
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
def full_disk(request: pytest.FixtureRequest, engine: Engine, claim: Any) -> Iterator[Callable[[], None]]:
    """A disk on which some writes fail; the function gives it room again."""
    drop = "DROP FUNCTION IF EXISTS fail CASCADE"

    def run(*statements: str) -> None:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    run(FULL_DISK, f"CREATE TRIGGER fail {request.param} FOR EACH ROW EXECUTE FUNCTION fail()")
    yield lambda: run(drop)
    run(drop)


def test_full_disk_is_unavailable_and_leaves_nothing(
    api: Api, claim: Any, full_disk: Callable[[], None], engine: Engine
) -> None:
    path = f"/allocations/{uuid4()}"
    told = problem(api("PUT", path, claim))
    assert told == "The database is out of disk space, memory or connections."
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM consumers")) == 0
        assert connection.scalar(text("SELECT sum(generation) FROM resource_providers")) == 2
    full_disk()
    assert api("PUT", path, claim).status_code == 204
