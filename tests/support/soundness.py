"""Check the stored data with the rules of `placement-svc audit`."""

from collections.abc import Sequence

from sqlalchemy import Engine

from placement_svc.db.audit import audit
from placement_svc.db.audit.rules import OVERCOMMIT


def audit_faults(engine: Engine) -> dict[str, Sequence[audit.InconsistentRow]]:
    """Return examples of the inconsistent rows by violated rule; empty if there are none.

    Notices are left out: the deletion of a consumer leaves its project, user and type. Allocations that
    exceed the capacity are a fault here, because a claim must not cause them.
    """
    with engine.connect() as connection:
        return {
            finding.rule.inconsistency: finding.examples
            for finding in audit.find(connection)
            if not finding.rule.is_notice or finding.rule.inconsistency == OVERCOMMIT
        }
