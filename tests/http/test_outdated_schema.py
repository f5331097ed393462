"""Requests while the schema is older than the service: an operator has not run `db upgrade` yet."""

from collections.abc import Callable, Iterator

import pytest
from flask.testing import FlaskClient

from placement_svc.config import Settings
from placement_svc.db import revisions, schema
from placement_svc.db.connections.engine import connect
from tests.conftest import application

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}


@pytest.fixture(scope="module")
def client(new_database: Callable[[], str]) -> Iterator[FlaskClient]:
    """A client of a service whose database has the schema of the previous release."""
    url = new_database()
    engine = connect(url)
    schema.upgrade(engine)
    schema.downgrade(engine, "0011")
    engine.dispose()
    with application(Settings(database_url=url)) as app:
        yield app.test_client()


@pytest.mark.parametrize(
    "path",
    [
        "/allocation_candidates?resources=VCPU:1&limit=1",
        "/allocation_candidates/explanation?resources=VCPU:1",
        "/placement_groups",
    ],
    ids=["column", "column of an explanation", "table"],
)
def test_request_that_an_outdated_schema_cannot_answer_is_503(client: FlaskClient, path: str) -> None:
    response = client.get(path, headers=HEADERS)
    assert response.status_code == 503
    (error,) = response.get_json()["errors"]
    expected = f"The schema is at revision 0011 of {revisions.newest()}: run `placement-svc db upgrade`."
    assert expected in error["detail"]


def test_request_that_needs_nothing_new_succeeds(client: FlaskClient) -> None:
    assert client.get("/resource_providers", headers=HEADERS).status_code == 200
