"""Check the stored data with the rules of `placement-svc audit`."""

from collections.abc import Sequence

from sqlalchemy import Engine

from placement_svc.db import audit


def audit_faults(engine: Engine) -> dict[str, Sequence[audit.InconsistentRow]]:
    """Return examples of the inconsistent rows by violated rule; empty if there are none.

    Notices are left out: the deletion of a consumer leaves its project, user and type.
    """
    with engine.connect() as connection:
        return {
            finding.rule.inconsistency: finding.examples
            for finding in audit.find(connection)
            if not finding.rule.is_notice
        }
