"""Find and fix inconsistencies in the database.

Constraints and triggers keep the data consistent. An audit does not rely on them, so it also finds
inconsistencies that a restore without triggers, a manual edit or a disk fault has caused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from placement_svc.db.maintenance import disable_timeouts, lock_out_writers

MAX_EXAMPLES = 20
"""The largest number of inconsistent rows that one finding shows."""


@dataclass(frozen=True)
class AuditRule:
    """A rule that consistent data follows.

    `inconsistency` describes a row that breaks the rule. The query `find` returns each such row with its
    stored value and the expected one. The statement `fix` corrects these rows; it is None if only the
    operator can decide what is correct.
    """

    inconsistency: str
    find: str
    fix: str | None


@dataclass(frozen=True)
class InconsistentRow:
    """A row that breaks a rule, its stored value and the expected one, as text."""

    subject: str
    stored: str
    expected: str


@dataclass(frozen=True)
class AuditFinding:
    """A rule that `count` rows break, the first `MAX_EXAMPLES` of these, and whether they have been fixed."""

    rule: AuditRule
    count: int
    examples: Sequence[InconsistentRow]
    fixed: bool

    def __str__(self) -> str:
        return f"{self.count:,} x {self.rule.inconsistency}"


_ALLOCATED = """
    SELECT provider_id, resource_class_id, sum(used)::bigint AS used
      FROM allocations
     GROUP BY provider_id, resource_class_id
"""

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
    )
"""

_TRAITS_OF_PROVIDER = """
    ARRAY(SELECT trait_id FROM provider_traits WHERE provider_id = provider.id ORDER BY trait_id)
"""


def _same_root(table: str, inconsistency: str) -> AuditRule:
    """Return the rule that each row of `table` has the root of its provider."""
    return AuditRule(
        inconsistency=inconsistency,
        find=f"""
            SELECT provider.uuid, entry.root_id, provider.root_id
              FROM {table} AS entry
              JOIN resource_providers AS provider ON provider.id = entry.provider_id
             WHERE entry.root_id <> provider.root_id
             ORDER BY provider.id
        """,
        fix=f"""
            UPDATE {table} AS entry
               SET root_id = provider.root_id
              FROM resource_providers AS provider
             WHERE provider.id = entry.provider_id AND entry.root_id <> provider.root_id
        """,
    )


def _referenced(table: str, *, name_column: str, reference: str, inconsistency: str) -> AuditRule:
    """Return the rule that the column `reference` of a consumer refers to each row of `table`."""
    unused = f"NOT EXISTS (SELECT FROM consumers WHERE {reference} = {table}.id)"
    return AuditRule(
        inconsistency=inconsistency,
        find=f"SELECT {name_column}, '0 consumers', '1 or more' FROM {table} WHERE {unused} ORDER BY id",
        fix=f"DELETE FROM {table} WHERE {unused}",
    )


