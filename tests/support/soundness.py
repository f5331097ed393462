"""Whether what is stored is sound, as `placement-svc audit` sees it."""

from collections.abc import Sequence

from sqlalchemy import Engine

from placement_svc.db import audit

LEFT_BEHIND = {"project without consumers", "user without consumers", "consumer type without consumers"}
"""What the last consumer may leave behind: names are not deleted with it."""


def unsound(engine: Engine) -> dict[str, Sequence[audit.Fault]]:
    """Return what is wrong with the data, by the rule that is broken; nothing if it is sound."""
    with engine.connect() as connection:
        found = {finding.rule.broken: finding.faults for finding in audit.find(connection)}
    return {broken: shown for broken, shown in found.items() if broken not in LEFT_BEHIND}
