"""SQL statements of an import; `placement_svc/db/imports.py` runs them in the order of this module.

Every row of a staging table has the number of the line of its record. The statements work on whole tables, so
their time is proportional to the number of rows.
"""

# The defaults assign the ids of new providers and consumers here, in the order of the records.
STAGING_TABLES = {
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
    "staged_groups": """
        number int, uuid text COLLATE "C", policy text, max_per_domain int,
        id int DEFAULT nextval('placement_groups_id_seq')""",
    "staged_group_aggregates": "number int, position int, aggregate text",
    "staged_group_members": 'number int, consumer_uuid text COLLATE "C"',
}
"""The columns of each temporary table."""

INDEX_STAGING_TABLES = f"""
    CREATE UNIQUE INDEX ON staged_providers (number);
    CREATE INDEX ON staged_providers (uuid);
    CREATE INDEX ON staged_providers (parent_uuid);
    CREATE UNIQUE INDEX ON staged_inventories (number, resource_class);
    ANALYZE {", ".join(STAGING_TABLES)}
"""


def insert_rows(table: str, columns: str) -> str:
    """Return the statement that copies rows, the JSON array `:rows`, into a staging table."""
    return f"""
        INSERT INTO {table} ({columns})
        SELECT {columns} FROM json_populate_recordset(NULL::{table}, CAST(:rows AS json))
    """


def _insert_missing(target: str, column: str, staging_table: str) -> str:
    """Return the statement that inserts the missing values of a staged column, in record order."""
    return f"""
        INSERT INTO {target}
        SELECT {column} FROM {staging_table} WHERE {column} IS NOT NULL GROUP BY {column} ORDER BY min(number)
            ON CONFLICT DO NOTHING;
    """


INSERT_TRAITS = _insert_missing("traits (name)", "name", "staged_traits")

INSERT_RESOURCE_CLASSES = _insert_missing("resource_classes (name)", "name", "staged_classes")

# Each query returns the line numbers of records and the reason why these cannot be imported.
FIND_CONTRADICTIONS = (
    """
    SELECT array_agg(number ORDER BY number), format('several resource providers have the uuid %s', uuid)
      FROM staged_providers GROUP BY uuid HAVING count(*) > 1
    """,
    """
    SELECT array_agg(number ORDER BY number), format('several resource providers have the name %s', name)
      FROM staged_providers GROUP BY name HAVING count(*) > 1
    """,
    """
    SELECT ARRAY[number], format('a resource provider with the uuid %s already exists', uuid)
      FROM staged_providers JOIN resource_providers USING (uuid)
    """,
    """
    SELECT ARRAY[number], format('a resource provider with the name %s already exists', name)
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
    SELECT ARRAY[number], format('a consumer with the uuid %s already exists', uuid)
      FROM staged_consumers JOIN consumers USING (uuid)
    """,
    """
    SELECT ARRAY[allocation.number],
           CASE WHEN staged_provider.number IS NULL AND provider.id IS NULL
                THEN format('resource provider %s does not exist', allocation.provider_uuid)
                ELSE format('resource provider %s has no inventory of %s',
                            allocation.provider_uuid, allocation.resource_class)
            END
      FROM staged_allocations AS allocation
      LEFT JOIN staged_providers AS staged_provider ON staged_provider.uuid = allocation.provider_uuid
      LEFT JOIN staged_inventories AS staged_inventory
        ON (staged_inventory.number, staged_inventory.resource_class)
         = (staged_provider.number, allocation.resource_class)
      LEFT JOIN resource_providers AS provider ON provider.uuid = allocation.provider_uuid
      LEFT JOIN resource_classes AS class ON class.name = allocation.resource_class
      LEFT JOIN inventories AS inventory
        ON (inventory.provider_id, inventory.resource_class_id) = (provider.id, class.id)
     WHERE staged_inventory.number IS NULL AND inventory.provider_id IS NULL
    """,
    """
    SELECT array_agg(number ORDER BY number), format('several placement groups have the uuid %s', uuid)
      FROM staged_groups GROUP BY uuid HAVING count(*) > 1
    """,
    """
    SELECT ARRAY[number], format('a placement group with the uuid %s already exists', uuid)
      FROM staged_groups JOIN placement_groups USING (uuid)
    """,
    """
    SELECT array_agg(number ORDER BY number),
           format('consumer %s is a member of several placement groups', consumer_uuid)
      FROM staged_group_members GROUP BY consumer_uuid HAVING count(*) > 1
    """,
    """
    SELECT ARRAY[number], format('consumer %s is already a member of a placement group', consumer_uuid)
      FROM staged_group_members
      JOIN consumers ON consumers.uuid = consumer_uuid
      JOIN placement_group_members ON consumer_id = consumers.id
    """,
    """
    SELECT ARRAY[number], format('the member %s of a placement group does not exist', consumer_uuid)
      FROM staged_group_members AS member
     WHERE NOT EXISTS (SELECT FROM staged_consumers WHERE uuid = member.consumer_uuid)
       AND NOT EXISTS (SELECT FROM consumers WHERE uuid = member.consumer_uuid)
    """,
)