RULES = (
    AuditRule(
        inconsistency="parents that form a cycle or do not exist",
        find=f"""
            {_TREE}
            SELECT provider.uuid, coalesce(parent.uuid, 'parent ' || provider.parent_id), 'leads to a root'
              FROM resource_providers AS provider
              LEFT JOIN resource_providers AS parent ON parent.id = provider.parent_id
             WHERE NOT EXISTS (SELECT FROM tree WHERE tree.id = provider.id)
             ORDER BY provider.id
        """,
        fix=None,
    ),
    AuditRule(
        inconsistency="root or path that does not match the parents",
        find=f"""
            {_TREE}
            SELECT provider.uuid, provider.path, tree.path
              FROM resource_providers AS provider
              JOIN tree USING (id)
             WHERE (provider.root_id, provider.path) <> (tree.root_id, tree.path)
             ORDER BY id
        """,
        fix=f"""
            {_TREE}
            UPDATE resource_providers AS provider
               SET root_id = tree.root_id, path = tree.path
              FROM tree
             WHERE tree.id = provider.id
               AND (provider.root_id, provider.path) <> (tree.root_id, tree.path)
        """,
    ),
    _same_root("inventories", "root of an inventory that differs from the root of its provider"),
    _same_root(
        "provider_aggregates", "root of an aggregate member that differs from the root of the provider"
    ),
    AuditRule(
        inconsistency="trait ids that do not match the traits of the provider",
        find=f"""
            SELECT provider.uuid, provider.trait_ids, {_TRAITS_OF_PROVIDER}
              FROM resource_providers AS provider
             WHERE provider.trait_ids <> {_TRAITS_OF_PROVIDER}
             ORDER BY provider.id
        """,
        fix=f"""
            UPDATE resource_providers AS provider
               SET trait_ids = {_TRAITS_OF_PROVIDER}
             WHERE provider.trait_ids <> {_TRAITS_OF_PROVIDER}
        """,
    ),
    AuditRule(
        inconsistency="used amount that is not the sum of the allocations",
        find=f"""
            SELECT provider.uuid || ' ' || class.name, inventory.used, coalesce(allocated.used, 0)
              FROM inventories AS inventory
              JOIN resource_providers AS provider ON provider.id = inventory.provider_id
              JOIN resource_classes AS class ON class.id = inventory.resource_class_id
              LEFT JOIN ({_ALLOCATED}) AS allocated USING (provider_id, resource_class_id)
             WHERE inventory.used <> coalesce(allocated.used, 0)
             ORDER BY provider_id, resource_class_id
        """,
        fix=f"""
            UPDATE inventories AS inventory
               SET used = coalesce(allocated.used, 0)
              FROM inventories AS same
              LEFT JOIN ({_ALLOCATED}) AS allocated USING (provider_id, resource_class_id)
             WHERE (inventory.provider_id, inventory.resource_class_id)
                 = (same.provider_id, same.resource_class_id)
               AND inventory.used <> coalesce(allocated.used, 0)
        """,
    ),
    AuditRule(
        inconsistency="allocations that exceed the capacity",
        find=f"""
            SELECT provider.uuid || ' ' || class.name, allocated.used, inventory.capacity || ' or less'
              FROM inventories AS inventory
              JOIN ({_ALLOCATED}) AS allocated USING (provider_id, resource_class_id)
              JOIN resource_providers AS provider ON provider.id = provider_id
              JOIN resource_classes AS class ON class.id = resource_class_id
             WHERE allocated.used > inventory.capacity
             ORDER BY provider_id, resource_class_id
        """,
        fix=None,
    ),
    AuditRule(
        inconsistency="consumer without allocations",
        find="""
            SELECT uuid, '0 allocations', '1 or more'
              FROM consumers
             WHERE NOT EXISTS (SELECT FROM allocations WHERE consumer_id = consumers.id)
             ORDER BY id
        """,
        fix="""
            DELETE FROM consumers
             WHERE NOT EXISTS (SELECT FROM allocations WHERE consumer_id = consumers.id)
        """,
    ),
    _referenced(
        "projects",
        name_column="external_id",
        reference="project_id",
        inconsistency="project without consumers",
    ),
    _referenced(
        "users", name_column="external_id", reference="user_id", inconsistency="user without consumers"
    ),
    _referenced(
        "consumer_types",
        name_column="name",
        reference="consumer_type_id",
        inconsistency="consumer type without consumers",
    ),
)
"""All rules. They are fixed in this order, because one fix may leave rows that break a later rule."""

# A claim reads the ids of its project, user and consumer type before it inserts rows that refer to them. This
# lock waits for claims that have read ids, and keeps others from reading any, before unused rows are deleted.
_LOCK_NAMES = "LOCK TABLE projects, users, consumer_types IN ACCESS EXCLUSIVE MODE"


def find(connection: Connection) -> list[AuditFinding]:
    """Return a finding for each rule that rows break, in the order of `RULES`."""
    disable_timeouts(connection)
    return [finding for rule in RULES if (finding := _check(connection, rule, fixed=False))]


def fix(connection: Connection) -> list[AuditFinding]:
    """Fix what can be fixed without loss; return a finding for each rule that rows broke.

    Requests that write or that read consumers wait until the transaction ends.
    """
    disable_timeouts(connection)
    connection.execute(text(_LOCK_NAMES))
    lock_out_writers(connection)
    findings = []
    for rule in RULES:
        finding = _check(connection, rule, fixed=rule.fix is not None)
        if finding:
            findings.append(finding)
            if rule.fix:
                connection.execute(text(rule.fix))
    return findings


def _check(connection: Connection, rule: AuditRule, fixed: bool) -> AuditFinding | None:
    """Return the finding of a rule, None if no row breaks it."""
    rows = connection.execute(text(rule.find))
    examples = [InconsistentRow(*map(str, row)) for row in rows.fetchmany(MAX_EXAMPLES)]
    return AuditFinding(rule, rows.rowcount, examples, fixed) if examples else None
