"""Audits find a break of every constraint, generated column and trigger in PostgreSQL's catalogue."""

from collections.abc import Callable, Iterator, Sequence

import pytest
from sqlalchemy import Connection, Engine, text

from placement_svc.db.audit import audit
from placement_svc.db.audit.audit import AuditFinding
from placement_svc.db.tables import metadata
from tests.support.cloud import load, read, uuid_of
from tests.support.placement_groups import add_members
from tests.support.sample_cloud import Call

CLOUD = (
    "cn{VCPU8 used4 DISK_GB9}#COMPUTE_NODE,HW_NUMA_ROOT@A,B; numa<cn{MEMORY_MB64 used8}@B;"
    "other{DISK_GB9 used9}@A; below<other{VCPU1 res9}#HW_NUMA_ROOT@B"
)

PROVIDER = "(SELECT id FROM resource_providers WHERE name = 'below')"
ROOT = "(SELECT root_id FROM resource_providers WHERE name = 'below')"

FOREIGN_KEYS = {
    "allocations_consumer_id_fkey": (
        "DELETE FROM consumers",
        "allocation of a consumer that does not exist",
    ),
    "allocations_provider_id_resource_class_id_fkey": (
        "DELETE FROM inventories WHERE used > 0",
        "allocation without an inventory",
    ),
    "consumers_project_id_fkey": ("DELETE FROM projects", "consumer of a project that does not exist"),
    "consumers_user_id_fkey": ("DELETE FROM users", "consumer of a user that does not exist"),
    "consumers_consumer_type_id_fkey": (
        "DELETE FROM consumer_types",
        "consumer of a consumer type that does not exist",
    ),
    "inventories_provider_id_root_id_fkey": (
        "DELETE FROM resource_providers WHERE name = 'below'",
        "inventory of a provider that does not exist",
    ),
    "inventories_resource_class_id_fkey": (
        "DELETE FROM resource_classes WHERE name = 'VCPU'",
        "inventory of a resource class that does not exist",
    ),
    "placement_group_aggregates_group_id_fkey": (
        "DELETE FROM placement_groups",
        "aggregate of a group that does not exist",
    ),
    "placement_group_members_consumer_id_fkey": ("DELETE FROM consumers", "group member that is no consumer"),
    "placement_group_members_group_id_fkey": (
        "DELETE FROM placement_groups",
        "member of a group that does not exist",
    ),
    "provider_aggregates_aggregate_id_fkey": (
        "DELETE FROM aggregates",
        "provider aggregate that does not exist",
    ),
    "provider_aggregates_provider_id_root_id_fkey": (
        "DELETE FROM resource_providers WHERE name = 'below'",
        "aggregate of a provider that does not exist",
    ),
    "provider_traits_provider_id_root_id_fkey": (
        "DELETE FROM resource_providers WHERE name = 'below'",
        "trait of a provider that does not exist",
    ),
    "provider_traits_trait_id_fkey": (
        "DELETE FROM traits WHERE name = 'HW_NUMA_ROOT'",
        "provider trait that does not exist",
    ),
    "resource_providers_parent_fkey": (
        "DELETE FROM resource_providers WHERE name = 'cn'",
        "parents that form a cycle or do not exist",
    ),
}

CHECKS = {
    "allocations_used_check": ("UPDATE allocations SET used = 0", "allocation of 0 or less"),
    "inventories_used_check": (
        "UPDATE inventories SET used = -1",
        "used amount that is not the sum of the allocations",
    ),
    "inventories_total_check": ("UPDATE inventories SET total = 0", "inventory with a total of 0 or less"),
    "inventories_reserved_check": (
        "UPDATE inventories SET reserved = -1",
        "inventory with a negative reserve",
    ),
    "inventories_units_check": ("UPDATE inventories SET step_size = 0", "inventory with a unit of 0 or less"),
    "placement_groups_policy_check": (
        "UPDATE placement_groups SET policy = 'x-anti-affinity'",
        "placement group with an unknown policy",
    ),
    "placement_groups_max_per_domain_check": (
        "UPDATE placement_groups SET max_per_domain = NULL",
        "placement group with a maximum that its policy does not have",
    ),
    "resource_providers_path_ends_check": (
        "UPDATE resource_providers SET path = '{}' WHERE parent_id IS NULL",
        "root or path that does not match the parents",
    ),
    "resource_providers_path_parent_check": (
        "UPDATE resource_providers SET path = ARRAY[root_id, 0, id] WHERE name = 'numa'",
        "root or path that does not match the parents",
    ),
}

