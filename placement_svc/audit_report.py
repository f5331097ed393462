"""The result of `placement-svc audit`, as text for people or as JSON for programs."""

import json
from collections.abc import Sequence
from typing import Any

from placement_svc.db.audit.audit import AuditFinding
from placement_svc.domain.printable import printable


def is_wrong(finding: AuditFinding) -> bool:
    """Return whether a finding is an inconsistency that is still there, and not harmless."""
    return not finding.fixed and not finding.rule.is_notice


def as_text(findings: Sequence[AuditFinding], *, fix: bool) -> str:
    """Return the findings with their inconsistent rows, one per line, and a summary of them."""
    lines = [line for finding in findings for line in _finding_lines(finding)]
    for title, listed in (
        ("Fixed", [finding for finding in findings if finding.fixed]),
        ("Notice", [finding for finding in findings if finding.rule.is_notice and not finding.fixed]),
        ("Left" if fix else "Wrong", [finding for finding in findings if is_wrong(finding)]),
    ):
        if listed:
            lines.append(f"{title}: {', '.join(map(str, listed))}")
    if not any(finding.fixed or is_wrong(finding) for finding in findings):
        lines.append("Nothing is wrong")
    return "\n".join(lines)


def _finding_lines(finding: AuditFinding) -> list[str]:
    rows = [
        f"    {printable(row.subject)}: is {printable(row.stored)}, should be {printable(row.expected)}"
        for row in finding.examples
    ]
    more = finding.count - len(finding.examples)
    notes = [f"    and {more:,} more"] if more else []
    if finding.obstacle:
        notes.append(f"    {printable(finding.obstacle)}")
    return [f"{finding}:", *rows, *notes]


def as_json(findings: Sequence[AuditFinding]) -> str:
    """Return the findings as one JSON object; `consistent` says whether nothing is wrong any more."""
    document: dict[str, Any] = {
        "consistent": not any(is_wrong(finding) for finding in findings),
        "findings": [
            {
                "inconsistency": finding.rule.inconsistency,
                "severity": "notice" if finding.rule.is_notice else "error",
                "count": finding.count,
                "fixed": finding.fixed,
                "obstacle": finding.obstacle,
                "examples": [vars(row) for row in finding.examples],
            }
            for finding in findings
        ],
    }
    return json.dumps(document, indent=2)
