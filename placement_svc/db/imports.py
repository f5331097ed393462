"""Bringing in records, all at once (`docs/operations.md`, moving data).

Records are first staged in temporary tables, each row with the number of its record. Then everything is
checked and stored by statements about all rows, so that the time is in proportion to their number.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from sqlalchemy import Connection, text

from placement_svc.db.engine import Database
from placement_svc.db.errors import map_driver_errors
from placement_svc.db.maintenance import disable_timeouts, lock_out_writers
from placement_svc.domain.allocations import Claim
from placement_svc.domain.records import (
    MOST_PROBLEMS,
    Imported,
    ImportRefused,
    Problem,
    ProviderRecord,
    Record,
    ResourceClassRecord,
    TraitRecord,
)

ROWS_AT_ONCE = 10_000

# The ids of providers and consumers are given out here, in the order of records.
_STAGES = {
    "staged_traits": "number int, name text",
    "staged_classes": "number int, name text",
    "staged_providers": """
        number int, uuid text COLLATE "C", name text COLLATE "C", parent_uuid text COLLATE "C",
        generation int, id int DEFAULT nextval('resource_providers_id_seq')""",
    "staged_provider_traits": "number int, trait text",
    "staged_provider_aggregates": "number int, aggregate text",
    "staged_inventories": """
        number int, resource_class text, total int, reserved int, min_unit int, max_unit int, step_size int,
        allocation_ratio float8""",
    "staged_consumers": """
        number int, uuid text COLLATE "C", project_id text, user_id text, consumer_type text,
        id bigint DEFAULT nextval('consumers_id_seq')""",
    "staged_allocations": 'number int, provider_uuid text COLLATE "C", resource_class text, used int',
}

_INDEX_STAGES = """
    CREATE UNIQUE INDEX ON staged_providers (number);
    CREATE INDEX ON staged_providers (uuid);
    CREATE INDEX ON staged_providers (parent_uuid);
    CREATE UNIQUE INDEX ON staged_inventories (number, resource_class);
"""


def _store_new(into: str, staged: str, stage: str) -> str:
    """Return the statement that stores what is staged and not there yet, in the order of the records."""
    return f"""
        INSERT INTO {into}
        SELECT {staged} FROM {stage} WHERE {staged} IS NOT NULL GROUP BY {staged} ORDER BY min(number)
            ON CONFLICT DO NOTHING;
    """


_STORE_NAMES = f"""
    {_store_new("traits (name)", "name", "staged_traits")}
    {_store_new("resource_classes (name)", "name", "staged_classes")}
"""

# Each gives numbers of records and what is wrong with them.
_CONTRADICTIONS = (
    """
    SELECT array_agg(number ORDER BY number), format('several resource providers have the uuid %s', uuid)
      FROM staged_providers GROUP BY uuid HAVING count(*) > 1
    """,
    """
    SELECT array_agg(number ORDER BY number), format('several resource providers have the name %s', name)
      FROM staged_providers GROUP BY name HAVING count(*) > 1
    """,
    """
    SELECT ARRAY[number], format('there is a resource provider with the uuid %s already', uuid)
      FROM staged_providers JOIN resource_providers USING (uuid)
    """,
    """
    SELECT ARRAY[number], format('there is a resource provider with the name %s already', name)
      FROM staged_providers JOIN resource_providers USING (name)
    """,
    """
    SELECT ARRAY[number],
           format('the parent %s of resource provider %s does not exist', parent_uuid, uuid)
      FROM staged_providers AS child
     WHERE parent_uuid IS NOT NULL
       AND NOT EXISTS (SELECT FROM staged_providers WHERE uuid = child.parent_uuid)
       AND NOT EXISTS (SELECT FROM resource_providers WHERE uuid = child.parent_uuid)
    """,
    """
    SELECT ARRAY[number], format('no such trait %s', trait)
      FROM staged_provider_traits LEFT JOIN traits ON traits.name = trait
     WHERE traits.id IS NULL
    """,
    """
    SELECT ARRAY[number], format('no such resource class %s', resource_class)
      FROM staged_inventories LEFT JOIN resource_classes ON resource_classes.name = resource_class
     WHERE resource_classes.id IS NULL
    """,
    """
    SELECT array_agg(number ORDER BY number), format('several consumers have the uuid %s', uuid)
      FROM staged_consumers GROUP BY uuid HAVING count(*) > 1
    """,
    """
    SELECT ARRAY[number], format('there is a consumer with the uuid %s already', uuid)
      FROM staged_consumers JOIN consumers USING (uuid)
    """,
    """
    SELECT ARRAY[held.number],
           CASE WHEN coming.number IS NULL AND provider.id IS NULL
                THEN format('resource provider %s does not exist', held.provider_uuid)
                ELSE format('resource provider %s has no inventory of %s',
                            held.provider_uuid, held.resource_class)
            END
      FROM staged_allocations AS held
      LEFT JOIN staged_providers AS coming ON coming.uuid = held.provider_uuid
      LEFT JOIN staged_inventories AS new
        ON (new.number, new.resource_class) = (coming.number, held.resource_class)
      LEFT JOIN resource_providers AS provider ON provider.uuid = held.provider_uuid
      LEFT JOIN resource_classes AS class ON class.name = held.resource_class
      LEFT JOIN inventories AS inventory
        ON (inventory.provider_id, inventory.resource_class_id) = (provider.id, class.id)
     WHERE new.number IS NULL AND inventory.provider_id IS NULL
    """,
)

# From the roots down, level by level: whoever is in a circle, or below one, is never reached.
_PLACE_PROVIDERS = """
    CREATE TEMPORARY TABLE places ON COMMIT DROP AS
    WITH RECURSIVE place AS (
        SELECT root.id, root.uuid, above.id AS parent_id, coalesce(above.root_id, root.id) AS root_id,
               coalesce(above.path, '{}') || root.id AS path
          FROM staged_providers AS root
          LEFT JOIN resource_providers AS above ON above.uuid = root.parent_uuid
         WHERE root.parent_uuid IS NULL OR above.id IS NOT NULL
         UNION ALL
        SELECT child.id, child.uuid, place.id, place.root_id, place.path || child.id
          FROM place
          JOIN staged_providers AS child ON child.parent_uuid = place.uuid
    )
    SELECT id, parent_id, root_id, path FROM place;
    ANALYZE places