USED = "used amount that is not the sum of the allocations"
TRAITS = "trait ids that do not match the traits of the provider"

TRIGGERS = {
    "provider_traits_set_root_id_on_insert": (
        f"UPDATE provider_traits SET root_id = 0 WHERE provider_id = {PROVIDER}",
        "root of a provider trait that differs from the root of the provider",
    ),
    "allocations_update_used_on_insert": (
        "INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used) SELECT min(consumer_id),"
        f" {PROVIDER}, (SELECT id FROM resource_classes WHERE name = 'VCPU'), 1 FROM allocations",
        USED,
    ),
    "allocations_update_used_on_delete": ("DELETE FROM allocations WHERE used = 8", USED),
    "allocations_update_used_on_update": ("UPDATE allocations SET used = 2 WHERE used = 8", USED),
    "allocations_update_used_on_truncate": ("TRUNCATE allocations", USED),
    "provider_traits_update_trait_ids_on_insert": (
        "INSERT INTO provider_traits (provider_id, root_id, trait_id)"
        f" SELECT {PROVIDER}, {ROOT}, id FROM traits WHERE name = 'COMPUTE_NODE'",
        TRAITS,
    ),
    "provider_traits_update_trait_ids_on_delete": (
        f"DELETE FROM provider_traits WHERE provider_id = {PROVIDER}",
        TRAITS,
    ),
    "provider_traits_update_trait_ids_on_update": (
        f"UPDATE provider_traits SET trait_id = (SELECT id FROM traits WHERE name = 'COMPUTE_NODE')"
        f" WHERE provider_id = {PROVIDER}",
        TRAITS,
    ),
    "provider_traits_update_trait_ids_on_truncate": ("TRUNCATE provider_traits", TRAITS),
}

MORE_ORPHANS = {
    "DELETE FROM resource_providers WHERE name = 'numa'": "allocation of a provider that does not exist",
    "UPDATE allocations SET consumer_id = 0 WHERE used = 8": "allocation of a consumer that does not exist",
    "UPDATE consumers SET project_id = 0": "consumer of a project that does not exist",
    f"INSERT INTO provider_traits (provider_id, root_id, trait_id) VALUES ({PROVIDER}, {ROOT}, 0 - 1)": (
        "provider trait that does not exist"
    ),
    "INSERT INTO provider_traits (provider_id, root_id, trait_id) SELECT 0, 0, min(id) FROM traits": (
        "trait of a provider that does not exist"
    ),
}

GENERATED = "capacity or largest allocation that does not match the inventory"
DUPLICATE = "unique key that occurs more than once"
MISSING = "value that is missing"

COVERED = {
    inconsistency for cases in (FOREIGN_KEYS, CHECKS, TRIGGERS) for _, inconsistency in cases.values()
} | {*MORE_ORPHANS.values(), GENERATED, DUPLICATE, MISSING}
"""The rules that these tests break."""

UNIQUE_KEYS = sorted(
    (table.name, tuple(column.name for column in constraint.columns))
    for table in metadata.sorted_tables
    for constraint in table.constraints
    if type(constraint).__name__ in ("PrimaryKeyConstraint", "UniqueConstraint")
)

REQUIRED = [
    (table.name, column.name)
    for table in metadata.sorted_tables
    for column in table.columns
    if not column.nullable
]

ANOTHER = {
    "id": "id + 100000",
    "uuid": "overlay(uuid placing '0000' from 1 for 4)",
    "name": "name || '_'",
    "external_id": "external_id || '_'",
}
"""For each unique column: the expression for a value that no row has."""


@pytest.fixture
def connection(engine: Engine, call: Call) -> Iterator[Connection]:
    """A transaction on a database with a consistent cloud, which is rolled back."""
    load(read(CLOUD), lambda method, path, **options: (200, call(method, path, **options)))
    call(
        "PUT",
        f"/placement_groups/{uuid_of('group')}",
        {"policy": "anti-affinity", "max_per_domain": 9, "across": [uuid_of("A")]},
    )
    with engine.connect() as connection:
        uuids = connection.scalars(text("SELECT uuid FROM consumers")).all()
    add_members(engine, uuid_of("group"), uuids)
    with engine.connect() as connection:
        yield connection
        connection.rollback()


