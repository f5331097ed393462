"""What was measured, as a table, as JSON and as a plot."""

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench.claims import ClaimsResult, Pace
from bench.measuring import Answer, Result

FILE_WIDTH = 200


def console() -> Console:
    """Return where the report is printed; in a file lines are as long as they need to be."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)


def _box() -> box.Box:
    """Return the form of tables: in a file that of Markdown, so that they can go into the documents."""
    return box.HEAVY_HEAD if sys.stdout.isatty() else box.MARKDOWN


def table(results: Iterable[Result]) -> Table:
    """Return a table of requests, with their median times in ms."""
    drawn = Table(box=_box())
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
    reference = f", reference {_time(result.reference, ' ms')}" if result.reference else ""
    return (
        f"{result.scenario}, {result.request}, limit {result.limit}, {result.hosts:,} hosts:"
        f" {_time(result.ours, ' ms')}{reference}"
    )


def floor_lines(results: Iterable[Result]) -> Iterator[str]:
    """Yield in a line how far from its floor each answer is whose floor was measured."""
    for result in results:
        if result.floor and result.ours.milliseconds:
            floor, inside, over_http = result.floor.floor, result.floor.inside, result.ours.milliseconds
            yield (
                f"The floor of {result.scenario}, limit {result.limit}, is {floor:.1f} ms."
                f" Ours takes {inside / floor:.1f} times as long without HTTP ({inside:.1f} ms),"
                f" {over_http / floor:.1f} times with it."
            )


def claims_table(results: Iterable[ClaimsResult]) -> Table:
    """Return a table of claims, with their times in ms."""
    drawn = Table(box=_box())
    drawn.add_column("hosts")
    for heading in ("clients", "ours, a second", "median", "99th", "refused"):
        drawn.add_column(heading, justify="right")
    for heading in ("reference, a second", "median", "99th", "refused", "ratio"):
        drawn.add_column(heading, justify="right")
    for result in results:
        drawn.add_row(
            f"{result.hosts:,}" if result.where == "spread" else f"one of {result.hosts:,}",
            str(result.clients),
            *_pace(result.ours),
            *_pace(result.reference),
            "" if result.ratio is None else f"{result.ratio:,.1f}x",
        )
    return drawn


def claims_line(result: ClaimsResult) -> str:
    """Return a result in one line, to show while more are measured."""
    reference = f", reference {result.reference.a_second:,.0f}" if result.reference else ""
    return (
        f"claims, {result.where}, {result.clients} clients: {result.ours.a_second:,.0f} a second{reference}"
    )


def _pace(pace: Pace | None) -> tuple[str, str, str, str]:
    if pace is None:
        return "", "", "", ""
    return f"{pace.a_second:,.0f}", f"{pace.median:,.1f}", f"{pace.last:,.1f}", str(pace.refused)


def _time(answer: Answer | None, unit: str = "") -> str:
    if answer is None:
        return ""
    if answer.milliseconds is None:
        return str(answer.problem)[:60]
    return f"{answer.milliseconds:,.1f}{unit}"


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


def write_json(path: Path, results: Iterable[Result | ClaimsResult]) -> None:
    """Write everything that was measured, and on which machine."""
    told = {"machine": machine(), "results": [asdict(result) | {"ratio": result.ratio} for result in results]}
    path.write_text(json.dumps(told, indent=2) + "\n")
