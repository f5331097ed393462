"""The form of an audit rule, and the rules that are alike for several tables or columns."""

from dataclasses import dataclass

from sqlalchemy import Index, PrimaryKeyConstraint, Table, UniqueConstraint

from placement_svc.db.audit import labels
from placement_svc.db.tables import metadata

FOUND = "audit_found"
"""The temporary table that holds the result of `AuditRule.find` for `AuditRule.fix`."""


@dataclass(frozen=True, kw_only=True)
class AuditRule:
    """A rule that consistent data follows.

    `inconsistency` describes a row that breaks the rule. The query `find` returns each such row; its column
    `at` is the ctid of the row. The expressions `subject`, `stored` and `expected` show a row of that result.
    The statement `fix` corrects the rows of `FOUND`; it is None if only the operator can decide what is
    correct. The rule is not fixed while rows break one of the rules `blocked_by`.

    A notice is about rows that Placement permits. A damage means that the storage itself or an index is
    corrupt, so nothing at all is written.
    """

    inconsistency: str
    find: str
    subject: str
    stored: str
    expected: str
    fix: str | None = None
    blocked_by: tuple[str, ...] = ()
    is_notice: bool = False
    is_damage: bool = False


def _tables() -> list[Table]:
    return list(metadata.sorted_tables)


def _keys(table: Table) -> list[list[str]]:
    """Return the columns of each unique key of a table."""
    keys = [
        constraint
        for constraint in [*table.constraints, *table.indexes]
        if isinstance(constraint, PrimaryKeyConstraint | UniqueConstraint)
        or (isinstance(constraint, Index) and constraint.unique)
    ]
    return sorted([column.name for column in key.columns] for key in keys)


def _duplicates(table: Table, key: list[str]) -> str:
    """Return the query for the values of a unique key that occur more than once in a table."""
    grouped = ", ".join(f"entry.{column}" for column in key)
    return f"""
        SELECT min(entry.ctid) AS at, '{table.name} ({", ".join(key)})' AS place,
               {labels.duplicate(table, key)} AS key, count(*) AS copies
          FROM {table.name} AS entry
         WHERE num_nulls({grouped}) = 0
         GROUP BY {grouped}
        HAVING count(*) > 1
    """


def _missing_values(table: Table) -> str:
    """Return the query for the rows of a table with a null that the schema forbids."""
    required = [column.name for column in table.columns if not column.nullable]
    # PostgreSQL 17 or newer evaluates `column IS NULL` as false without reading a column that is NOT NULL.
    empty = ", ".join(f"CASE WHEN num_nulls(entry.{name}) = 1 THEN '{name}' END" for name in required)
    return f"""
        SELECT entry.ctid AS at, '{table.name}' AS place, {labels.label(table.name, "entry")} AS label,
               concat_ws(', ', {empty}) AS columns
          FROM {table.name} AS entry
         WHERE num_nulls({", ".join(f"entry.{name}" for name in required)}) > 0
    """


def orphan(table: str, column: str, target: str, inconsistency: str) -> AuditRule:
    """Return the rule that the row of `target` to which `column` of `table` refers exists."""
    return AuditRule(
        inconsistency=inconsistency,
        find=f"""
            SELECT entry.ctid AS at, entry.*
              FROM {table} AS entry
             WHERE entry.{column} IS NOT NULL
               AND NOT EXISTS (SELECT FROM {target} WHERE {target}.id = entry.{column})
        """,
        subject=labels.label(table, "found"),
        stored=f"'{labels.noun(target)} ' || found.{column}",
        expected=f"'an existing {labels.noun(target)}'",
    )


_ROOT_OF_PROVIDER = """
    WITH RECURSIVE ancestor AS (
        SELECT provider.id, provider.parent_id
         UNION
        SELECT parent.id, parent.parent_id
          FROM ancestor
          JOIN resource_providers AS parent ON parent.id = ancestor.parent_id
    )
    SELECT id FROM ancestor WHERE parent_id IS NULL
"""
"""The root of `provider` by the parents; null for a provider in a cycle, or below one."""


def same_root(table: str, inconsistency: str) -> AuditRule:
    """Return the rule that each row of `table` has the root that its provider has by the parents."""
    return AuditRule(
        inconsistency=inconsistency,
        # If the root of the provider itself is wrong, its rows may be right.
        find=f"""
            SELECT *
              FROM (SELECT entry.ctid AS at, entry.*, ({_ROOT_OF_PROVIDER}) AS expected_id
                      FROM {table} AS entry
                      JOIN resource_providers AS provider ON provider.id = entry.provider_id
                     WHERE entry.root_id <> provider.root_id) AS differing
             WHERE differing.root_id <> differing.expected_id
        """,
        subject=labels.label(table, "found"),
        stored=labels.name("resource_providers", "found.root_id"),
        expected=labels.name("resource_providers", "found.expected_id"),
        fix=f"UPDATE {table} AS entry SET root_id = found.expected_id FROM {FOUND} AS found"
        " WHERE entry.ctid = found.at",
    )


def quoted(value: str) -> str:
    """Return the SQL literal of a text."""
    return "'" + value.replace("'", "''") + "'"


def allowed(table: str, condition: str, column: str, inconsistency: str) -> AuditRule:
    """Return the rule that each row of `table` meets `condition`; `column` of it is shown."""
    return AuditRule(
        inconsistency=inconsistency,
        find=f"SELECT entry.ctid AS at, entry.* FROM {table} AS entry WHERE NOT ({condition})",
        subject=labels.label(table, "found"),
        stored=column,
        expected=quoted(condition),
    )


def referenced(table: str, reference: str, inconsistency: str, blocked_by: tuple[str, ...]) -> AuditRule:
    """Return the rule that the column `reference` of a consumer refers to each row of `table`."""
    return AuditRule(
        inconsistency=inconsistency,
        find=f"""
            SELECT entry.ctid AS at, entry.*
              FROM {table} AS entry
             WHERE NOT EXISTS (SELECT FROM consumers WHERE consumers.{reference} = entry.id)
        """,
        subject=labels.label(table, "found"),
        stored="'0 consumers'",
        expected="'1 or more'",
        fix=f"DELETE FROM {table} AS entry USING {FOUND} AS found WHERE entry.ctid = found.at",
        # A row that seems unused may be that of a consumer which has lost it, or is lost itself.
        blocked_by=blocked_by,
        is_notice=True,
    )


DAMAGE = (
    AuditRule(
        inconsistency="unique key that occurs more than once",
        find=" UNION ALL ".join(_duplicates(table, key) for table in _tables() for key in _keys(table)),
        subject="found.place || ' ' || found.key",
        stored="found.copies || ' rows'",
        expected="'1 row'",
        is_damage=True,
    ),
    AuditRule(
        inconsistency="value that is missing",
        find=" UNION ALL ".join(_missing_values(table) for table in _tables()),
        subject="concat_ws(' ', found.place, found.label)",
        stored="'no ' || found.columns",
        expected="'a value'",
        is_damage=True,
    ),
)
"""The rules about corrupt storage or a corrupt index, for all tables."""
