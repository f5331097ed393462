"""The rules that consistent data follows, as queries for the rows that break them."""

from placement_svc.db.audit import labels
from placement_svc.db.audit.group_rules import VIOLATIONS
from placement_svc.db.audit.rule import (
    DAMAGE,
    FOUND,
    AuditRule,
    allowed,
    orphan,
    quoted,
    referenced,
    same_root,
)
from placement_svc.db.tables import CAPACITY, MAX_ALLOCATABLE
from placement_svc.domain.placement_groups import POLICIES

# Derives root and path of each provider from parent_id alone. Providers in a cycle, or below one, are
# missing.
_TREE = """
    WITH RECURSIVE tree AS (
        SELECT id, id AS root_id, ARRAY[id] AS path
          FROM resource_providers
         WHERE parent_id IS NULL
         UNION ALL
        SELECT child.id, tree.root_id, tree.path || child.id
          FROM tree
          JOIN resource_providers AS child ON child.parent_id = tree.id
         WHERE child.id <> ALL (tree.path)
    )
"""

ORPHANED_ALLOCATION = "allocation of a consumer that does not exist"
OVERCOMMIT = "allocations that exceed the capacity"
ORPHANED_TRAIT = "provider trait that does not exist"
NO_PROJECT = "consumer of a project that does not exist"
NO_USER = "consumer of a user that does not exist"
NO_TYPE = "consumer of a consumer type that does not exist"

_ORPHANS = (
    orphan("allocations", "consumer_id", "consumers", ORPHANED_ALLOCATION),
    orphan(
        "allocations", "provider_id", "resource_providers", "allocation of a provider that does not exist"
    ),
    AuditRule(
        inconsistency="allocation without an inventory",
        find="""
            SELECT entry.ctid AS at, entry.*
              FROM allocations AS entry
             WHERE EXISTS (SELECT FROM resource_providers WHERE id = entry.provider_id)
               AND NOT EXISTS (SELECT
                                 FROM inventories AS inventory
                                WHERE (inventory.provider_id, inventory.resource_class_id)
                                    = (entry.provider_id, entry.resource_class_id))
        """,
        subject=labels.label("allocations", "found"),
        stored="'no inventory'",
        expected=f"'an inventory of ' || {labels.column('resource_class_id', 'found')}",
    ),
    orphan("consumers", "project_id", "projects", NO_PROJECT),
    orphan("consumers", "user_id", "users", NO_USER),
    orphan("consumers", "consumer_type_id", "consumer_types", NO_TYPE),
    orphan("inventories", "provider_id", "resource_providers", "inventory of a provider that does not exist"),
    orphan(
        "inventories",
        "resource_class_id",
        "resource_classes",
        "inventory of a resource class that does not exist",
    ),
    orphan("provider_traits", "provider_id", "resource_providers", "trait of a provider that does not exist"),
    orphan("provider_traits", "trait_id", "traits", ORPHANED_TRAIT),
    orphan(
        "provider_aggregates",
        "provider_id",
        "resource_providers",
        "aggregate of a provider that does not exist",
    ),
    orphan("provider_aggregates", "aggregate_id", "aggregates", "provider aggregate that does not exist"),
    orphan("placement_group_members", "consumer_id", "consumers", "group member that is no consumer"),
    orphan(
        "placement_group_members", "group_id", "placement_groups", "member of a group that does not exist"
    ),
    orphan(
        "placement_group_aggregates",
        "group_id",
        "placement_groups",
        "aggregate of a group that does not exist",
    ),
)

