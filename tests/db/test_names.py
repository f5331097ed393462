"""The standard names and their ids, and the order in which names are told."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import os_resource_classes
import os_traits
import pytest
from sqlalchemy import Engine, Table, func, select

from placement_svc.db import names, schema
from placement_svc.db.engine import Database, connect
from placement_svc.db.tables import FIRST_CUSTOM_ID, resource_classes, traits
from tests.conftest import Api

STANDARD = {"resource_classes": os_resource_classes.STANDARDS, "traits": sorted(os_traits.get_traits())}
AT_ONCE = 8

tables = pytest.mark.parametrize("table", [resource_classes, traits], ids=lambda table: table.name)


@pytest.fixture(scope="module")
def nameless_url(new_database: Callable[[], str]) -> str:
    """The URL of a database with the schema, for tests to change its names."""
    url = new_database()
    engine = connect(url)
    schema.upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture
def nameless(nameless_url: str) -> Iterator[Engine]:
    """An engine of a database that knows no names."""
    engine = connect(nameless_url)
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
def test_newest_schema_comes_with_the_standard_names(engine: Engine, table: Table) -> None:
    assert stored(engine, table)[: len(STANDARD[table.name])] == list(enumerate(STANDARD[table.name]))


def test_services_that_start_at_once_store_each_name_once(nameless: Engine) -> None:
    start = Barrier(AT_ONCE)

    def prepare(_: int) -> None:
        database = Database(connect(nameless.url))
        start.wait()
        database.prepare()
        database.engine.dispose()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(prepare, range(AT_ONCE)))
    for table in (resource_classes, traits):
        assert stored(nameless, table) == list(enumerate(STANDARD[table.name]))


@tables
def test_sync_adds_what_is_missing_and_moves_nothing(nameless: Engine, table: Table) -> None:
    standard = STANDARD[table.name]
    with nameless.begin() as connection:
        names.sync_standard(connection)
        names.add(connection, table, "CUSTOM_OLD")
        connection.execute(table.delete().where(table.c.id == len(standard) - 1))
        connection.execute(table.delete().where(table.c.id == 1))
    before = stored(nameless, table)
    with nameless.begin() as connection:
        names.sync_standard(connection)
    after = stored(nameless, table)
    assert set(before) < set(after)
    # A name that is missing in between is new, and comes last.
    new = [(len(standard) - 1, standard[1]), (len(standard), standard[-1])]
    assert sorted(set(after) - set(before)) == new


@tables
def test_second_sync_touches_nothing(nameless: Engine, table: Table) -> None:
    query = select(table.c.id, table.c.name, table.c.created_at, table.c.updated_at).order_by(table.c.id)
    with nameless.begin() as connection:
        names.sync_standard(connection)
        before = connection.execute(query).all()
    with nameless.begin() as connection:
        names.sync_standard(connection)
        assert connection.execute(query).all() == before


@tables
def test_custom_names_have_ids_of_their_own(nameless: Engine, table: Table) -> None:
    with nameless.begin() as connection:
        assert names.add(connection, table, "CUSTOM_BEFORE_ALL")
        names.sync_standard(connection)
        assert names.add(connection, table, "CUSTOM_AFTER")
        assert not names.add(connection, table, "CUSTOM_AFTER")
        found = names.ids(connection, table, ["CUSTOM_BEFORE_ALL", "CUSTOM_AFTER", "CUSTOM_UNKNOWN", "A\x00"])
        assert set(found) == {"CUSTOM_BEFORE_ALL", "CUSTOM_AFTER"}
        assert min(found.values()) >= FIRST_CUSTOM_ID
        highest = connection.scalar(select(func.max(table.c.id)).where(table.c.id < FIRST_CUSTOM_ID))
        assert highest == len(STANDARD[table.name]) - 1


@pytest.mark.parametrize("table", ["traits", "resource_classes"])
def test_lists_tell_standard_names_before_custom_ones(api: Api, table: str) -> None:
    for name in ("CUSTOM_B", "CUSTOM_A"):
        assert api("PUT", f"/{table}/{name}").status_code == 201
    listed = api("GET", f"/{table}").json[table]  # type: ignore[index]
    told = [each if table == "traits" else each["name"] for each in listed]
    assert told == [*STANDARD[table], "CUSTOM_B", "CUSTOM_A"]


def test_filtered_traits_come_in_the_same_order(api: Api) -> None:
    api("PUT", "/traits/CUSTOM_A")
    asked = "in:CUSTOM_A,STORAGE_DISK_SSD,HW_CPU_X86_AVX"
    told = api("GET", f"/traits?name={asked}").json["traits"]  # type: ignore[index]
    assert told == ["HW_CPU_X86_AVX", "STORAGE_DISK_SSD", "CUSTOM_A"]


def test_traits_of_a_provider_come_in_the_same_order(api: Api) -> None:
    uuid = "11111111-1111-4111-8111-111111111111"
    api("POST", "/resource_providers", {"name": "host", "uuid": uuid})
    api("PUT", "/traits/CUSTOM_A")
    held = {
        "resource_provider_generation": 0,
        "traits": ["CUSTOM_A", "STORAGE_DISK_SSD", "HW_CPU_X86_AVX"],
    }
    told = api("PUT", f"/resource_providers/{uuid}/traits", held).json["traits"]  # type: ignore[index]
    assert told == ["HW_CPU_X86_AVX", "STORAGE_DISK_SSD", "CUSTOM_A"]
