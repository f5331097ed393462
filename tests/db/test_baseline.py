"""The baseline: it equals the `.sql` files, and the schema before it apart from names, which is upgraded."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from placement_svc.cli import main
from placement_svc.db import names, revisions, schema, sql
from placement_svc.db.tables import metadata
from placement_svc.domain.errors import Unavailable
from tests.conftest import ADMIN, NewApp
from tests.support.soundness import audit_faults

FORMER_SCHEMA = Path(__file__).parent / "data" / "revision_0007.sql"
"""The schema at revision 0007 before the baseline."""

ROWS = FORMER_SCHEMA.with_name("rows.sql")
"""Rows of every table."""

CATALOG = {
    "columns": """
        SELECT attrelid::regclass::text, attnum, attname, format_type(atttypid, atttypmod), attcollation,
               attnotnull, attidentity, attgenerated, attstattarget, pg_get_expr(adbin, adrelid)
          FROM pg_attribute
          JOIN pg_class ON pg_class.oid = attrelid
          LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
         WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
    """,
    "sequences": """
        SELECT sequencename, data_type::text, start_value FROM pg_sequences WHERE schemaname = 'public'
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
          FROM pg_constraint
         WHERE connamespace = 'public'::regnamespace
    """,
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "statistics": "SELECT pg_get_statisticsobjdef(oid) FROM pg_statistic_ext",
    "triggers": "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    """,
}
"""Queries for the definitions of a schema, by kind: the rows contain the text that `pg_dump` would show."""

NEW_NAMES = {
    # Columns, indexes, statistics.
    "room": "max_allocatable",
    "inventories_room": "inventories_max_allocatable",
    "inventories_room_not_null": "inventories_max_allocatable_not_null",
    "inventories_resource_class_id_room_idx": "inventories_resource_class_id_max_allocatable_idx",
    # Functions, procedures, triggers.
    "allocations_keep_used": "allocations_update_used",
    "claim_together": "claim_batch",
    "give_allocations": "insert_allocations",
    "held_of": "sum_allocations",
    "lock_and_raise_consumers": "lock_and_increment_consumers",
    "provider_traits_keep_ids": "provider_traits_update_trait_ids",
    "remove_consumer": "delete_consumer",
    "take_back_allocations": "release_allocations",
    "try_claims": "apply_claims",
    **{
        f"{old}_on_{event}": f"{new}_on_{event}"
        for old, new in {
            "allocations_keep_used": "allocations_update_used",
            "provider_traits_keep_ids": "provider_traits_update_trait_ids",
        }.items()
        for event in ("insert", "delete", "update", "truncate")
    },
    # Parameters, variables and aliases of all functions.
    "amounts": "allocation_amounts",
    "class_names": "allocation_classes",
    "compares_generations": "compare_generations",
    "come": "added",
    "emptied": "consumers_to_delete",
    "given": "allocated_after",
    "given_count": "inserted_count",
    "gone": "removed",
    "holders": "allocation_consumers",
    "i": "inventory",
    "is_known": "generations_match",
    "owner": "user_name",
    "p": "provider",
    "project": "project_name",
    "provider_uuids": "allocation_providers",
    "raised_providers": "incremented_provider_uuids",
    "raised_uuids": "upserted_uuids",
    "refused": "refusal",
    "stocks": "inventories",
    "type": "type_name",
    "wanted": "requested",
    "was_there": "any_existed",
    "stock_ratio": "inventory_allocation_ratio",
    **{
        f"stock_{name}": f"inventory_{name}"
        for name in (
            *("provider_id", "class", "total", "reserved"),
            *("min_unit", "max_unit", "step_size", "used"),
        )
    },
}
"""The names of today by those before the baseline."""

NEW_NAMES_IN = {
    "give_allocations": {"consumer_uuids": "allocation_consumers", "raised": "providers_to_increment"},
    "held_of": {"held": "allocated"},
    "take_back_allocations": {"held": "allocated"},
    "try_claims": {"held": "allocated_before", "raised": "upserted"},
}
"""Names that differ from function to function, by function."""

