"""Check the stored data with the rules of `placement-svc audit`."""

from collections.abc import Sequence

from sqlalchemy import Engine

from placement_svc.db import audit

ALLOWED = {"project without consumers", "user without consumers", "consumer type without consumers"}
"""Rows that the deletion of a consumer may leave: its project, user and type are not deleted with it."""


def audit_faults(engine: Engine) -> dict[str, Sequence[audit.InconsistentRow]]:
    """Return examples of the inconsistent rows by violated rule; empty if there are none."""
    with engine.connect() as connection:
        examples = {finding.rule.inconsistency: finding.examples for finding in audit.find(connection)}
    return {rule: rows for rule, rows in examples.items() if rule not in ALLOWED}