def breaking(connection: Connection, *statements: str) -> None:
    """Run statements without foreign keys and triggers; at least one row must change in all."""
    connection.execute(text("SET LOCAL session_replication_role = replica"))
    changed = [connection.execute(text(statement)).rowcount for statement in statements]
    assert any(changed)
    connection.execute(text("SET LOCAL session_replication_role = origin"))


def by_rule(findings: Sequence[AuditFinding]) -> dict[str, AuditFinding]:
    """Return the findings by their inconsistency; if there are damages, only these.

    PostgreSQL relies on unique keys and on NOT NULL, so which other rows it finds then depends on its plans.
    """
    damages = [finding for finding in findings if finding.rule.is_damage]
    return {finding.rule.inconsistency: finding for finding in damages or findings}


def assert_found(connection: Connection, inconsistency: str) -> AuditFinding:
    """Return the finding of an inconsistency, after checking that a fix makes nothing worse."""
    before = by_rule(audit.find(connection))
    assert inconsistency in before
    fixed = by_rule(audit.fix(connection))
    after = by_rule(audit.find(connection))
    for name, finding in after.items():
        assert not fixed[name].fixed, f"{name} is reported as fixed"
        assert finding.count <= before[name].count if name in before else finding.rule.is_notice, name
    assert not set(fixed) - set(after) - {name for name, finding in fixed.items() if finding.fixed}
    repeated = audit.fix(connection)
    assert not [finding for finding in repeated if finding.fixed]
    assert by_rule(audit.find(connection)) == after
    return before[inconsistency]


def names(engine: Engine, query: str) -> set[str]:
    with engine.connect() as connection:
        return set(connection.scalars(text(query)))


def constraints(engine: Engine, kind: str) -> set[str]:
    query = """
        SELECT conname FROM pg_constraint
         WHERE connamespace = 'public'::regnamespace AND conrelid <> 'alembic_version'::regclass AND contype
    """
    return names(engine, f"{query} = '{kind}'")


def test_every_foreign_key_has_a_case(engine: Engine) -> None:
    assert constraints(engine, "f") == FOREIGN_KEYS.keys()


def test_every_check_has_a_case(engine: Engine) -> None:
    assert constraints(engine, "c") == CHECKS.keys()


def test_every_trigger_has_a_case(engine: Engine) -> None:
    assert names(engine, "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal") == TRIGGERS.keys()


def test_every_unique_index_has_a_case(engine: Engine) -> None:
    query = """
        SELECT relname || ' ' || array_to_string(ARRAY(
                   SELECT attname FROM unnest(indkey) WITH ORDINALITY AS key (number, position)
                     JOIN pg_attribute ON attrelid = indrelid AND attnum = key.number ORDER BY position), ',')
          FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
         WHERE relnamespace = 'public'::regnamespace AND indisunique
           AND relname NOT IN ('alembic_version', 'empty_answers')
    """
    assert names(engine, query) == {f"{table} {','.join(key)}" for table, key in UNIQUE_KEYS}


def test_every_required_column_has_a_case(engine: Engine) -> None:
    query = """
        SELECT relname || ' ' || attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
         WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND attnotnull
           AND relname NOT IN ('alembic_version', 'empty_answers')
    """
    assert names(engine, query) == {f"{table} {column}" for table, column in REQUIRED}


def test_every_generated_column_has_a_case(engine: Engine) -> None:
    assert names(engine, "SELECT attname FROM pg_attribute WHERE attgenerated <> ''") == {
        "capacity",
        "max_allocatable",
    }


@pytest.mark.parametrize("name", FOREIGN_KEYS)
def test_break_of_a_foreign_key_is_found(connection: Connection, name: str) -> None:
    statement, inconsistency = FOREIGN_KEYS[name]
    breaking(connection, statement)
    finding = assert_found(connection, inconsistency)
    assert not finding.rule.fix


@pytest.mark.parametrize("statement", MORE_ORPHANS)
def test_orphan_is_found_and_left(connection: Connection, statement: str) -> None:
    breaking(connection, statement)
    assert_found(connection, MORE_ORPHANS[statement])


@pytest.mark.parametrize("name", TRIGGERS)
def test_value_that_a_trigger_has_not_updated_is_found(connection: Connection, name: str) -> None:
    statement, inconsistency = TRIGGERS[name]
    breaking(connection, "UPDATE aggregates SET uuid = uuid", statement)
    assert_found(connection, inconsistency)
    assert inconsistency not in by_rule(audit.find(connection))