DROPPED = {"claim_allocations", "lock_providers", "raise_providers"}
"""Functions that nothing calls."""

ADDED_LATER = {"claim_and_release", "provider_traits_set_root_id", "release_consumers"}
"""Functions and procedures that migrations after the baseline have added."""

ADDED = {"fits_units"} | ADDED_LATER
"""Functions that did not exist before the baseline."""

CHANGED = {
    "apply_claims": {
        "requested.amount BETWEEN min_unit AND max_unit AND requested.amount % step_size = 0": (
            "fits_units(least(requested.amount, 2147483648)::bigint, min_unit, max_unit, step_size)"
        ),
        "amounts numeric[]) RETURNS": "amounts numeric[], provider_increment integer) RETURNS",
        "generation = generation + 1,": "generation = generation + provider_increment,",
        "(SELECT id FROM resource_providers WHERE uuid = claimed.provider AND id = ANY (provider_ids))": (
            "(SELECT CASE WHEN id IN (SELECT unnest(provider_ids)) THEN id END"
            " FROM resource_providers WHERE uuid = claimed.provider)"
        ),
    },
    "claim": {"allocation_amounts );": "allocation_amounts, 1 );"},
    "claim_batch": {
        "allocation_amounts );": "allocation_amounts, cardinality(consumer_uuids) );",
        "IF refusal IS NULL THEN"
        " PERFORM raise_providers(allocation_providers, cardinality(consumer_uuids) - 1);"
        " ELSE ROLLBACK;": "IF refusal IS NOT NULL THEN ROLLBACK;",
    },
    "delete_consumer": {
        "PERFORM release_allocations(ids, '{}');": (
            "IF ids = '{}' THEN RETURN false; END IF; PERFORM FROM inventories WHERE provider_id = ANY"
            " (ARRAY(SELECT provider_id FROM allocations WHERE consumer_id = ANY (ids)))"
            " ORDER BY provider_id, resource_class_id FOR NO KEY UPDATE;"
            " DELETE FROM allocations WHERE consumer_id = ANY (ids);"
        ),
        "RETURN FOUND;": "RETURN true;",
    },
    "insert_allocations": {
        "(SELECT id FROM resource_providers WHERE uuid = claimed.provider"
        " AND id = ANY (providers_to_increment))": (
            "(SELECT CASE WHEN id IN (SELECT unnest(providers_to_increment)) THEN id END"
            " FROM resource_providers WHERE uuid = claimed.provider)"
        ),
        "FROM requested WHERE requested.amount <= (SELECT max_unit FROM inventories"
        " WHERE provider_id = requested.provider_id AND resource_class_id = requested.class_id);": (
            "FROM requested;"
        ),
    },
    "provider_traits_update_trait_ids": {
        "IF TG_OP IN ('DELETE', 'UPDATE') THEN": (
            "IF TG_OP = 'UPDATE' THEN IF NOT EXISTS (SELECT provider_id, trait_id FROM old_traits"
            " EXCEPT SELECT provider_id, trait_id FROM new_traits) THEN RETURN NULL; END IF; END IF;"
            " IF TG_OP IN ('DELETE', 'UPDATE') THEN"
        ),
    },
}
"""The differences apart from names: by function, the text before the baseline and that of today."""

NEW_TABLES = {"empty_answers", "placement_groups", "placement_group_aggregates", "placement_group_members"}
"""Tables that did not exist before the baseline."""

NEW_KEYS = {
    "inventories_free_idx",
    "inventories_resource_class_id_root_id_provider_id_idx",
    "inventories_root_id_resource_class_id_provider_id_idx",
    "provider_aggregates_aggregate_id_root_id_provider_id_idx",
    "provider_traits_provider_id_root_id_fkey",
    "provider_traits_root_id_not_null",
    "provider_traits_trait_id_root_id_provider_id_idx",
}
"""Indexes and constraints of older tables that were added after the baseline."""

