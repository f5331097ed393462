"""Find and fix inconsistencies in the database.

Constraints, indexes and triggers keep the data consistent. An audit does not rely on them, so it also finds
inconsistencies that a restore without triggers, a manual edit or a disk fault has caused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from placement_svc.db.audit.rule import FOUND, AuditRule
from placement_svc.db.audit.rules import RULES
from placement_svc.db.maintenance import disable_timeouts, wait_to_lock_out_writers

MAX_EXAMPLES = 20
"""The largest number of inconsistent rows that one finding shows."""

# An index can lack a row, and then a scan of it does not return the row.
_INDEX_SCANS = ("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan")


@dataclass(frozen=True)
class InconsistentRow:
    """A row that breaks a rule, its stored value and the expected one, as text."""

    subject: str
    stored: str
    expected: str


@dataclass(frozen=True)
class AuditFinding:
    """A rule that `count` rows break, the first `MAX_EXAMPLES` of these, and whether they have been fixed.

    `obstacle` is why rows that could have been fixed have not been, if there is a reason.
    """

    rule: AuditRule
    count: int
    examples: Sequence[InconsistentRow]
    fixed: bool = False
    obstacle: str | None = None

    def __str__(self) -> str:
        return f"{self.count:,} x {self.rule.inconsistency}"


def find(connection: Connection) -> list[AuditFinding]:
    """Return a finding for each rule that rows break, in the order of `RULES`."""
    disable_timeouts(connection)
    _use_indexes(connection, False)
    return [finding for rule in RULES if (finding := _find(connection, rule))]


def fix(connection: Connection) -> list[AuditFinding]:
    """Fix what can be fixed without loss; return a finding for each rule that rows broke.

    Requests that write or that read consumers wait until the transaction ends.
    """
    disable_timeouts(connection)
    # A claim reads the ids of its project, user and consumer type before it inserts rows that refer to them.
    # No claim may have read an id that is deleted as unused.
    wait_to_lock_out_writers(connection, and_readers_of_owners=True)
    _use_indexes(connection, False)
    findings: list[AuditFinding] = []
    for rule in RULES:
        # A later statement must not find the rows of an earlier rule.
        connection.execute(text(f"DROP TABLE IF EXISTS pg_temp.{FOUND}"))
        connection.execute(text(f"CREATE TEMPORARY TABLE {FOUND} ON COMMIT DROP AS {rule.find}"))
        finding = _show(connection, rule, FOUND)
        if finding:
            findings.append(_fix(connection, finding, findings))
    return findings


def _use_indexes(connection: Connection, use: bool) -> None:
    """Let the rest of the transaction scan indexes, or not."""
    value = "DEFAULT" if use else "off"
    connection.execute(text("; ".join(f"SET LOCAL {setting} TO {value}" for setting in _INDEX_SCANS)))


def _find(connection: Connection, rule: AuditRule) -> AuditFinding | None:
    """Return the finding of a rule, None if no row breaks it."""
    return _show(connection, rule, f"({rule.find})")


def _show(connection: Connection, rule: AuditRule, source: str) -> AuditFinding | None:
    """Return the finding of a rule whose inconsistent rows are those of `source`, None if there are none."""
    # Only the rows that are shown need the names that they refer to.
    rows = connection.execute(
        text(f"""
            WITH every AS MATERIALIZED (SELECT * FROM {source} AS broken),
                 found AS MATERIALIZED (SELECT * FROM every ORDER BY at LIMIT {MAX_EXAMPLES})
            SELECT (SELECT count(*) FROM every), {rule.subject}, {rule.stored}, {rule.expected}
              FROM found
             ORDER BY at
        """)
    ).all()
    examples = [InconsistentRow(*(str(value) for value in values)) for _, *values in rows]
    return AuditFinding(rule, rows[0][0], examples) if rows else None


def _fix(connection: Connection, finding: AuditFinding, earlier: Sequence[AuditFinding]) -> AuditFinding:
    """Fix the rows in `FOUND` if that is possible; return the finding with the result."""
    rule = finding.rule
    if rule.fix is None:
        return finding
    obstacle = next(
        (
            f"not fixed while there is: {other.rule.inconsistency}"
            for other in earlier
            if other.rule.is_damage or other.rule.inconsistency in rule.blocked_by
        ),
        None,
    )
    if obstacle is None:
        try:
            with connection.begin_nested():
                # `FOUND` has the rows. Foreign keys look up the rows that refer to them one by one.
                _use_indexes(connection, True)
                connection.execute(text(rule.fix))
                _use_indexes(connection, False)
        except IntegrityError as error:
            obstacle = f"not fixed, because a row breaks a constraint: {str(error.orig).splitlines()[0]}"
    return AuditFinding(rule, finding.count, finding.examples, fixed=obstacle is None, obstacle=obstacle)
