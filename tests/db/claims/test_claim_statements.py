"""How PostgreSQL executes a claim: it reads by index only, and no claim ends in an SQL error."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from placement_svc.db import allocations, consumers, names, schema, sql
from placement_svc.db.claims import procedures
from placement_svc.db.claims.service import ClaimService
from placement_svc.db.connections.engine import Database, connect
from placement_svc.db.providers import lock_all
from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import Invalid
from tests.conftest import Api
from tests.support.database_statistics import flush_statistics

HOSTS = 10_000
MAX_ROWS = 100
"""Rows that a claim on one host may read at most, in all tables."""

MAX_AMOUNT = 2**31 - 1

ADD_HOSTS = """
    WITH new AS (
        INSERT INTO resource_providers (id, uuid, name, root_id, path)
        SELECT id, gen_random_uuid(), id, id, ARRAY[id] FROM generate_series(:first, :last) AS id
        RETURNING id
    )
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT new.id, new.id, class.id, 1000000, 0, 1, 1000000, 1, 1
      FROM new, resource_classes AS class
     WHERE class.name IN ('VCPU', 'MEMORY_MB', 'DISK_GB')
"""

ADD_CONSUMERS = """
    WITH project AS (
        INSERT INTO projects (external_id) SELECT id FROM generate_series(1, :count) AS id RETURNING id
    ), owner AS (
        INSERT INTO users (external_id) SELECT id FROM generate_series(1, :count) AS id RETURNING id
    ), new AS (
        INSERT INTO consumers (uuid, project_id, user_id)
        SELECT gen_random_uuid(), (SELECT min(id) FROM project), (SELECT min(id) FROM owner)
          FROM generate_series(1, :count)
        RETURNING id
    )
    INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)
    SELECT new.id, inventory.provider_id, inventory.resource_class_id, 1
      FROM new, inventories AS inventory
     WHERE inventory.provider_id = 1
"""

ROWS_READ = """
    SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
