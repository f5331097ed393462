"""The standard names, their ids, and the order in which responses list names."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import os_resource_classes
import os_traits
import pytest
from sqlalchemy import Engine, Table, func, select

from placement_svc.db import names, schema
from placement_svc.db.connections.engine import Database, connect
from placement_svc.db.tables import FIRST_CUSTOM_ID, resource_classes, traits
from tests.conftest import Api

STANDARD = {"resource_classes": os_resource_classes.STANDARDS, "traits": sorted(os_traits.get_traits())}
CONCURRENT_SERVICES = 8

tables = pytest.mark.parametrize("table", [resource_classes, traits], ids=lambda table: table.name)


@pytest.fixture(scope="module")
def database_without_names_url(new_database: Callable[[], str]) -> str:
    """Return the URL of a database with the schema, whose names the tests change."""
    url = new_database()
    engine = connect(url)
    schema.upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture
def engine_without_names(database_without_names_url: str) -> Iterator[Engine]:
    """Return an engine of a database without names."""
    engine = connect(database_without_names_url)
    with engine.begin() as connection:
        for table in (resource_classes, traits):
            connection.execute(table.delete())
    yield engine
    engine.dispose()


def stored(engine: Engine, table: Table) -> list[tuple[int, str]]:
    with engine.connect() as connection:
        rows = connection.execute(select(table.c.id, table.c.name).order_by(table.c.id))
        return [(id_, name) for id_, name in rows]


@tables
def test_newest_schema_has_the_standard_names(engine: Engine, table: Table) -> None:
    assert stored(engine, table)[: len(STANDARD[table.name])] == list(enumerate(STANDARD[table.name]))


def test_services_that_start_concurrently_store_each_name_once(engine_without_names: Engine) -> None:
    start = Barrier(CONCURRENT_SERVICES)

    def prepare(_: int) -> None:
        database = Database(connect(engine_without_names.url))
        start.wait()
        database.prepare()
        database.engine.dispose()

    with ThreadPoolExecutor(CONCURRENT_SERVICES) as threads:
        list(threads.map(prepare, range(CONCURRENT_SERVICES)))
    for table in (resource_classes, traits):
        assert stored(engine_without_names, table) == list(enumerate(STANDARD[table.name]))


@tables
def test_sync_adds_missing_names_and_changes_no_ids(engine_without_names: Engine, table: Table) -> None:
    standard = STANDARD[table.name]
    with engine_without_names.begin() as connection:
        names.sync_standard(connection)
        names.add(connection, table, "CUSTOM_OLD")
        connection.execute(table.delete().where(table.c.id == len(standard) - 1))
        connection.execute(table.delete().where(table.c.id == 1))
    before = stored(engine_without_names, table)
    with engine_without_names.begin() as connection:
        names.sync_standard(connection)
    after = stored(engine_without_names, table)
    assert set(before) < set(after)
    # A name that was missing gets a new id after all others, even if an id between them is free.
    added = [(len(standard) - 1, standard[1]), (len(standard), standard[-1])]
    assert sorted(set(after) - set(before)) == added


@tables
def test_second_sync_changes_nothing(engine_without_names: Engine, table: Table) -> None:
    query = select(table.c.id, table.c.name, table.c.created_at, table.c.updated_at).order_by(table.c.id)
    with engine_without_names.begin() as connection:
        names.sync_standard(connection)
        before = connection.execute(query).all()
    with engine_without_names.begin() as connection:
        names.sync_standard(connection)
        assert connection.execute(query).all() == before


@tables
def test_custom_names_have_separate_ids(engine_without_names: Engine, table: Table) -> None:
    with engine_without_names.begin() as connection:
        assert names.add(connection, table, "CUSTOM_BEFORE_ALL")
        names.sync_standard(connection)
        assert names.add(connection, table, "CUSTOM_AFTER")
        assert not names.add(connection, table, "CUSTOM_AFTER")
        ids = names.ids(connection, table, ["CUSTOM_BEFORE_ALL", "CUSTOM_AFTER", "CUSTOM_UNKNOWN", "A\x00"])
        assert set(ids) == {"CUSTOM_BEFORE_ALL", "CUSTOM_AFTER"}
        assert min(ids.values()) >= FIRST_CUSTOM_ID
        highest = connection.scalar(select(func.max(table.c.id)).where(table.c.id < FIRST_CUSTOM_ID))
        assert highest == len(STANDARD[table.name]) - 1


@pytest.mark.parametrize("table", ["traits", "resource_classes"])
def test_standard_names_are_listed_before_custom_names(api: Api, table: str) -> None:
    for name in ("CUSTOM_B", "CUSTOM_A"):
        assert api("PUT", f"/{table}/{name}").status_code == 201
    items = api("GET", f"/{table}").json[table]  # type: ignore[index]
    listed = [item if table == "traits" else item["name"] for item in items]
    assert listed == [*STANDARD[table], "CUSTOM_B", "CUSTOM_A"]


def test_filtered_traits_have_the_same_order(api: Api) -> None:
    api("PUT", "/traits/CUSTOM_A")
    name = "in:CUSTOM_A,STORAGE_DISK_SSD,HW_CPU_X86_AVX"
    listed = api("GET", f"/traits?name={name}").json["traits"]  # type: ignore[index]
    assert listed == ["HW_CPU_X86_AVX", "STORAGE_DISK_SSD", "CUSTOM_A"]


def test_traits_of_a_provider_have_the_same_order(api: Api) -> None:
    uuid = "11111111-1111-4111-8111-111111111111"
    api("POST", "/resource_providers", {"name": "host", "uuid": uuid})
    api("PUT", "/traits/CUSTOM_A")
    body = {
        "resource_provider_generation": 0,
        "traits": ["CUSTOM_A", "STORAGE_DISK_SSD", "HW_CPU_X86_AVX"],
    }
    listed = api("PUT", f"/resource_providers/{uuid}/traits", body).json["traits"]  # type: ignore[index]
    assert listed == ["HW_CPU_X86_AVX", "STORAGE_DISK_SSD", "CUSTOM_A"]
