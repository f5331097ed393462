"""Writes of thousands of rows: statements whose number and length do not grow with the request."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from placement_svc.db.connections.engine import Database
from tests.conftest import Api
from tests.support.statements import analyze, sent_statements

COUNT = 3_500
"""Rows of a request: with a parameter per value, PostgreSQL exceeds its stack depth at 3,000 pairs."""

MAX_SECONDS = 30

ADD_PROVIDERS = """
    WITH new AS (
        INSERT INTO resource_providers (id, uuid, name, root_id, path) OVERRIDING SYSTEM VALUE
        SELECT id, '00000000-0000-4000-8000-' || lpad(id::text, 12, '0'), id, id, ARRAY[id]
          FROM generate_series(1, :count) AS id
        RETURNING id
    )
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT new.id, new.id, class.id, 100, 0, 1, 100, 1, 1
      FROM new, resource_classes AS class
     WHERE class.name IN ('VCPU', 'MEMORY_MB')
"""
ADD_NAMES = """
    INSERT INTO {table} (name) SELECT 'CUSTOM_' || number FROM generate_series(1, :count) AS number
"""


def provider(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def consumer(number: int) -> str:
    return f"10000000-0000-4000-8000-{number:012}"


@pytest.fixture
def add(database: Database) -> Callable[..., None]:
    """A function that executes an INSERT for a number of rows."""

    def add(statement: str, count: int = COUNT) -> None:
        database.write(lambda connection: connection.execute(text(statement), {"count": count}) and None)

    return add


def reshape_body(count: int, *classes: str, generation: int, consumer_generation: int | None) -> Any:
    """Return a reshape that gives each provider inventories of `classes` and one consumer of the first."""
    return {
        "inventories": {
            provider(number): {
                "resource_provider_generation": generation,
                "inventories": {name: {"total": 100} for name in classes},
            }
            for number in range(1, count + 1)
        },
        "allocations": {
            consumer(number): {
                "project_id": "project",
                "user_id": "user",
                "consumer_type": "INSTANCE",
                "consumer_generation": consumer_generation,
                "allocations": {provider(number): {"resources": {classes[0]: 1}}},
            }
            for number in range(1, count + 1)
        },
    }


def test_reshape_of_thousands_of_providers(
    api: Api, engine: Engine, database: Database, add: Callable[..., None]
) -> None:
    add(ADD_PROVIDERS)
    # As after an import. A session of earlier tests checks foreign keys by plans for nearly empty tables,
    # with sequential scans, until a table is analyzed.
    analyze(database.engine, "resource_providers", "inventories", "consumers", "allocations")
    started = time.monotonic()
    body = reshape_body(COUNT, "VCPU", generation=0, consumer_generation=None)
    assert api("POST", "/reshaper", body).status_code == 204
    body = reshape_body(COUNT, "DISK_GB", "MEMORY_MB", generation=3, consumer_generation=1)
    assert api("POST", "/reshaper", body).status_code == 204
    assert time.monotonic() - started < MAX_SECONDS
    with engine.connect() as connection:
        stored = connection.execute(
            text("""
                SELECT name, count(*), sum(inventory.used)
                  FROM inventories AS inventory JOIN resource_classes AS class ON class.id = resource_class_id
                 GROUP BY name ORDER BY name
            """)
        ).all()
    assert [tuple(row) for row in stored] == [("DISK_GB", COUNT, COUNT), ("MEMORY_MB", COUNT, 0)]
    summary = api("GET", f"/resource_providers/{provider(COUNT)}/inventories").json
    assert summary["resource_provider_generation"] == 6  # type: ignore[index]


def test_statements_of_a_reshape_do_not_grow_with_the_providers(
    api: Api, database: Database, clean_database: Callable[[], None], add: Callable[..., None]
) -> None:
    sent = []
    for count in (2, 60):
        clean_database()
        add(ADD_PROVIDERS, count)
        body = reshape_body(count, "DISK_GB", generation=0, consumer_generation=None)
        with sent_statements(database.engine) as statements:
            assert api("POST", "/reshaper", body).status_code == 204
        sent.append([statement.text for statement in statements])
    assert sent[0] == sent[1]


@pytest.fixture
def kept_statistics(add: Callable[..., None]) -> Iterator[None]:
    """No autovacuum of inventories, which could analyze the table while it is empty."""
    add("ALTER TABLE inventories SET (autovacuum_enabled = off)")
    yield
    add("ALTER TABLE inventories RESET (autovacuum_enabled)")


@pytest.mark.usefixtures("kept_statistics")
@pytest.mark.parametrize("analyzed_at", [1, COUNT], ids=["old statistics", "new statistics"])
def test_deletion_in_a_reshape_reads_by_key(
    api: Api,
    database: Database,
    clean_database: Callable[[], None],
    add: Callable[..., None],
    analyzed_at: int,
) -> None:
    """The statistics are those of a cloud with this number of providers."""
    # Earlier tests leave a large index, of which PostgreSQL would expect a lookup to read a part.
    add("TRUNCATE inventories CASCADE")
    add(ADD_PROVIDERS, analyzed_at)
    analyze(database.engine, "inventories")
    clean_database()
    add(ADD_PROVIDERS)
    with sent_statements(database.engine) as sent:
        body = reshape_body(2, "VCPU", generation=0, consumer_generation=None)
        assert api("POST", "/reshaper", body).status_code == 204
    [deletion] = [statement for statement in sent if statement.text.startswith("DELETE FROM inventories")]
    values = {f"param_{number}": [1, 2] for number in (1, 2)} | {"used_1": 0}
    with database.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN {deletion.text}", values).scalars().all()
    assert not [line for line in plan if "Seq Scan" in line], plan
    assert [line for line in plan if "inventories_pkey" in line], plan


def test_refused_reshape_of_thousands_names_the_first_inventory_in_use(
    api: Api, add: Callable[..., None]
) -> None:
    add(ADD_PROVIDERS)
    body = reshape_body(COUNT, "VCPU", generation=0, consumer_generation=None)
    assert api("POST", "/reshaper", body).status_code == 204
    body = reshape_body(COUNT, "DISK_GB", generation=3, consumer_generation=None) | {"allocations": {}}
    response = api("POST", "/reshaper", body)
    assert response.status_code == 409
    assert response.json["errors"][0]["code"] == "placement.inventory.inuse"  # type: ignore[index]
    assert f"Inventory for 'VCPU' on resource provider '{provider(1)}'" in json.dumps(response.json)


@pytest.mark.parametrize("table", ["traits", "resource_classes"])
def test_statements_of_a_provider_do_not_grow_with_its_names(
    api: Api, database: Database, add: Callable[..., None], table: str
) -> None:
    add(ADD_PROVIDERS, 1)
    add(ADD_NAMES.format(table=table))
    sent = []
    generation = 0
    for count in (2, COUNT):
        names = [f"CUSTOM_{number}" for number in range(1, count + 1)]
        content: Any = {"traits": names}
        if table == "resource_classes":
            content = {"inventories": {name: {"total": 1} for name in names}}
        path = f"/resource_providers/{provider(1)}/{next(iter(content))}"
        with sent_statements(database.engine) as statements:
            response = api("PUT", path, content | {"resource_provider_generation": generation})
        assert response.status_code == 200
        generation = response.json["resource_provider_generation"]  # type: ignore[index]
        sent.append([statement.text for statement in statements])
    assert sent[0] == sent[1]


def test_statements_of_a_provider_do_not_grow_with_its_aggregates(
    api: Api, database: Database, add: Callable[..., None]
) -> None:
    add(ADD_PROVIDERS, 1)
    path = f"/resource_providers/{provider(1)}/aggregates"
    sent = []
    for generation, count in enumerate((2, COUNT)):
        body = {
            "aggregates": [provider(number) for number in range(count)],
            "resource_provider_generation": generation,
        }
        with sent_statements(database.engine) as statements:
            response = api("PUT", path, body)
        assert len(response.json["aggregates"]) == count  # type: ignore[index]
        sent.append([statement.text for statement in statements])
    assert sent[0] == sent[1]
