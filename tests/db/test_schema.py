"""The schema: downgrades, what its triggers update, what its constraints refuse."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import NullPool

from placement_svc.db import revisions, schema
from placement_svc.db.tables import log_metadata, metadata

COLUMNS = """
    SELECT table_name, column_name, udt_name, character_maximum_length, collation_name, is_nullable,
           column_default, is_identity, identity_start, is_generated, generation_expression
      FROM information_schema.columns
     WHERE table_schema = 'public'
"""
CONSTRAINTS = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
      FROM pg_constraint
     WHERE connamespace = 'public'::regnamespace
"""
INDEXES = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
LEFT_OVER = """
    SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
     UNION ALL
    SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
     UNION ALL
    SELECT stxname FROM pg_statistic_ext WHERE stxnamespace = 'public'::regnamespace
"""
FUNCTIONS = """
    SELECT proname, pg_get_function_identity_arguments(oid), pg_get_function_result(oid), proconfig
      FROM pg_proc
     WHERE pronamespace = 'public'::regnamespace
"""


def connect(url: str) -> Engine:
    return create_engine(url, poolclass=NullPool)


def rows(engine: Engine, query: str) -> set[tuple[Any, ...]]:
    with engine.connect() as connection:
        return {tuple(row) for row in connection.execute(text(query)) if row[0] != "alembic_version"}


def test_downgrade_to_the_base_drops_everything(new_database: Callable[[], str]) -> None:
    engine = connect(new_database())
    schema.upgrade(engine)
    schema.downgrade(engine, "base")
    assert revisions.current(engine) is None
    assert rows(engine, LEFT_OVER) <= {("alembic_version_pkc",)}


def test_downgrade_drops_the_functions_and_upgrade_creates_them_again(
    new_database: Callable[[], str],
) -> None:
    engine = connect(new_database())
    schema.upgrade(engine)
    functions = functions_of(engine)
    schema.downgrade(engine, "base")
    assert functions_of(engine) == []
    schema.upgrade(engine)
    assert functions_of(engine) == functions


def functions_of(engine: Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return sorted(tuple(row) for row in connection.execute(text(FUNCTIONS)))


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        ("delete_consumer", "consumer_uuid text", "boolean"),
        (
            "lock_and_increment_consumers",
            "uuids text[], project_names text[], user_names text[], type_names text[]",
            "TABLE(consumer_id bigint, consumer_uuid text, generation_before bigint)",
        ),
        (
            "release_allocations",
            "consumer_ids bigint[], provider_ids integer[]",
            "TABLE(inventory_provider_id integer, inventory_class text, inventory_total integer,"
            " inventory_reserved integer, inventory_min_unit integer, inventory_max_unit integer,"
            " inventory_step_size integer, inventory_allocation_ratio double precision,"
            " inventory_used bigint, replaced bigint)",
        ),
        (
            "insert_allocations",
            "allocation_consumers text[], allocation_providers text[], allocation_classes text[],"
            " allocation_amounts numeric[], consumers_to_delete bigint[], providers_to_increment integer[]",
            "void",
        ),
        (
            "apply_claims",
            "consumer_uuids text[], project_names text[], user_names text[], type_names text[],"
            " compare_generations boolean, known_generations numeric[], allocation_consumers text[],"
            " allocation_providers text[], allocation_classes text[], allocation_amounts numeric[],"
            " provider_increment integer",
            "json",
        ),
    ],
)
def test_function_has_the_signature_that_services_call(
    engine: Engine, function: str, arguments: str, result: str
) -> None:
    options = ["plan_cache_mode=force_generic_plan", "enable_seqscan=off"]
    assert (function, arguments, result, options) in functions_of(engine)


def test_upgrade_of_the_newest_schema_changes_nothing(new_database: Callable[[], str]) -> None:
    engine = connect(new_database())
    schema.upgrade(engine)
    with engine.begin() as connection:
        Cloud(connection).provider()
    schema.upgrade(engine)
    assert len(rows(engine, "SELECT id FROM resource_providers")) == 1