"""


@pytest.fixture
def database(new_database: Callable[[], str]) -> Iterator[Database]:
    """A database with standard names only, without autovacuum, so that its statistics stay unchanged.

    The pool has one connection, so that all claims use the same cached plans.
    """
    engine = connect(new_database(), pool_size=1)
    schema.upgrade(engine)
    with engine.begin() as connection:
        names.sync_standard(connection)
        for table in ("resource_providers", "inventories", "consumers", "allocations", "projects", "users"):
            connection.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = off)"))
    yield Database(engine)
    engine.dispose()


def run(connection: Connection, sql: str, **values: Any) -> Any:
    result = connection.execute(text(sql), values)
    return result.scalar() if result.returns_rows else None


def rows_read(database: Database) -> int:
    """Return how many rows were read in all tables, after flushing the statistics of the connection."""
    database.write(flush_statistics)
    return database.write(run, ROWS_READ)  # type: ignore[no-any-return]


def claim(database: Database, host: str, consumer: str, generation: int | None = None) -> None:
    """Claim resources of a host for a consumer."""
    resources = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 10}
    wanted = [Claim(consumer, "project", "user", "INSTANCE", generation, {host: resources})]
    service = ClaimService(database)
    service.replace_allocations(wanted, compare_generations=True, unknown_class_message="{}")


def vacuum(database: Database) -> None:
    """Update the planner statistics of all tables."""
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


HOST = "SELECT uuid FROM resource_providers WHERE id = :id"


def test_plans_cached_for_an_empty_cloud_suit_a_full_one(database: Database) -> None:
    with pytest.raises(Invalid):
        claim(database, str(uuid4()), str(uuid4()))
    database.write(run, ADD_HOSTS, first=1, last=1)
    rows_read_by_claims(database, 1)
    database.write(run, ADD_HOSTS, first=2, last=HOSTS)
    database.write(run, ADD_CONSUMERS, count=HOSTS)
    assert_few_rows_are_read(database)


def test_plans_cached_for_many_allocations_suit_a_few(database: Database) -> None:
    database.write(run, ADD_HOSTS, first=1, last=HOSTS)
    rows_read_by_claims(database, 1)
    # A session does the same when it has missed too many invalidation messages.
    database.write(run, "DISCARD PLANS")
    database.write(run, ADD_CONSUMERS, count=HOSTS)
    assert_few_rows_are_read(database)


def test_plans_cached_for_an_unused_cloud_suit_a_full_one(database: Database) -> None:
    database.write(run, ADD_HOSTS, first=1, last=HOSTS)
    vacuum(database)
    rows_read_by_claims(database, 1)
    database.write(run, ADD_CONSUMERS, count=HOSTS)
    assert_few_rows_are_read(database)


def assert_few_rows_are_read(database: Database) -> None:
    """Check the rows read by claims on the first host and on the last one."""
    for id in (1, HOSTS):
        read = rows_read_by_claims(database, id)
        assert all(0 < rows < MAX_ROWS for rows in read), read


def rows_read_by_claims(database: Database, host: int) -> list[int]:
    """Claim for a new consumer, claim again, delete it; return the rows that each of the three reads."""
    uuid, consumer = database.write(run, HOST, id=host), str(uuid4())
    read = []
    for change in (
        partial(claim, database, uuid, consumer),
        partial(claim, database, uuid, consumer, 1),
        partial(ClaimService(database).delete_consumer, consumer),
    ):
        before = rows_read(database)
        change()
        read.append(rows_read(database) - before)
    return read


def test_plans_of_releases_cached_for_an_empty_cloud_suit_a_full_one(database: Database) -> None:
    database.write(run, ADD_HOSTS, first=1, last=1)
    for with_claim in (False, True):
        rows_read_by_a_batch(database, 1, with_claim=with_claim)
    database.write(run, ADD_HOSTS, first=2, last=HOSTS)
    database.write(run, ADD_CONSUMERS, count=HOSTS)
    for id, with_claim in product((1, HOSTS), (False, True)):
        read = rows_read_by_a_batch(database, id, with_claim=with_claim)
        assert 0 < read < 2 * MAX_ROWS, read


def rows_read_by_a_batch(database: Database, host: int, *, with_claim: bool) -> int:
    """Release two consumers of a host, and claim for another; return the rows that this reads."""
    uuid, consumers = database.write(run, HOST, id=host), [str(uuid4()) for _ in range(2)]
    for consumer in consumers:
        claim(database, uuid, consumer)
    claims = [Claim(str(uuid4()), "project", "user", "INSTANCE", None, {uuid: {"VCPU": 1}})]
    before = rows_read(database)
    assert procedures.claim_and_release(database, claims if with_claim else [], consumers, [uuid])
    return rows_read(database) - before


PARAMETERS = {
    "allocation_consumers": "text[]",
    "allocation_providers": "text[]",
    "allocation_classes": "text[]",
    "allocation_amounts": "numeric[]",
    "provider_ids": "int[]",
    "providers_to_increment": "int[]",
}
"""The variables of the statements that insert allocations, with their types."""


@pytest.mark.parametrize("function", ["apply_claims", "insert_allocations"])
def test_cost_of_inserted_allocations_is_linear(database: Database, function: str) -> None:
    """A provider is looked up in a hash table: an array would be searched once per allocation."""
    [insertion] = re.findall(r"WITH requested [^;]*", re.sub("--.*", "", sql.read(function)))
    for number, name in enumerate(PARAMETERS, start=1):
        insertion = re.sub(rf"\b{name}\b", f"${number}", insertion)
    with database.engine.begin() as connection:
        for option in ("plan_cache_mode = force_generic_plan", "enable_seqscan = off"):
            connection.exec_driver_sql(f"SET LOCAL {option}")
        connection.exec_driver_sql(f"PREPARE insertion ({', '.join(PARAMETERS.values())}) AS {insertion}")
        explain = f"EXPLAIN (VERBOSE) EXECUTE insertion ({', '.join(['NULL'] * len(PARAMETERS))})"
        plan = "\n".join(connection.exec_driver_sql(explain).scalars())
        connection.exec_driver_sql("DEALLOCATE insertion")
    assert "hashed SubPlan" in plan, plan
    for scan in ("Seq Scan", "Join", "Nested Loop", "= ANY ($"):
        assert scan not in plan, plan


@pytest.fixture
def host(api: Api) -> str:
    """A provider with the largest inventory that can be stored."""
    uuid = str(uuid4())
    assert api("POST", "/resource_providers", {"name": "host", "uuid": uuid}).status_code == 200
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": MAX_AMOUNT}}}
    assert api("PUT", f"/resource_providers/{uuid}/inventories", body).status_code == 200
    return uuid


@pytest.mark.parametrize(
    ("resource_class", "amount", "error"),
    [
        ("VCPU", 2**31, "integer out of range"),
        ("CUSTOM_NONE", 1, "violates not-null constraint"),
        ("MEMORY_MB", 1, "allocations_provider_id_resource_class_id_fkey"),
    ],
)
def test_no_allocation_of_several_statements_is_left_out(
    engine: Engine, host: str, resource_class: str, amount: int, error: str
) -> None:
    """If a caller of `insert_allocations` does not check one, the transaction fails."""
    claim = Claim(
        str(uuid4()), "project", "user", "INSTANCE", None, {host: {"VCPU": 1, resource_class: amount}}
    )
    with engine.connect() as connection:
        consumers.lock_and_increment(connection, [claim])
        provider = lock_all(connection, [host])[host]
        with pytest.raises(DBAPIError, match=error):
            allocations.allocate(
                connection, [claim], consumers_to_delete=[], providers_to_increment=[provider.id]
            )


def body(host: str, amount: float) -> dict[str, Any]:
    return {
        "allocations": {host: {"resources": {"VCPU": amount}}},
        "consumer_generation": None,
        "project_id": "project",
        "user_id": "user",
        "consumer_type": "INSTANCE",
    }


def assert_nothing_stored(api: Api, engine: Engine, host: str) -> None:
    assert api("GET", f"/resource_providers/{host}/usages").json == {
        "resource_provider_generation": 1,
        "usages": {"VCPU": 0},
    }
    with engine.connect() as connection:
        for table in ("consumers", "projects", "users", "consumer_types"):
            assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 0


@pytest.mark.parametrize("amount", [2**31, 2**63, 2**64 - 1, 1e300])
def test_amount_beyond_every_inventory_is_refused(api: Api, engine: Engine, host: str, amount: float) -> None:
    refused = api("PUT", f"/allocations/{uuid4()}", body(host, amount))
    assert refused.status_code == 409
    assert "violate inventory constraints" in refused.text
    assert_nothing_stored(api, engine, host)


def test_sum_beyond_every_inventory_is_refused(api: Api, engine: Engine, host: str) -> None:
    refused = api("POST", "/allocations", {str(uuid4()): body(host, MAX_AMOUNT) for _ in range(3)})
    assert refused.status_code == 409
    assert "exceed the capacity" in refused.text
    assert_nothing_stored(api, engine, host)


def test_missing_inventory_unknown_class_and_unknown_provider_are_refused(
    api: Api, engine: Engine, host: str
) -> None:
    wanted = body(host, MAX_AMOUNT)
    wanted["allocations"][host]["resources"]["MEMORY_MB"] = MAX_AMOUNT
    assert "Inventory for 'MEMORY_MB'" in api("PUT", f"/allocations/{uuid4()}", wanted).text
    wanted["allocations"][host]["resources"]["CUSTOM_NONE"] = 2**31
    assert "No such resource class CUSTOM_NONE" in api("PUT", f"/allocations/{uuid4()}", wanted).text
    wanted["allocations"][str(uuid4())] = {"resources": {"CUSTOM_NONE": 1}}
    assert "that does not exist" in api("PUT", f"/allocations/{uuid4()}", wanted).text
    assert_nothing_stored(api, engine, host)
