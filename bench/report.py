"""What was measured, as a table, as JSON and as a plot."""

import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.inside import Floor
from bench.measuring import Answer, Result

FILE_WIDTH = 140


def console() -> Console:
    """Return where the report is printed; in a file lines are as long as they need to be."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(width=FILE_WIDTH, highlight=False)


def table(results: Iterable[Result]) -> Table:
    """Return a table of requests, with their median times in ms."""
    drawn = Table(title="Requests for candidates: medians in ms")
    for heading in ("scenario", "request"):
        drawn.add_column(heading)
    for heading in ("limit", "hosts", "ours", "reference", "ratio", "statements", "kB", "candidates"):
        drawn.add_column(heading, justify="right")
    for result in results:
        drawn.add_row(
            result.scenario,
            result.request,
            str(result.limit),
            f"{result.hosts:,}",
            _time(result.ours),
            _time(result.reference),
            "" if result.ratio is None else f"{result.ratio:,.0f}x",
            str(result.statements),
            "" if result.ours.size is None else f"{result.ours.size / 1000:,.1f}",
            _candidates(result),
        )
    return drawn


def line(result: Result) -> str:
    """Return a result in one line, to show while more are measured."""
    reference = f", reference {_time(result.reference)} ms" if result.reference else ""
    return (
        f"{result.scenario}, {result.request}, limit {result.limit}, {result.hosts:,} hosts:"
        f" {_time(result.ours)} ms{reference}"
    )


def floor_line(floor: Floor, over_http: float | None) -> str:
    """Return how far from the floor an answer is, in one line; `over_http` is its time in ms."""
    text = (
        f"The floor of the nested scenario with limit 1000 is {floor.floor:.1f} ms. Ours takes"
        f" {floor.inside:.1f} ms inside, {floor.inside / floor.floor:.1f} times as long"
    )
    if over_http is not None:
        text += f", and {over_http:.1f} ms over HTTP, {over_http / floor.floor:.1f} times"
    return text + "."


def _time(answer: Answer | None) -> str:
    if answer is None:
        return ""
    if answer.milliseconds is None:
        return str(answer.problem)[:60]
    return f"{answer.milliseconds:,.1f}"


def _candidates(result: Result) -> str:
    ours, reference = result.ours.candidates, result.reference and result.reference.candidates
    return str(ours) if reference in (None, ours) else f"{ours} / {reference}"


def machine() -> dict[str, Any]:
    """Return what the times depend on: when and where they were measured."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (text.partition(":")[2].strip() for text in lines if text.startswith("model name"))
    return next(names, platform.processor())


def write_json(path: Path, results: Sequence[Result], **others: Any) -> None:
    """Write everything that was measured."""
    told = {
        "machine": machine(),
        "results": [asdict(result) | {"ratio": result.ratio} for result in results],
        **others,
    }
    path.write_text(json.dumps(told, indent=2) + "\n")
