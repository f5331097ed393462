"""A write of the cost fuzzer leaves the cloud as it was."""

from collections.abc import Callable, Iterator
from random import Random

import pytest
from sqlalchemy import Connection, Engine, text

from placement_svc.config import Settings
from placement_svc.db import schema
from placement_svc.db.connections.engine import connect
from tests.conftest import ADMIN, application
from tests.cost import clouds, extensions, requests
from tests.cost.requests import Draw, Request
from tests.cost.restoring import CHANGED, restore, save

DRAWS = (
    requests.change_provider,
    requests.claims,
    extensions.placements,
    extensions.placement_groups,
    extensions.patches,
)
ATTEMPTS = 30
"""Requests of each kind."""

CLOUD = clouds.build("racks", 5)


def content(connection: Connection) -> dict[str, list[str]]:
    """Return the rows of all tables that writes change, as text."""
    return {
        table.name: sorted(connection.scalars(text(f"SELECT changed::text FROM {table.name} AS changed")))
        for table in CHANGED
    }


@pytest.fixture(scope="module")
def engine(new_database: Callable[[], str]) -> Iterator[Engine]:
    """An engine of a database with a saved cloud."""
    engine = connect(new_database())
    schema.upgrade(engine)
    CLOUD.load(engine)
    with engine.begin() as connection:
        save(connection)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("draw_request", DRAWS)
def test_restored_rows(draw_request: Callable[[Draw], Request], engine: Engine) -> None:
    draw, is_changed = Draw(Random(0), CLOUD), False
    with engine.begin() as connection:
        before = content(connection)
        found = connection.execute(text("SELECT uuid, generation FROM resource_providers"))
        generations = {row.uuid: row.generation for row in found}
    url = engine.url.render_as_string(hide_password=False)
    with application(Settings(database_url=url)) as app:
        for _ in range(ATTEMPTS):
            request = draw_request(draw)
            app.test_client().open(
                request.target,
                method=request.method,
                data=request.content(generations),
                content_type="application/json",
                headers=ADMIN | {"OpenStack-API-Version": f"placement {request.version}"},
            )
            with engine.begin() as connection:
                is_changed = is_changed or content(connection) != before
                restore(connection)
                assert content(connection) == before, request
    assert is_changed
