"""Check the stored data with the rules of `placement-svc audit`."""

from collections.abc import Sequence

from sqlalchemy import Engine

from placement_svc.db import audit

ALLOWED = {"project without consumers", "user without consumers", "consumer type without consumers"}
"""Rows that the deletion of a consumer may leave: its project, user and type are not deleted with it."""


def audit_faults(engine: Engine) -> dict[str, Sequence[audit.Fault]]:
    """Return the faults in the stored data by violated rule; empty if there are none."""
    with engine.connect() as connection:
        found = {finding.rule.broken: finding.faults for finding in audit.find(connection)}
    return {broken: faults for broken, faults in found.items() if broken not in ALLOWED}
