"""The service with a database of its own that remembers what was used of each inventory at each commit."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, text

from placement_svc.db import schema
from placement_svc.db.engine import connect
from tests.service import Service, serving

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
    with serving(served_engine.url.render_as_string(hide_password=False)) as service:
        yield service