"""

_CIRCLES = """
    SELECT array_agg(number ORDER BY number), 'the parents of these resource providers go round in a circle'
      FROM staged_providers AS provider
     WHERE NOT EXISTS (SELECT FROM places WHERE places.id = provider.id)
    HAVING count(*) > 0
"""

_STORE_PROVIDERS = f"""
    INSERT INTO resource_providers (id, uuid, name, generation, parent_id, root_id, path, updated_at)
    SELECT id, uuid, name, generation, parent_id, root_id, path,
           -- As where they are created one by one: only a child can be told to be untouched.
           CASE WHEN parent_id IS NULL OR generation > 0 THEN now() END
      FROM staged_providers
      JOIN places USING (id);
    INSERT INTO provider_traits (provider_id, trait_id)
    SELECT provider.id, traits.id
      FROM staged_provider_traits
      JOIN staged_providers AS provider USING (number)
      JOIN traits ON traits.name = trait;
    {_store_new("aggregates (uuid)", "aggregate", "staged_provider_aggregates")}
    INSERT INTO provider_aggregates (provider_id, root_id, aggregate_id)
    SELECT places.id, places.root_id, aggregates.id
      FROM staged_provider_aggregates
      JOIN staged_providers AS provider USING (number)
      JOIN places ON places.id = provider.id
      JOIN aggregates ON aggregates.uuid = aggregate;
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT places.id, places.root_id, class.id, total, reserved, min_unit, max_unit, step_size,
           allocation_ratio
      FROM staged_inventories
      JOIN staged_providers AS provider USING (number)
      JOIN places ON places.id = provider.id
      JOIN resource_classes AS class ON class.name = resource_class;
"""

_STORE_CONSUMERS = f"""
    {_store_new("projects (external_id)", "project_id", "staged_consumers")}
    {_store_new("users (external_id)", "user_id", "staged_consumers")}
    {_store_new("consumer_types (name)", "consumer_type", "staged_consumers")}
    INSERT INTO consumers (id, uuid, project_id, user_id, consumer_type_id, generation)
    SELECT consumer.id, consumer.uuid, projects.id, users.id, consumer_types.id, 1
      FROM staged_consumers AS consumer
      JOIN projects ON projects.external_id = consumer.project_id
      JOIN users ON users.external_id = consumer.user_id
      LEFT JOIN consumer_types ON consumer_types.name = consumer.consumer_type;
    INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)
    SELECT consumer.id, provider.id, class.id, held.used
      FROM staged_allocations AS held
      JOIN staged_consumers AS consumer USING (number)
      JOIN resource_providers AS provider ON provider.uuid = held.provider_uuid
      JOIN resource_classes AS class ON class.name = held.resource_class;
    UPDATE resource_providers AS provider
       SET generation = generation + claims.count, updated_at = now()
      FROM (SELECT provider_uuid, count(DISTINCT number) FROM staged_allocations GROUP BY provider_uuid)
        AS claims
     WHERE provider.uuid = claims.provider_uuid;
"""

_HELD = """
      FROM staged_allocations AS held
      JOIN resource_providers AS provider ON provider.uuid = held.provider_uuid
      JOIN resource_classes AS class ON class.name = held.resource_class
      JOIN inventories AS inventory
        ON (inventory.provider_id, inventory.resource_class_id) = (provider.id, class.id)
