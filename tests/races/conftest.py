"""Requests for races, and a running service whose database records the usage at each commit."""

from collections.abc import Callable, Iterator
from functools import partial
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from placement_svc.db import schema
from placement_svc.db.connections.engine import connect
from tests.races.helpers import consumer, inventories
from tests.support.database_statistics import count_deadlocks
from tests.support.service import Service, serving
from tests.support.soundness import audit_faults

# A deferred trigger sees the rows as the transaction commits them. The transaction still holds the row locks
# of the inventories, so the rows of `usage_history` of one inventory are in the order of the commits.
RECORD_USAGE = [
    """
    CREATE TABLE usage_history (
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
    CREATE FUNCTION record_usage() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO usage_history (provider_id, resource_class_id, used, capacity)
        SELECT provider_id, resource_class_id, used, capacity
          FROM inventories
         WHERE provider_id = NEW.provider_id AND resource_class_id = NEW.resource_class_id
            ON CONFLICT DO NOTHING;
        RETURN NULL;
    END
    $$
    """,
    """
    CREATE CONSTRAINT TRIGGER record_usage AFTER INSERT OR UPDATE ON inventories
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION record_usage()
    """,
]


@pytest.fixture(scope="module")
def served_engine(new_database: Callable[[], str]) -> Iterator[Engine]:
    """An engine of the service's database."""
    engine = connect(new_database())
    schema.upgrade(engine)
    with engine.begin() as connection:
        for statement in RECORD_USAGE:
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
    """A function that returns a request: PUT the allocations of a consumer."""

    def put(uuid, allocations, generation=None):
        return partial(api, "PUT", f"/allocations/{uuid}", consumer(allocations, generation))

    return put


@pytest.fixture
def post(api):
    """A function that returns a request: POST the allocations of several consumers."""

    def post(consumers):
        return partial(api, "POST", "/allocations", consumers)

    return post


@pytest.fixture
def provider(api):
    """A function that creates a provider with inventories and returns its uuid."""

    def provider(**totals):
        uuid = str(uuid4())
        assert api("POST", "/resource_providers", {"name": uuid, "uuid": uuid}).status_code == 200
        body = inventories(0, **totals)
        assert api("PUT", f"/resource_providers/{uuid}/inventories", body).status_code == 200
        return uuid

    return provider


@pytest.fixture
def used(api):
    """A function that returns the usages of a provider by resource class."""

    def used(uuid):
        return api("GET", f"/resource_providers/{uuid}/usages").json["usages"]

    return used


@pytest.fixture
def place(api):
    """A function that returns a request: place consumers, which are new unless they have generations."""

    def place(*consumers, request="resources=VCPU:1", **options):
        body = {"request": request, "consumers": list(consumers), **options}
        return partial(api, "POST", "/claims", body)

    return place


@pytest.fixture
def deadlocks(engine):
    """A function that returns how many deadlocks PostgreSQL has counted in this database."""

    return partial(count_deadlocks, engine)


@pytest.fixture(autouse=True)
def audited(engine):
    """Audit the stored data of the worker's database after each test."""
    yield
    assert audit_faults(engine) == {}
