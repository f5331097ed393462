"""Looking for what the database should not hold, and putting right what can be.

Keys, checks and triggers keep the data right; an audit trusts none of them. So it also finds what came
from beyond them: a restore without triggers, an edit by hand, a fault of a disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from placement_svc.db.maintenance import disable_timeouts, lock_out_writers

MOST_FAULTS = 20
"""How many faults of one kind are shown."""


@dataclass(frozen=True)
class Rule:
    """What always holds of sound data.

    `broken` says what is wrong if it does not. `find` gives what is concerned, what is stored of it,
    and what should be; `fix` puts that right, and is None where nobody but the operator knows how.
    """

    broken: str
    find: str
    fix: str | None


@dataclass(frozen=True)
class Fault:
    """One thing that breaks a rule, what is stored of it, and what should be."""

    what: str
    stored: str
    right: str


@dataclass(frozen=True)
class Finding:
    """A rule that `count` things break, with the first `MOST_FAULTS` of them, and whether they are fixed."""

    rule: Rule
    count: int
    faults: Sequence[Fault]
    fixed: bool

    def __str__(self) -> str:
        return f"{self.count:,} x {self.rule.broken}"


_HELD = """
    SELECT provider_id, resource_class_id, sum(used)::bigint AS used
      FROM allocations
     GROUP BY provider_id, resource_class_id
"""

# From the roots down, whatever root_id and path say.
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


def _other_root(table: str, broken: str) -> Rule:
    """Return the rule that rows of `table` have the root of their provider."""
    return Rule(
        broken=broken,
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


def _unused(table: str, name: str, reference: str, broken: str) -> Rule:
    """Return the rule that each row of `table`, which has a `name`, is the `reference` of a consumer."""
    unused = f"NOT EXISTS (SELECT FROM consumers WHERE {reference} = {table}.id)"
    return Rule(
        broken=broken,
        find=f"SELECT {name}, '0 consumers', '1 or more' FROM {table} WHERE {unused} ORDER BY id",
        fix=f"DELETE FROM {table} WHERE {unused}",
    )


RULES = (
    Rule(
        broken="parents that go round in a circle or do not exist",
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
    Rule(
        broken="root or path that is not that of the parents",
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
    _other_root("inventories", "root of an inventory that is not that of its provider"),
    _other_root("provider_aggregates", "root of a member of an aggregate that is not that of the provider"),
    Rule(
        broken="trait ids that are not those of the provider's traits",
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
    Rule(
        broken="usage that is not the sum of the allocations",
        find=f"""
            SELECT provider.uuid || ' ' || class.name, inventory.used, coalesce(held.used, 0)
              FROM inventories AS inventory
              JOIN resource_providers AS provider ON provider.id = inventory.provider_id
              JOIN resource_classes AS class ON class.id = inventory.resource_class_id
              LEFT JOIN ({_HELD}) AS held USING (provider_id, resource_class_id)
             WHERE inventory.used <> coalesce(held.used, 0)
             ORDER BY provider_id, resource_class_id
        """,
        fix=f"""
            UPDATE inventories AS inventory
               SET used = coalesce(held.used, 0)
              FROM inventories AS same
              LEFT JOIN ({_HELD}) AS held USING (provider_id, resource_class_id)
             WHERE (inventory.provider_id, inventory.resource_class_id)
                 = (same.provider_id, same.resource_class_id)
               AND inventory.used <> coalesce(held.used, 0)
        """,
    ),
    Rule(
        broken="allocations over the capacity",
        find=f"""
            SELECT provider.uuid || ' ' || class.name, held.used, inventory.capacity || ' or less'
              FROM inventories AS inventory
              JOIN ({_HELD}) AS held USING (provider_id, resource_class_id)
              JOIN resource_providers AS provider ON provider.id = provider_id
              JOIN resource_classes AS class ON class.id = resource_class_id
             WHERE held.used > inventory.capacity
             ORDER BY provider_id, resource_class_id
        """,
        fix=None,
    ),
    Rule(
        broken="consumer without allocations",
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
    _unused("projects", "external_id", "project_id", "project without consumers"),
    _unused("users", "external_id", "user_id", "user without consumers"),
    _unused("consumer_types", "name", "consumer_type_id", "consumer type without consumers"),
)
"""In the order in which they are fixed: what one leaves behind, a later one clears away."""

# A claim looks up the ids of its project, user and type, and uses them later. So whoever has looked
# must be done before one of them goes, and nobody may look meanwhile.
_LOCK_NAMES = "LOCK TABLE projects, users, consumer_types IN ACCESS EXCLUSIVE MODE"


def find(connection: Connection) -> list[Finding]:
    """Return what is wrong, by rules."""
    disable_timeouts(connection)
    return [finding for rule in RULES if (finding := _check(connection, rule, fixed=False))]


def fix(connection: Connection) -> list[Finding]:
    """Put right what can be put right without loss; return that and what is left, by rules.

    Other requests that write, or tell about consumers, wait until the transaction ends.
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


def _check(connection: Connection, rule: Rule, fixed: bool) -> Finding | None:
    rows = connection.execute(text(rule.find))
    faults = [Fault(*map(str, row)) for row in rows.fetchmany(MOST_FAULTS)]
    return Finding(rule, rows.rowcount, faults, fixed) if faults else None
