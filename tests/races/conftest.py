"""Requests to send at once; and the service, whose database remembers what was used at each commit."""

from collections.abc import Callable, Iterator
from functools import partial
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from placement_svc.db import schema
from placement_svc.db.engine import connect
from tests.races.helpers import consumer, inventories
from tests.support.service import Service, serving
from tests.support.soundness import unsound

# A deferred trigger sees what a transaction leaves. It still holds the lock of the inventory's row, so the
# order of `seen` is that of the commits.
REMEMBER = [
    """
    CREATE TABLE seen (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
        provider_id int NOT NULL,
        resource_class_id int NOT NULL,
        used bigint NOT NULL,
        capacity bigint NOT NULL,
        UNIQUE (transaction, provider_id, resource_class_id)
    )
    """,
    """
    CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO seen (provider_id, resource_class_id, used, capacity)
        SELECT provider_id, resource_class_id, used, capacity
          FROM inventories
         WHERE provider_id = NEW.provider_id AND resource_class_id = NEW.resource_class_id
            ON CONFLICT DO NOTHING;
        RETURN NULL;
    END
    $$
    """,
    """
    CREATE CONSTRAINT TRIGGER see AFTER INSERT OR UPDATE ON inventories
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()
    """,
]


@pytest.fixture(scope="module")
def served_engine(new_database: Callable[[], str]) -> Iterator[Engine]:
    """An engine of the service's database."""
    engine = connect(new_database())
    schema.upgrade(engine)
    with engine.begin() as connection:
        for statement in REMEMBER:
            connection.execute(text(statement))
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def service(served_engine: Engine) -> Iterator[Service]:
    """The running service, with two workers."""
    url = served_engine.url.render_as_string(hide_password=False)
    with serving(workers=2, database_url=url) as service:
        yield service


@pytest.fixture
def put(api):
    """Return a function that gives a request: PUT the allocations of a consumer."""

    def put(uuid, allocations, generation=None):
        return partial(api, "PUT", f"/allocations/{uuid}", consumer(allocations, generation))

    return put


@pytest.fixture
def post(api):
    """Return a function that gives a request: POST the allocations of several consumers."""

    def post(consumers):
        return partial(api, "POST", "/allocations", consumers)

    return post


@pytest.fixture
def provider(api):
    """Return a function that creates a provider with inventories and returns its uuid."""

    def provider(**totals):
        uuid = str(uuid4())
        assert api("POST", "/resource_providers", {"name": uuid, "uuid": uuid}).status_code == 200
        body = inventories(0, **totals)
        assert api("PUT", f"/resource_providers/{uuid}/inventories", body).status_code == 200
        return uuid

    return provider


@pytest.fixture
def used(api):
    """Return a function that tells what is used of a provider."""

    def used(uuid):
        return api("GET", f"/resource_providers/{uuid}/usages").json["usages"]

    return used


@pytest.fixture
def books(engine):
    """Balance the books after every race."""
    yield
    assert unsound(engine) == {}