_TREES = (
    AuditRule(
        inconsistency="parents that form a cycle or do not exist",
        find=f"""
            {_TREE}
            SELECT provider.ctid AS at, provider.*
              FROM resource_providers AS provider
             WHERE NOT EXISTS (SELECT FROM tree WHERE tree.id = provider.id)
        """,
        subject=labels.label("resource_providers", "found"),
        stored="'parent ' || coalesce((SELECT min(uuid) FROM resource_providers WHERE id = found.parent_id),"
        " found.parent_id::text)",
        expected="'leads to a root'",
    ),
    AuditRule(
        inconsistency="root or path that does not match the parents",
        find=f"""
            {_TREE}
            SELECT provider.ctid AS at, provider.*, tree.root_id AS expected_root, tree.path AS expected_path
              FROM resource_providers AS provider
              JOIN tree USING (id)
             WHERE (provider.root_id, provider.path) <> (tree.root_id, tree.path)
        """,
        subject=labels.label("resource_providers", "found"),
        stored=f"'root ' || {labels.name('resource_providers', 'found.root_id')} || ', path ' ||"
        f" {labels.names('resource_providers', 'found.path', ' / ')}",
        expected=f"'root ' || {labels.name('resource_providers', 'found.expected_root')} || ', path ' ||"
        f" {labels.names('resource_providers', 'found.expected_path', ' / ')}",
        fix=f"""
            UPDATE resource_providers AS provider
               SET root_id = found.expected_root, path = found.expected_path
              FROM {FOUND} AS found
             WHERE provider.ctid = found.at
        """,
    ),
    same_root("inventories", "root of an inventory that differs from the root of its provider"),
    same_root("provider_traits", "root of a provider trait that differs from the root of the provider"),
    same_root(
        "provider_aggregates", "root of an aggregate member that differs from the root of the provider"
    ),
)

_TRAITS = AuditRule(
    inconsistency="trait ids that do not match the traits of the provider",
    # Which traits a provider has is unknown while one of them does not exist, so such a provider is left out.
    find="""
        SELECT provider.ctid AS at, provider.*, coalesce(held.trait_ids, '{}') AS expected_ids
          FROM resource_providers AS provider
          LEFT JOIN (SELECT provider_id, array_agg(trait_id ORDER BY trait_id) AS trait_ids
                       FROM provider_traits
                      GROUP BY provider_id) AS held ON held.provider_id = provider.id
         WHERE provider.trait_ids <> coalesce(held.trait_ids, '{}')
           AND NOT EXISTS (SELECT
                             FROM provider_traits AS orphan
                            WHERE orphan.provider_id = provider.id
                              AND NOT EXISTS (SELECT FROM traits WHERE traits.id = orphan.trait_id))
    """,
    subject=labels.label("resource_providers", "found"),
    stored=labels.names("traits", "found.trait_ids", ", "),
    expected=labels.names("traits", "found.expected_ids", ", "),
    fix=f"""
        UPDATE resource_providers AS provider
           SET trait_ids = found.expected_ids
          FROM {FOUND} AS found
         WHERE provider.ctid = found.at
    """,
)