@pytest.mark.parametrize(
    "catalog", [COLUMNS, CONSTRAINTS, INDEXES], ids=["columns", "constraints", "indexes"]
)
def test_tables_of_the_metadata_equal_those_of_the_migrations(
    engine: Engine, from_metadata: Engine, catalog: str
) -> None:
    assert rows(from_metadata, catalog) == rows(engine, catalog)


@pytest.fixture(scope="module")
def from_metadata(new_database: Callable[[], str]) -> Engine:
    """An engine of a database whose tables are created from the metadata."""
    engine = connect(new_database())
    metadata.create_all(engine)
    log_metadata.create_all(engine)
    return engine


class Cloud:
    """A cloud whose rows are written with SQL, not through the service."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run(self, sql: str, **values: Any) -> Any:
        result = self.connection.execute(text(sql), values)
        return result.scalar() if result.returns_rows else result.rowcount

    def provider(self, parent: int | None = None) -> int:
        return self.run(
            """
            INSERT INTO resource_providers (id, uuid, name, parent_id, root_id, path)
            SELECT new.id, :uuid, :uuid, CAST(:parent AS int), coalesce(parent.root_id, new.id),
                   coalesce(parent.path, '{}') || new.id
              FROM (SELECT nextval('resource_providers_id_seq')::int AS id) AS new
              LEFT JOIN resource_providers AS parent ON parent.id = :parent
            RETURNING id
            """,
            uuid=str(uuid4()),
            parent=parent,
        )

    def inventory(self, provider: int, resource_class: int = 0, **values: Any) -> None:
        values = {
            "total": 8,
            "reserved": 0,
            "min_unit": 1,
            "max_unit": 8,
            "step_size": 1,
            "ratio": 1.0,
        } | values
        self.run(
            """
            INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit,
                                     max_unit, step_size, allocation_ratio)
            SELECT id, root_id, :resource_class, :total, :reserved, :min_unit, :max_unit, :step_size, :ratio
              FROM resource_providers WHERE id = :provider
            """,
            provider=provider,
            resource_class=resource_class,
            **values,
        )

    def consumer(self) -> int:
        return self.run(
            """
            WITH project AS (INSERT INTO projects (external_id) VALUES (:uuid) RETURNING id),
                 "user" AS (INSERT INTO users (external_id) VALUES (:uuid) RETURNING id)
            INSERT INTO consumers (uuid, project_id, user_id)
            SELECT :uuid, project.id, "user".id FROM project, "user"
            RETURNING id
            """,
            uuid=str(uuid4()),
        )

    def allocation(self, consumer: int, provider: int, used: int, resource_class: int = 0) -> None:
        self.run(
            "INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)"
            " VALUES (:consumer, :provider, :resource_class, :used)",
            consumer=consumer,
            provider=provider,
            resource_class=resource_class,
            used=used,
        )

    def used(self, provider: int, resource_class: int = 0) -> int:
        return self.run(
            "SELECT used FROM inventories WHERE (provider_id, resource_class_id) = (:provider, :class)",
            **{"provider": provider, "class": resource_class},
        )

    def trait_ids(self, provider: int) -> list[int]:
        return self.run("SELECT trait_ids FROM resource_providers WHERE id = :id", id=provider)


@pytest.fixture
def cloud(engine: Engine) -> Iterator[Cloud]:
    """An empty cloud with resource classes and traits; it is rolled back after the test."""
    with engine.connect() as connection:
        connection.execute(
            text(
                "INSERT INTO resource_classes (id, name) VALUES (0, 'VCPU'), (1, 'MEMORY_MB')"
                " ON CONFLICT DO NOTHING"
            )
        )
        connection.execute(
            text(
                "INSERT INTO traits (id, name) SELECT id, 'T' || id FROM generate_series(0, 9) AS id"
                " ON CONFLICT DO NOTHING"
            )
        )
        yield Cloud(connection)
        connection.rollback()


@pytest.fixture
def claimed(cloud: Cloud) -> tuple[list[int], list[int]]:
    """Two providers with two inventories each, and two consumers with allocations of 1 and 2 of each."""
    providers = [cloud.provider(), cloud.provider()]
    consumers = [cloud.consumer(), cloud.consumer()]
    for provider in providers:
        for resource_class in (0, 1):
            cloud.inventory(provider, resource_class)
            for used, consumer in enumerate(consumers, 1):
                cloud.allocation(consumer, provider, used, resource_class)
    return providers, consumers


def all_used(cloud: Cloud, providers: list[int]) -> list[int]:
    return [cloud.used(provider, resource_class) for provider in providers for resource_class in (0, 1)]


def test_used_follows_an_insert(cloud: Cloud, claimed: tuple[list[int], list[int]]) -> None:
    assert all_used(cloud, claimed[0]) == [3, 3, 3, 3]


def test_used_follows_an_insert_of_many(cloud: Cloud, claimed: tuple[list[int], list[int]]) -> None:
    providers, _ = claimed
    cloud.run(
        "INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)"
        " SELECT :consumer, id, class, 5"
        "   FROM unnest(CAST(:ids AS int[])) AS id, generate_series(0, 1) AS class",
        consumer=cloud.consumer(),
        ids=providers,
    )
    assert all_used(cloud, providers) == [8, 8, 8, 8]


def test_used_follows_an_upsert(cloud: Cloud, claimed: tuple[list[int], list[int]]) -> None:
    [one, other], [consumer, _] = claimed
    cloud.run(
        "INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)"
        " VALUES (:consumer, :one, 0, 4)"
        " ON CONFLICT (consumer_id, provider_id, resource_class_id) DO UPDATE SET used = excluded.used",
        consumer=consumer,
        one=one,
    )
    assert all_used(cloud, [one, other]) == [6, 3, 3, 3]


def test_used_follows_an_update_of_amounts(cloud: Cloud, claimed: tuple[list[int], list[int]]) -> None:
    providers, _ = claimed
    cloud.run("UPDATE allocations SET used = used * 2 WHERE provider_id = :id", id=providers[0])
    assert all_used(cloud, providers) == [6, 6, 3, 3]


def test_used_follows_an_update_that_moves(cloud: Cloud, claimed: tuple[list[int], list[int]]) -> None:
    [one, other], [consumer, _] = claimed
    third = cloud.provider()
    cloud.inventory(third, 0)
    cloud.run(
        "UPDATE allocations SET provider_id = :third"
        " WHERE consumer_id = :consumer AND provider_id = :one AND resource_class_id = 0",
        third=third,
        consumer=consumer,
        one=one,
    )
    assert all_used(cloud, [one, other]) == [2, 3, 3, 3]
    assert cloud.used(third) == 1


def test_used_follows_a_delete(cloud: Cloud, claimed: tuple[list[int], list[int]]) -> None:
    providers, consumers = claimed
    cloud.run("DELETE FROM allocations WHERE consumer_id = :id", id=consumers[1])
    assert all_used(cloud, providers) == [1, 1, 1, 1]


def test_used_follows_a_truncate(cloud: Cloud, claimed: tuple[list[int], list[int]]) -> None:
    cloud.run("TRUNCATE allocations")
    assert all_used(cloud, claimed[0]) == [0, 0, 0, 0]


def test_trait_ids_follow_provider_traits(cloud: Cloud) -> None:
    one, other = cloud.provider(), cloud.provider()
    assert cloud.trait_ids(one) == []
    cloud.run(
        "INSERT INTO provider_traits (provider_id, trait_id) VALUES (:one, 7), (:one, 2), (:other, 5)",
        one=one,
        other=other,
    )
    assert [cloud.trait_ids(one), cloud.trait_ids(other)] == [[2, 7], [5]]
    cloud.run("INSERT INTO provider_traits (provider_id, trait_id) VALUES (:one, 4)", one=one)
    assert cloud.trait_ids(one) == [2, 4, 7]
    cloud.run("DELETE FROM provider_traits WHERE trait_id IN (2, 5)")
    assert [cloud.trait_ids(one), cloud.trait_ids(other)] == [[4, 7], []]


def test_trait_has_the_root_of_its_provider_if_an_insert_names_none(cloud: Cloud) -> None:
    """As the INSERT of services of the release before the column."""
    root = cloud.provider()
    child = cloud.provider(root)
    cloud.run("INSERT INTO provider_traits (provider_id, trait_id) VALUES (:child, 7)", child=child)
    assert cloud.run("SELECT root_id FROM provider_traits WHERE trait_id = 7") == root


def test_trait_ids_follow_an_update(cloud: Cloud) -> None:
    one, other = cloud.provider(), cloud.provider()
    cloud.run("INSERT INTO provider_traits (provider_id, trait_id) VALUES (:one, 7), (:one, 2)", one=one)
    cloud.run(
        "UPDATE provider_traits SET provider_id = :other, root_id = :other"
        " WHERE trait_id = 7 AND provider_id = :one",
        one=one,
        other=other,
    )
    assert [cloud.trait_ids(one), cloud.trait_ids(other)] == [[2], [7]]


def test_trait_ids_follow_a_truncate(cloud: Cloud) -> None:
    one = cloud.provider()
    cloud.run("INSERT INTO provider_traits (provider_id, trait_id) VALUES (:one, 7)", one=one)
    cloud.run("TRUNCATE provider_traits")
    assert cloud.trait_ids(one) == []


def test_deleting_a_provider_deletes_its_inventories_traits_and_aggregates(cloud: Cloud) -> None:
    provider = cloud.provider()
    cloud.inventory(provider)
    cloud.run("INSERT INTO provider_traits (provider_id, trait_id) VALUES (:id, 7)", id=provider)
    aggregate = cloud.run("INSERT INTO aggregates (uuid) VALUES (:uuid) RETURNING id", uuid=str(uuid4()))
    cloud.run(
        "INSERT INTO provider_aggregates VALUES (:id, :id, :aggregate)", id=provider, aggregate=aggregate
    )
    assert cloud.run("DELETE FROM resource_providers WHERE id = :id", id=provider) == 1
    for table in ("inventories", "provider_traits", "provider_aggregates"):
        assert cloud.run(f"SELECT count(*) FROM {table} WHERE provider_id = :id", id=provider) == 0


@pytest.mark.parametrize(
    ("values", "capacity", "max_allocatable"),
    [
        ({"total": 8, "max_unit": 8}, 8, 8),
        ({"total": 8, "max_unit": 3}, 8, 3),
        ({"total": 10, "reserved": 2, "max_unit": 100, "ratio": 1.5}, 12, 12),
        ({"total": 3, "max_unit": 100, "ratio": 1.5}, 4, 4),
        ({"total": 3, "reserved": 5, "max_unit": 100, "ratio": 1.5}, -3, -3),
        ({"total": 2147483647, "max_unit": 2147483647, "ratio": 3.4e38}, 4 * 10**18, 2147483647),
    ],
)
def test_capacity_and_max_allocatable_are_computed(
    cloud: Cloud, values: dict[str, Any], capacity: int, max_allocatable: int
) -> None:
    provider = cloud.provider()
    cloud.inventory(provider, **values)
    assert cloud.run("SELECT capacity FROM inventories WHERE provider_id = :id", id=provider) == capacity
    stored = cloud.run("SELECT max_allocatable FROM inventories WHERE provider_id = :id", id=provider)
    assert stored == max_allocatable


def refused(cloud: Cloud, constraint: str, sql: str, **values: Any) -> None:
    with pytest.raises(IntegrityError) as error:
        cloud.run(sql, **values)
    assert error.value.orig.diag.constraint_name == constraint  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("used = -1", "inventories_used_check"),
        ("total = 0", "inventories_total_check"),
        ("reserved = -1", "inventories_reserved_check"),
        ("min_unit = 0", "inventories_units_check"),
        ("max_unit = 0", "inventories_units_check"),
        ("step_size = 0", "inventories_units_check"),
        ("root_id = 0", "inventories_provider_id_root_id_fkey"),
        ("resource_class_id = 9999", "inventories_resource_class_id_fkey"),
    ],
)
def test_invalid_inventory_is_refused(cloud: Cloud, change: str, constraint: str) -> None:
    provider = cloud.provider()
    cloud.inventory(provider)
    refused(cloud, constraint, f"UPDATE inventories SET {change} WHERE provider_id = :id", id=provider)


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("path = '{}'", "resource_providers_path_ends_check"),
        ("path = path[2:]", "resource_providers_path_ends_check"),
        ("path = path[1:1] || 0 || path[2:]", "resource_providers_path_parent_check"),
        ("root_id = :other", "resource_providers_path_ends_check"),
        ("parent_id = :other", "resource_providers_path_parent_check"),
        ("parent_id = NULL", "resource_providers_path_parent_check"),
        ("parent_id = id", "resource_providers_path_parent_check"),
        ("root_id = :other, path = ARRAY[:other, parent_id, id]", "resource_providers_parent_fkey"),
        ("parent_id = 0, path = ARRAY[root_id, 0, id]", "resource_providers_parent_fkey"),
        ("parent_id = :other, path = ARRAY[root_id, :other, id]", "resource_providers_parent_fkey"),
    ],
)
def test_invalid_position_in_a_tree_is_refused(cloud: Cloud, change: str, constraint: str) -> None:
    child, other = cloud.provider(cloud.provider()), cloud.provider()
    sql = f"UPDATE resource_providers SET {change} WHERE id = :child"
    refused(cloud, constraint, sql, child=child, **({"other": other} if ":other" in change else {}))


def test_root_cannot_move_to_another_tree_without_its_children(cloud: Cloud) -> None:
    root, other = cloud.provider(), cloud.provider()
    cloud.provider(root)
    refused(
        cloud,
        "resource_providers_parent_fkey",
        "UPDATE resource_providers SET parent_id = :other, root_id = :other, path = ARRAY[:other, id]"
        " WHERE id = :root",
        root=root,
        other=other,
    )


def test_provider_with_children_cannot_be_deleted(cloud: Cloud) -> None:
    parent = cloud.provider()
    cloud.provider(parent)
    refused(
        cloud, "resource_providers_parent_fkey", "DELETE FROM resource_providers WHERE id = :id", id=parent
    )


@pytest.mark.parametrize("table", ["inventories WHERE provider_id", "resource_providers WHERE id"])
def test_inventory_in_use_cannot_be_deleted(
    cloud: Cloud, claimed: tuple[list[int], list[int]], table: str
) -> None:
    constraint = "allocations_provider_id_resource_class_id_fkey"
    refused(cloud, constraint, f"DELETE FROM {table} = :id", id=claimed[0][0])


def test_consumer_with_allocations_cannot_be_deleted(
    cloud: Cloud, claimed: tuple[list[int], list[int]]
) -> None:
    sql = "DELETE FROM consumers WHERE id = :id"
    refused(cloud, "allocations_consumer_id_fkey", sql, id=claimed[1][0])


def test_allocation_requires_an_inventory(cloud: Cloud) -> None:
    refused(
        cloud,
        "allocations_provider_id_resource_class_id_fkey",
        "INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)"
        " VALUES (:consumer, :id, 0, 1)",
        consumer=cloud.consumer(),
        id=cloud.provider(),
    )


@pytest.mark.parametrize("used", [0, -1])
def test_allocation_must_be_positive(cloud: Cloud, claimed: tuple[list[int], list[int]], used: int) -> None:
    refused(cloud, "allocations_used_check", "UPDATE allocations SET used = :used", used=used)


@pytest.mark.parametrize(
    ("table", "constraint"),
    [("traits", "provider_traits_trait_id_fkey"), ("resource_classes", "inventories_resource_class_id_fkey")],
)
def test_name_in_use_cannot_be_deleted(cloud: Cloud, table: str, constraint: str) -> None:
    provider = cloud.provider()
    cloud.inventory(provider, 0)
    cloud.run("INSERT INTO provider_traits (provider_id, trait_id) VALUES (:id, 0)", id=provider)
    refused(cloud, constraint, f"DELETE FROM {table} WHERE id = 0")