@pytest.mark.parametrize("name", CHECKS)
def test_break_of_a_check_is_found(connection: Connection, name: str) -> None:
    statement, inconsistency = CHECKS[name]
    constraint = f"FROM pg_constraint WHERE conname = '{name}'"
    [(table, definition)] = connection.execute(
        text(f"SELECT conrelid::regclass, pg_get_constraintdef(oid) {constraint}")
    )
    # As after a restore that adds constraints without checking the rows.
    breaking(
        connection,
        f"ALTER TABLE {table} DROP CONSTRAINT {name}",
        statement,
        f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition} NOT VALID",
    )
    assert_found(connection, inconsistency)


@pytest.mark.parametrize("column", ["capacity", "max_allocatable"])
def test_wrong_value_of_a_generated_column_is_found_and_fixed(connection: Connection, column: str) -> None:
    attribute = f"WHERE attrelid = 'inventories'::regclass AND attname = '{column}'"
    breaking(
        connection,
        f"UPDATE pg_attribute SET attgenerated = '' {attribute}",
        f"UPDATE inventories SET {column} = {column} + 1",
        f"UPDATE pg_attribute SET attgenerated = 's' {attribute}",
    )
    assert_found(connection, GENERATED)
    assert by_rule(audit.find(connection)) == {}


@pytest.mark.parametrize(("table", "key"), UNIQUE_KEYS, ids=str)
def test_duplicate_that_an_index_lacks_is_found(
    connection: Connection, table: str, key: tuple[str, ...]
) -> None:
    columns = [column.name for column in metadata.tables[table].columns if column.computed is None]
    values = {column: ANOTHER.get(column, column) for column in columns if column not in key}
    if table == "resource_providers" and "id" not in key:
        values |= {"root_id": "id + 100000", "path": "ARRAY[id + 100000]"}
    indexes = f"WHERE indrelid = '{table}'::regclass AND indisunique"
    first = "WHERE parent_id IS NULL LIMIT 1" if table == "resource_providers" else "LIMIT 1"
    # PostgreSQL does not maintain an index that is not ready, so these indexes are corrupt afterwards.
    breaking(
        connection,
        f"UPDATE pg_index SET indisready = false {indexes}",
        f"INSERT INTO {table} ({', '.join(columns)}) OVERRIDING SYSTEM VALUE"
        f" SELECT {', '.join(values.get(column, column) for column in columns)} FROM {table} {first}",
        f"UPDATE pg_index SET indisready = true {indexes}",
    )
    finding = assert_found(connection, DUPLICATE)
    assert f"{table} ({', '.join(key)})" in {row.subject.split(")")[0] + ")" for row in finding.examples}
    assert not any(finding.fixed for finding in audit.fix(connection))


@pytest.mark.parametrize(("table", "column"), REQUIRED)
def test_null_that_the_schema_forbids_is_found(connection: Connection, table: str, column: str) -> None:
    attribute = f"WHERE attrelid = '{table}'::regclass AND attname = '{column}'"
    rows = f"{table} WHERE parent_id IS NULL" if table == "resource_providers" else table
    [generated] = connection.scalars(text(f"SELECT attgenerated FROM pg_attribute {attribute}"))
    breaking(
        connection,
        f"UPDATE pg_attribute SET attnotnull = false, attgenerated = '' {attribute}",
        f"UPDATE {table} SET {column} = NULL WHERE ctid = (SELECT min(ctid) FROM {rows})",
        f"UPDATE pg_attribute SET attnotnull = true, attgenerated = '{generated}' {attribute}",
    )
    finding = assert_found(connection, MISSING)
    assert [row.stored for row in finding.examples] == [f"no {column}"]
    assert finding.examples[0].subject.startswith(table)


def test_index_that_lacks_a_row_is_not_used(connection: Connection, call: Callable[..., object]) -> None:
    """An index without an allocation must not make its consumer seem to have none."""
    index = "WHERE indexrelid = 'allocations_pkey'::regclass"
    breaking(
        connection,
        "CREATE TEMPORARY TABLE copy ON COMMIT DROP AS SELECT * FROM allocations",
        "DELETE FROM allocations",
        f"UPDATE pg_index SET indisready = false {index}",
        "INSERT INTO allocations SELECT * FROM copy",
        f"UPDATE pg_index SET indisready = true {index}",
    )
    assert audit.find(connection) == []
    assert audit.fix(connection) == []