_AMOUNTS = (
    allowed("allocations", "used > 0", "found.used::text", "allocation of 0 or less"),
    allowed("inventories", "total > 0", "found.total::text", "inventory with a total of 0 or less"),
    allowed("inventories", "reserved >= 0", "found.reserved::text", "inventory with a negative reserve"),
    allowed(
        "inventories",
        "least(min_unit, max_unit, step_size) > 0",
        "concat_ws(', ', found.min_unit, found.max_unit, found.step_size)",
        "inventory with a unit of 0 or less",
    ),
    AuditRule(
        inconsistency="capacity or largest allocation that does not match the inventory",
        find=f"""
            SELECT entry.ctid AS at, entry.*, {CAPACITY} AS expected_capacity,
                   {MAX_ALLOCATABLE} AS expected_max
              FROM inventories AS entry
             WHERE (entry.capacity, entry.max_allocatable) IS DISTINCT FROM ({CAPACITY}, {MAX_ALLOCATABLE})
        """,
        subject=labels.label("inventories", "found"),
        stored="found.capacity || ' and ' || found.max_allocatable",
        expected="found.expected_capacity || ' and ' || found.expected_max",
        # PostgreSQL computes the generated columns again that depend on an updated column.
        fix=f"UPDATE inventories AS entry SET total = entry.total FROM {FOUND} AS found"
        " WHERE entry.ctid = found.at",
    ),
    AuditRule(
        inconsistency="used amount that is not the sum of the allocations",
        # Whether an allocation without a consumer counts is unknown, so its inventory is left out.
        find="""
            SELECT inventory.ctid AS at, inventory.*, coalesce(allocated.used, 0) AS expected_used
              FROM inventories AS inventory
              LEFT JOIN (SELECT allocation.provider_id, allocation.resource_class_id,
                                sum(allocation.used)::bigint AS used,
                                bool_and(consumer.id IS NOT NULL) AS known
                           FROM allocations AS allocation
                           LEFT JOIN consumers AS consumer ON consumer.id = allocation.consumer_id
                          GROUP BY allocation.provider_id, allocation.resource_class_id) AS allocated
                USING (provider_id, resource_class_id)
             WHERE inventory.used <> coalesce(allocated.used, 0) AND coalesce(allocated.known, true)
        """,
        subject=labels.label("inventories", "found"),
        stored="found.used::text",
        expected="found.expected_used::text",
        fix=f"UPDATE inventories AS entry SET used = found.expected_used FROM {FOUND} AS found"
        " WHERE entry.ctid = found.at",
    ),
    AuditRule(
        inconsistency=OVERCOMMIT,
        find="""
            SELECT inventory.ctid AS at, inventory.*, allocated.used AS allocated
              FROM inventories AS inventory
              JOIN (SELECT provider_id, resource_class_id, sum(used)::bigint AS used
                      FROM allocations
                     GROUP BY provider_id, resource_class_id) AS allocated
                USING (provider_id, resource_class_id)
             WHERE allocated.used > inventory.capacity
        """,
        subject=labels.label("inventories", "found"),
        stored="found.allocated::text",
        expected="found.capacity || ' or less'",
        # Placement permits a client to reduce an inventory below its usage.
        is_notice=True,
    ),
)

_GROUPS = (
    allowed(
        "placement_groups",
        f"policy IN ({', '.join(map(quoted, POLICIES))})",
        "found.policy",
        "placement group with an unknown policy",
    ),
    allowed(
        "placement_groups",
        "(policy LIKE '%anti-affinity') = (max_per_domain IS NOT NULL) AND coalesce(max_per_domain, 1) > 0",
        "found.policy || ', ' || coalesce(found.max_per_domain::text, 'no maximum')",
        "placement group with a maximum that its policy does not have",
    ),
    AuditRule(
        inconsistency="group member that violates the policy of its group",
        find=VIOLATIONS,
        subject=labels.label("placement_group_members", "found"),
        stored=f"'on ' || {labels.names('resource_providers', 'found.root_ids', ', ')}",
        expected="coalesce('in a domain with at most ' || found.max_per_domain"
        " || CASE found.max_per_domain WHEN 1 THEN ' member' ELSE ' members' END,"
        " 'in the domain of the other members')",
        # Only claims into the group keep the policy; other writes may break it.
        is_notice=True,
    ),
)

_LEFTOVERS = (
    AuditRule(
        inconsistency="consumer without allocations",
        find="""
            SELECT entry.ctid AS at, entry.*
              FROM consumers AS entry
             WHERE NOT EXISTS (SELECT FROM allocations WHERE consumer_id = entry.id)
        """,
        subject=labels.label("consumers", "found"),
        stored="'0 allocations'",
        expected="'1 or more'",
        fix=f"DELETE FROM consumers AS entry USING {FOUND} AS found WHERE entry.ctid = found.at",
        blocked_by=(ORPHANED_ALLOCATION,),
    ),
    referenced("projects", "project_id", "project without consumers", (ORPHANED_ALLOCATION, NO_PROJECT)),
    referenced("users", "user_id", "user without consumers", (ORPHANED_ALLOCATION, NO_USER)),
    referenced(
        "consumer_types",
        "consumer_type_id",
        "consumer type without consumers",
        (ORPHANED_ALLOCATION, NO_TYPE),
    ),
)

RULES = (*DAMAGE, *_ORPHANS, *_TREES, _TRAITS, *_AMOUNTS, *_GROUPS, *_LEFTOVERS)
"""All rules. They are fixed in this order, because one fix may leave rows that break a later rule."""