# Starts at the staged providers whose parent is in the database or who have none (`top`), and descends level
# by level. A provider that is part of a cycle, or below one, is never reached.
COMPUTE_PATHS = """
    CREATE TEMPORARY TABLE provider_paths ON COMMIT DROP AS
    WITH RECURSIVE reached AS (
        SELECT top.id, top.uuid, parent.id AS parent_id, coalesce(parent.root_id, top.id) AS root_id,
               coalesce(parent.path, '{}') || top.id AS path
          FROM staged_providers AS top
          LEFT JOIN resource_providers AS parent ON parent.uuid = top.parent_uuid
         WHERE top.parent_uuid IS NULL OR parent.id IS NOT NULL
         UNION ALL
        SELECT child.id, child.uuid, reached.id, reached.root_id, reached.path || child.id
          FROM reached
          JOIN staged_providers AS child ON child.parent_uuid = reached.uuid
    )
    SELECT id, parent_id, root_id, path FROM reached;
    ANALYZE provider_paths
"""

FIND_CYCLES = """
    SELECT array_agg(number ORDER BY number), 'the parents of these resource providers form a cycle'
      FROM staged_providers AS provider
     WHERE NOT EXISTS (SELECT FROM provider_paths WHERE provider_paths.id = provider.id)
    HAVING count(*) > 0
"""

INSERT_PROVIDERS = f"""
    INSERT INTO resource_providers (id, uuid, name, generation, parent_id, root_id, path, updated_at)
    SELECT id, uuid, name, generation, parent_id, root_id, path,
           -- As if created by requests: a root is updated when it is created, a child at its first change.
           CASE WHEN parent_id IS NULL OR generation > 0 THEN now() END
      FROM staged_providers
      JOIN provider_paths USING (id);
    INSERT INTO provider_traits (provider_id, root_id, trait_id)
    SELECT provider_paths.id, provider_paths.root_id, traits.id
      FROM staged_provider_traits
      JOIN staged_providers AS provider USING (number)
      JOIN provider_paths ON provider_paths.id = provider.id
      JOIN traits ON traits.name = trait;
    {_insert_missing("aggregates (uuid)", "aggregate", "staged_provider_aggregates")}
    INSERT INTO provider_aggregates (provider_id, root_id, aggregate_id)
    SELECT provider_paths.id, provider_paths.root_id, aggregates.id
      FROM staged_provider_aggregates
      JOIN staged_providers AS provider USING (number)
      JOIN provider_paths ON provider_paths.id = provider.id
      JOIN aggregates ON aggregates.uuid = aggregate;
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT provider_paths.id, provider_paths.root_id, class.id, total, reserved, min_unit, max_unit,
           step_size, allocation_ratio
      FROM staged_inventories
      JOIN staged_providers AS provider USING (number)
      JOIN provider_paths ON provider_paths.id = provider.id
      JOIN resource_classes AS class ON class.name = resource_class;
"""

# Each allocation looks up its inventory, because of the foreign key. If autovacuum has analyzed the table
# while rows were not committed, PostgreSQL expects none, and reads all inventories of a class each time:
# with 10,000 hosts, 144,000 allocations took more than twelve minutes. The lock of this statement also keeps
# autovacuum away until the end of the transaction.
ANALYZE_INVENTORIES = "ANALYZE inventories"