"""

# What a claim would be refused for (`docs/spec/allocations.md 6`).
_OVERCOMMITMENTS = (
    f"""
    SELECT array_agg(DISTINCT held.number ORDER BY held.number),
           format('of %s of resource provider %s %s are allocated, and its capacity is %s',
                  class.name, provider.uuid, inventory.used, inventory.capacity)
           {_HELD}
     WHERE inventory.used > inventory.capacity
     GROUP BY provider.id, class.id, inventory.provider_id, inventory.resource_class_id
    """,
    f"""
    SELECT ARRAY[held.number],
           format('%s of %s of resource provider %s violates inventory constraints: min_unit %s, '
                  'max_unit %s, step_size %s',
                  held.used, class.name, provider.uuid, min_unit, max_unit, step_size)
           {_HELD}
     WHERE NOT fits_units(held.used, min_unit, max_unit, step_size)
    """,
)

# New statistics, so that the first searches are planned for what is there now.
_ANALYZE = """
    ANALYZE resource_providers, provider_traits, provider_aggregates, inventories, consumers, allocations
"""


def load(database: Database, records: Iterable[tuple[int, Record]], allow_overcommitted: bool) -> Imported:
    """Bring in numbered records, all of them or none; their order does not matter.

    They add to what is there. Consumers may hold more of inventories than those would grant if
    `allow_overcommitted`: so it is after an inventory has shrunk (`docs/spec/resources.md 4`). A new
    provider's generation tells one change for its inventories, its traits and its aggregates each, and
    one for each of its consumers; a consumer's is 1. Raises `ImportRefused`.
    """
    database.prepare()
    # Not a transaction that is tried again: the records are gone when they have been read.
    with map_driver_errors(), database.engine.begin() as connection:
        disable_timeouts(connection)
        counts = _stage(connection, records)
        lock_out_writers(connection)
        connection.execute(text(_STORE_NAMES))
        _refuse(_problems(connection, _CONTRADICTIONS))
        connection.execute(text(_PLACE_PROVIDERS))
        _refuse(_problems(connection, [_CIRCLES]))
        connection.execute(text(_STORE_PROVIDERS))
        connection.execute(text(_STORE_CONSUMERS))
        overcommitted = _problems(connection, _OVERCOMMITMENTS)
        if not allow_overcommitted:
            _refuse(overcommitted)
        connection.execute(text(_ANALYZE))
    return Imported(counts["staged_providers"], counts["staged_consumers"], overcommitted)


def _stage(connection: Connection, records: Iterable[tuple[int, Record]]) -> dict[str, int]:
    """Copy records into the staging tables; return the number of rows in each."""
    for table, columns in _STAGES.items():
        connection.execute(text(f"CREATE TEMPORARY TABLE {table} ({columns}) ON COMMIT DROP"))
    counts: dict[str, int] = defaultdict(int)
    waiting: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, record in records:
        for table, rows in _rows(record):
            waiting[table] += ({"number": number, **row} for row in rows)
            if len(waiting[table]) >= ROWS_AT_ONCE:
                counts[table] += _copy(connection, table, waiting.pop(table))
    for table, rest in waiting.items():
        counts[table] += _copy(connection, table, rest)
    connection.execute(text(_INDEX_STAGES))
    connection.execute(text(f"ANALYZE {', '.join(_STAGES)}"))
    return counts


def _rows(record: Record) -> Iterable[tuple[str, Sequence[dict[str, Any]]]]:
    """Yield the rows that a record is, by their staging table."""
    match record:
        case TraitRecord(name):
            yield "staged_traits", [{"name": name}]
        case ResourceClassRecord(name):
            yield "staged_classes", [{"name": name}]
        case ProviderRecord():
            has = (record.inventories, record.traits, record.aggregates)
            provider = {
                "uuid": record.uuid,
                "name": record.name,
                "parent_uuid": record.parent_uuid,
                "generation": sum(map(bool, has)),
            }
            yield "staged_providers", [provider]
            yield "staged_provider_traits", [{"trait": name} for name in record.traits]
            yield "staged_provider_aggregates", [{"aggregate": uuid} for uuid in record.aggregates]
            yield (
                "staged_inventories",
                [
                    {"resource_class": name, **asdict(inventory)}
                    for name, inventory in record.inventories.items()
                ],
            )
        case Claim():
            consumer = {
                "uuid": record.consumer_uuid,
                "project_id": record.project_id,
                "user_id": record.user_id,
                "consumer_type": record.consumer_type,
            }
            yield "staged_consumers", [consumer]
            yield (
                "staged_allocations",
                [
                    {"provider_uuid": provider, "resource_class": resource_class, "used": used}
                    for provider, resources in record.allocations.items()
                    for resource_class, used in resources.items()
                ],
            )


def _copy(connection: Connection, table: str, rows: Sequence[dict[str, Any]]) -> int:
    if rows:
        columns = ", ".join(rows[0])
        connection.execute(
            text(f"""
                INSERT INTO {table} ({columns})
                SELECT {columns} FROM json_populate_recordset(NULL::{table}, CAST(:rows AS json))
            """),
            {"rows": orjson.dumps(rows).decode()},
        )
    return len(rows)


def _problems(connection: Connection, queries: Iterable[str]) -> list[Problem]:
    return [
        Problem(tuple(numbers), message)
        for query in queries
        for numbers, message in connection.execute(text(f"{query} ORDER BY 1 LIMIT {MOST_PROBLEMS}"))
    ]


def _refuse(problems: Sequence[Problem]) -> None:
    if problems:
        raise ImportRefused(problems)
