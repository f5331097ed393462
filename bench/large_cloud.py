"""A cloud of many alike hosts, which SQL statements create in seconds."""

from sqlalchemy import Engine, text

from placement_svc.db.import_statements import ANALYZE_INVENTORIES
from placement_svc.db.maintenance import disable_timeouts

PROVIDERS_PER_HOST = 4
"""A host, its two NUMA nodes and a network card."""

RACKS = 40
PROJECTS = 50

_STATEMENTS = (
    """
    CREATE TEMPORARY TABLE host ON COMMIT DROP AS
    SELECT number, 1000 + (number - 1) * :providers_per_host AS id FROM generate_series(1, :hosts) AS number
    """,
    """
    INSERT INTO resource_providers (id, uuid, name, parent_id, root_id, path)
    OVERRIDING SYSTEM VALUE
    SELECT id, gen_random_uuid()::text, 'cn-' || lpad(number::text, 5, '0'), NULL, id, ARRAY[id] FROM host
    """,
    """
    INSERT INTO resource_providers (id, uuid, name, parent_id, root_id, path)
    OVERRIDING SYSTEM VALUE
    SELECT id + part, gen_random_uuid()::text,
           'cn-' || lpad(number::text, 5, '0') || (ARRAY['-numa0', '-numa1', '-nic'])[part], id, id,
           ARRAY[id, id + part]
      FROM host, generate_series(1, 3) AS part
    """,
    """
    INSERT INTO inventories (provider_id, root_id, resource_class_id, total, reserved, min_unit, max_unit,
                             step_size, allocation_ratio)
    SELECT host.id + part, host.id, class.id, (amount[2])::int, (amount[3])::int, 1, (amount[2])::int, 1,
           (amount[4])::float8
      FROM host
      CROSS JOIN (VALUES (0, ARRAY['DISK_GB', '2000', '100', '1']), (1, ARRAY['VCPU', '32', '0', '4']),
                         (1, ARRAY['MEMORY_MB', '131072', '4096', '1']), (2, ARRAY['VCPU', '32', '0', '4']),
                         (2, ARRAY['MEMORY_MB', '131072', '4096', '1']),
                         (3, ARRAY['SRIOV_NET_VF', '16', '0', '1'])) AS inventory (part, amount)
      JOIN resource_classes AS class ON class.name = amount[1]
    """,
    """
    INSERT INTO provider_traits (provider_id, trait_id)
    SELECT host.id, trait.id FROM host JOIN traits AS trait
        ON trait.name = 'COMPUTE_NODE' OR trait.name LIKE 'HW_CPU_X86_AVX%'
        OR (trait.name = 'HW_CPU_X86_SGX' AND number % 3 = 0)
    UNION ALL
    SELECT host.id + part, trait.id FROM host CROSS JOIN generate_series(1, 2) AS part
      JOIN traits AS trait ON trait.name = 'HW_NUMA_ROOT'
    """,
    "INSERT INTO aggregates (uuid) SELECT gen_random_uuid()::text FROM generate_series(1, :racks)",
    """
    INSERT INTO provider_aggregates (provider_id, root_id, aggregate_id)
    SELECT host.id, host.id, rack.id
      FROM (SELECT id, row_number() OVER (ORDER BY id) AS number FROM aggregates) AS rack
      JOIN host ON 1 + host.number * :racks / (:hosts + 1) = rack.number
    """,
    """
    INSERT INTO projects (external_id)
    SELECT 'project-' || number FROM generate_series(1, :projects) AS number
    """,
    "INSERT INTO users (external_id) VALUES ('nova')",
    "INSERT INTO consumer_types (name) VALUES ('INSTANCE'), ('MIGRATION')",
    """
    CREATE TEMPORARY TABLE claim ON COMMIT DROP AS
    SELECT row_number() OVER () AS number, id AS host_id, 1 + slot % 2 AS node,
           CASE WHEN host.number % 50 < 3 THEN 23
                WHEN host.number % 10 < 3 THEN 20
                ELSE 4 + host.number % 12
           END AS size
      FROM host CROSS JOIN generate_series(1, 5) AS slot
     WHERE host.number % 25 > 0
    """,
    """
    INSERT INTO consumers (id, uuid, project_id, user_id, consumer_type_id, created_at)
    OVERRIDING SYSTEM VALUE
    SELECT claim.number, gen_random_uuid()::text, project.id, owner.id, type.id,
           now() - claim.number * interval '1 minute'
      FROM claim
      JOIN (SELECT id, row_number() OVER (ORDER BY id) AS number FROM projects) AS project
        ON project.number = 1 + claim.number * claim.number % :projects
      CROSS JOIN users AS owner
      JOIN consumer_types AS type
        ON type.name = CASE WHEN claim.number % 40 = 0 THEN 'MIGRATION' ELSE 'INSTANCE' END
    """,
    ANALYZE_INVENTORIES,
    """
    INSERT INTO allocations (consumer_id, provider_id, resource_class_id, used)
    SELECT claim.number, host_id + node * is_on_node, class.id, size * factor
      FROM claim
      CROSS JOIN (VALUES ('VCPU', 1, 1), ('MEMORY_MB', 1, 1800), ('DISK_GB', 0, 15))
              AS amount (name, is_on_node, factor)
      JOIN resource_classes AS class USING (name)
    """,
    "SELECT setval(pg_get_serial_sequence('resource_providers', 'id'), max(id)) FROM resource_providers",
    "SELECT setval(pg_get_serial_sequence('consumers', 'id'), max(id)) FROM consumers",
)


def fill(engine: Engine, hosts: int) -> None:
    """Create that many hosts, with five consumers on most of them, in an empty database."""
    values = {
        "hosts": hosts,
        "racks": min(RACKS, hosts),
        "projects": PROJECTS,
        "providers_per_host": PROVIDERS_PER_HOST,
    }
    with engine.begin() as connection:
        disable_timeouts(connection)
        for statement in _STATEMENTS:
            used = {name: value for name, value in values.items() if f":{name}" in statement}
            connection.execute(text(statement), used)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))