INSERT_CONSUMERS = f"""
    {_insert_missing("projects (external_id)", "project_id", "staged_consumers")}
    {_insert_missing("users (external_id)", "user_id", "staged_consumers")}
    {_insert_missing("consumer_types (name)", "consumer_type", "staged_consumers")}
    INSERT INTO consumers (id, uuid, project_id, user_id, consumer_type_id, generation)
    SELECT consumer.id, consumer.uuid, projects.id, users.id, consumer_types.id, 1
      FROM staged_consumers AS consumer
      JOIN projects ON projects.external_id = consumer.project_id
      JOIN users ON users.external_id = consumer.user_id
      LEFT JOIN consumer_types ON consumer_types.name = consumer.consumer_type;
    INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)
    SELECT consumer.id, provider.id, class.id, allocation.used
      FROM staged_allocations AS allocation
      JOIN staged_consumers AS consumer USING (number)
      JOIN resource_providers AS provider ON provider.uuid = allocation.provider_uuid
      JOIN resource_classes AS class ON class.name = allocation.resource_class;
    UPDATE resource_providers AS provider
       SET generation = generation + claims.count, updated_at = now()
      FROM (SELECT provider_uuid, count(DISTINCT number) FROM staged_allocations GROUP BY provider_uuid)
        AS claims
     WHERE provider.uuid = claims.provider_uuid;
"""

INSERT_PLACEMENT_GROUPS = """
    INSERT INTO placement_groups (id, uuid, policy, max_per_domain)
    SELECT id, uuid, policy, max_per_domain FROM staged_groups;
    INSERT INTO placement_group_aggregates (group_id, position, aggregate_uuid)
    SELECT staged_groups.id, position, aggregate
      FROM staged_group_aggregates
      JOIN staged_groups USING (number);
    INSERT INTO placement_group_members (consumer_id, group_id)
    SELECT consumers.id, staged_groups.id
      FROM staged_group_members
      JOIN staged_groups USING (number)
      JOIN consumers ON consumers.uuid = consumer_uuid;
"""

_STAGED_ALLOCATIONS = """
      FROM staged_allocations AS held
      JOIN resource_providers AS provider ON provider.uuid = held.provider_uuid
      JOIN resource_classes AS class ON class.name = held.resource_class
      JOIN inventories AS inventory
        ON (inventory.provider_id, inventory.resource_class_id) = (provider.id, class.id)
"""

# Each query returns line numbers, and the reason why a claim of these allocations would be refused
# (`docs/spec/allocations.md 6`).
FIND_OVERCOMMITTED = (
    f"""
    SELECT array_agg(DISTINCT held.number ORDER BY held.number),
           format('%s %s of resource provider %s are allocated, but the capacity is %s',
                  inventory.used, class.name, provider.uuid, inventory.capacity)
           {_STAGED_ALLOCATIONS}
     WHERE inventory.used > inventory.capacity
     GROUP BY provider.id, class.id, inventory.provider_id, inventory.resource_class_id
    """,
    f"""
    SELECT ARRAY[held.number],
           format('an allocation of %s %s from resource provider %s violates inventory constraints: '
                  'min_unit %s, max_unit %s, step_size %s',
                  held.used, class.name, provider.uuid, min_unit, max_unit, step_size)
           {_STAGED_ALLOCATIONS}
     WHERE NOT fits_units(held.used, min_unit, max_unit, step_size)
    """,
)

SEARCHED_TABLES = (
    "resource_providers",
    "provider_traits",
    "provider_aggregates",
    "inventories",
    "consumers",
    "allocations",
)

FILLED_TABLES = (
    *SEARCHED_TABLES,
    "aggregates",
    "projects",
    "users",
    "consumer_types",
    "placement_groups",
    "placement_group_aggregates",
    "placement_group_members",
)
"""The tables that an import adds rows to; `traits` and `resource_classes` are always small."""

# Without new statistics the first searches would be planned for the tables as they were before the import.
ANALYZE = f"ANALYZE {', '.join(SEARCHED_TABLES)}"