REPLACED_KEYS = {
    "inventories_root_id_resource_class_id_idx",
    "provider_aggregates_aggregate_id_root_id_idx",
    "provider_traits_provider_id_fkey",
    "provider_traits_trait_id_provider_id_idx",
}
"""Indexes and constraints that some of them replace."""

ADDED_COLUMNS = {("consumers", "created_at"), ("provider_traits", "root_id")}
"""Columns that migrations after the baseline have added, by table."""

HOST = "aaaaaaaa-0000-4000-8000-000000000002"
CONSUMER = "aaaaaaaa-0000-4000-8000-000000000003"


def run_script(engine: Engine, script: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(script, execution_options={"no_parameters": True})


@pytest.fixture
def url(new_database: Callable[[], str]) -> str:
    """The URL of a database at revision 0007 from before the baseline, with data."""
    url = new_database()
    engine = create_engine(url, poolclass=NullPool)
    run_script(engine, FORMER_SCHEMA.read_text())
    run_script(engine, ROWS.read_text())
    return url


@pytest.fixture
def former(url: str) -> Engine:
    """An engine of that database."""
    return create_engine(url, poolclass=NullPool)


@pytest.fixture(scope="module")
def fresh(new_database: Callable[[], str]) -> Engine:
    """An engine of a database that the migrations have created."""
    engine = create_engine(new_database(), poolclass=NullPool)
    schema.upgrade(engine)
    return engine


def catalog(engine: Engine, kind: str) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return sorted((tuple(row) for row in connection.execute(text(CATALOG[kind]))), key=repr)


def without(names: set[str], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows that contain none of the names."""
    pattern = re.compile("|".join(names))
    return [row for row in rows if not pattern.search(str(row))]


def former_catalog(engine: Engine, kind: str) -> list[tuple[Any, ...]]:
    """Return the catalog without what was added or replaced after the baseline."""
    found = without(NEW_TABLES | NEW_KEYS | REPLACED_KEYS | ADDED_LATER, catalog(engine, kind))
    if kind != "columns":
        return found
    return [row for row in found if (row[0], row[2]) not in ADDED_COLUMNS]


def rows(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables, with the values of renamed columns in their place.

    The values of columns that were added after the baseline are omitted.
    """
    with engine.connect() as connection:
        return {
            name: sorted(
                (
                    tuple(value for column, value in row.items() if (name, column) not in ADDED_COLUMNS)
                    for row in connection.execute(text(f'SELECT * FROM "{name}"')).mappings()
                ),
                key=repr,
            )
            for name in metadata.tables
            if name not in NEW_TABLES
        }


@pytest.mark.parametrize("kind", CATALOG)
def test_schema_equals_the_files(fresh: Engine, new_database: Callable[[], str], kind: str) -> None:
    executed = create_engine(new_database(), poolclass=NullPool)
    schema.upgrade(executed)
    with executed.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER allocations_update_used_on_insert ON allocations")
        sql.execute(connection, *sql.names())
    assert catalog(executed, kind) == catalog(fresh, kind)


def test_every_object_has_a_file_and_every_file_its_object(fresh: Engine) -> None:
    assert [name for name, _ in catalog(fresh, "functions")] == sql.names()
    created = re.compile(r"^CREATE OR REPLACE (\w+) (\w+)", re.MULTILINE)
    triggers = []
    for name in sql.names():
        (kind, first), *others = created.findall(sql.read(name))
        assert kind in ("FUNCTION", "PROCEDURE")
        assert first == name
        assert all(kind == "TRIGGER" and trigger.startswith(f"{name}_on_") for kind, trigger in others)
        triggers += [trigger for _, trigger in others]
    assert sorted(triggers) == [name for name, _ in catalog(fresh, "triggers")]


@pytest.mark.parametrize("name", sql.names())
def test_file_says_what_it_is_for(name: str) -> None:
    assert sql.read(name).startswith("-- ")


def rename(definition: Any, old_name: str = "") -> Any:
    """Return a definition from before the baseline with the names of today."""
    if not isinstance(definition, str):
        return definition
    new_names = NEW_NAMES | NEW_NAMES_IN.get(old_name, {})
    return re.sub(r"\b[a-z_]+\b", lambda word: new_names.get(word[0], word[0]), definition)


def normalize(function: str) -> str:
    """Return the definition of a function without comments, and with the least white space."""
    words = " ".join(re.sub(r"--.*", "", function).split())
    return re.sub(r" ?([()]) ?", r"\1", words)


def with_changes(name: str, definition: str) -> str:
    """Return the normalized definition of a function from before the baseline, with the later changes."""
    definition = normalize(definition)
    for old, new in CHANGED.get(name, {}).items():
        assert normalize(old) in definition
        definition = definition.replace(normalize(old), normalize(new))
    return normalize(definition)


@pytest.mark.parametrize("kind", sorted(CATALOG.keys() - {"functions"}))
def test_only_names_differ_from_the_schema_before(former: Engine, fresh: Engine, kind: str) -> None:
    renamed = [tuple(map(rename, row)) for row in former_catalog(former, kind)]
    assert sorted(renamed, key=repr) == former_catalog(fresh, kind)


def test_only_names_of_functions_differ_from_those_before(former: Engine, fresh: Engine) -> None:
    old = {
        rename(name): with_changes(rename(name), rename(definition, name))
        for name, definition in catalog(former, "functions")
        if name not in DROPPED
    }
    new = {name: normalize(definition) for name, definition in catalog(fresh, "functions")}
    assert new.keys() - old.keys() == ADDED
    assert old == {name: definition for name, definition in new.items() if name not in ADDED}


@pytest.fixture
def upgraded(url: str, former: Engine) -> Engine:
    """An engine of the former database after an ordinary upgrade."""
    result = CliRunner().invoke(main, ["db", "upgrade"], env={"PLACEMENT_DATABASE_URL": url})
    assert (result.exit_code, result.stderr) == (0, "")
    return former


@pytest.mark.parametrize("kind", CATALOG)
def test_upgraded_database_equals_a_fresh_one(upgraded: Engine, fresh: Engine, kind: str) -> None:
    assert catalog(upgraded, kind) == catalog(fresh, kind)


def test_upgrade_keeps_the_data_and_rewrites_no_table(former: Engine) -> None:
    def files() -> dict[str, int]:
        query = "SELECT relname, relfilenode FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        with former.connect() as connection:
            found = {rename(name): file for name, file in connection.execute(text(query)) if file}
        return {
            name: file
            for name, file in found.items()
            if not name.startswith(tuple(NEW_TABLES | NEW_KEYS | REPLACED_KEYS))
        }

    # Names of the standard are added by every upgrade, whatever the schema.
    with former.begin() as connection:
        names.sync_standard(connection)
    rows_before, files_before = rows(former), files()
    assert all(rows_before.values())
    schema.upgrade(former)
    assert rows(former) == rows_before
    assert files() == files_before
    assert audit_faults(former) == {}


def test_upgraded_database_is_served(upgraded: Engine, url: str, new_app: NewApp) -> None:
    client = new_app(database_url=url).test_client()
    assert call(client, "GET", f"/resource_providers/{HOST}/usages")["usages"] == {
        "VCPU": 5,
        "CUSTOM_GOLD": 2,
    }
    assert call(client, "GET", "/allocation_candidates?resources=VCPU:6&required=CUSTOM_FAST")[
        "allocation_requests"
    ]
    body = {
        "allocations": {HOST: {"resources": {"VCPU": 6}}},
        "consumer_generation": 3,
        "project_id": "project",
        "user_id": "user",
        "consumer_type": "INSTANCE",
    }
    call(client, "PUT", f"/allocations/{CONSUMER}", body)
    assert call(client, "GET", f"/resource_providers/{HOST}/usages")["usages"] == {
        "VCPU": 6,
        "CUSTOM_GOLD": 0,
    }
    call(client, "DELETE", f"/allocations/{CONSUMER}")


def call(client: FlaskClient, method: str, path: str, json: Any = None) -> Any:
    response = client.open(path, method=method, json=json, headers=ADMIN)
    assert response.status_code < 300, response.text
    return response.json


@pytest.mark.parametrize("upgrades_first", [True, False])
def test_downgrade_to_the_base_leaves_nothing(former: Engine, upgrades_first: bool) -> None:
    if upgrades_first:
        schema.upgrade(former)
    schema.downgrade(former, "base")
    assert [
        kind
        for kind in CATALOG
        if kind not in ("columns", "constraints", "indexes") and catalog(former, kind)
    ] == []
    assert {row[0] for row in catalog(former, "columns")} == {"alembic_version"}


def test_downgrade_to_the_baseline_keeps_the_names(upgraded: Engine, fresh: Engine) -> None:
    schema.downgrade(upgraded, "0007")
    for kind in CATALOG:
        assert without(REPLACED_KEYS, catalog(upgraded, kind)) == former_catalog(fresh, kind)
    schema.upgrade(upgraded)
    assert all(former_catalog(upgraded, kind) == former_catalog(fresh, kind) for kind in CATALOG)


FUNCTIONS_OF_0008 = """
    CREATE FUNCTION apply_claims(text[], text[], text[], text[], boolean, numeric[], text[], text[], text[],
                                 numeric[])
    RETURNS json LANGUAGE sql AS 'SELECT NULL::json';
    CREATE FUNCTION increment_provider_generations(text[], integer)
    RETURNS void LANGUAGE sql AS 'SELECT NULL::void'
"""


@pytest.mark.parametrize("command", ["upgrade", "downgrade"])
def test_functions_that_a_migration_drops_are_gone(upgraded: Engine, fresh: Engine, command: str) -> None:
    schema.downgrade(upgraded, "0008")
    run_script(upgraded, FUNCTIONS_OF_0008)
    if command == "upgrade":
        schema.upgrade(upgraded)
        assert catalog(upgraded, "functions") == catalog(fresh, "functions")
    else:
        run_script(
            upgraded,
            "DROP FUNCTION apply_claims(text[], text[], text[], text[], boolean, numeric[], text[],"
            " text[], text[], numeric[], integer)",
        )
        schema.downgrade(upgraded, "base")
        assert catalog(upgraded, "functions") == []


@pytest.fixture(params=["0001", "0006"])
def older(request: pytest.FixtureRequest, former: Engine) -> Iterator[Engine]:
    """An engine of a database that is at a revision before 0007, which has no migration any more."""
    run_script(former, f"UPDATE alembic_version SET version_num = '{request.param}'")
    return former


@pytest.mark.parametrize(
    "command", [["upgrade"], ["upgrade", "0007"], ["downgrade", "--yes", "base"]], ids=" ".join
)
def test_older_database_is_refused_with_what_to_do(older: Engine, url: str, command: list[str]) -> None:
    revision, before = revisions.current(older), rows(older)
    result = CliRunner().invoke(main, ["db", *command], env={"PLACEMENT_DATABASE_URL": url})
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: The schema is at revision {revision}, and this version can upgrade it only from 0007 on: run"
        " `placement-svc db upgrade` of commit c8c4448 first, then that of this version.\n"
    )
    assert (revisions.current(older), rows(older)) == (revision, before)


def test_service_on_an_older_database_is_not_ready(older: Engine, url: str, new_app: NewApp) -> None:
    with pytest.raises(Unavailable) as error:
        schema.upgrade(older)
    response = new_app(database_url=url).test_client().get("/readyz")
    assert response.status_code == 503
    assert response.text == f"{error.value}\n"
