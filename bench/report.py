"""Report the results as tables, as lines and as JSON."""

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

from bench.claims import ClaimsResult, ClaimStats
from bench.measuring import Measurement, Result

FILE_WIDTH = 200
"""Columns of a report that is not printed to a terminal."""


def console() -> Console:
    """Return the console of the report; `FILE_WIDTH` is enough for tables without line breaks."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)


def _box() -> box.Box:
    """Return the style of tables: Markdown in a file, so that documentation can include them."""
    return box.HEAVY_HEAD if sys.stdout.isatty() else box.MARKDOWN


def table(results: Iterable[Result]) -> Table:
    """Return a table of requests with their median times in ms."""
    rendered = Table(box=_box())
    for heading in ("scenario", "request"):
        rendered.add_column(heading)
    for heading in ("limit", "hosts", "ours", "reference", "ratio", "statements", "kB", "candidates"):
        rendered.add_column(heading, justify="right")
    for result in results:
        rendered.add_row(
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
    return rendered


def line(result: Result) -> str:
    """Return a result as one line, to print as soon as it is measured."""
    reference = f", reference {_time(result.reference, ' ms')}" if result.reference else ""
    return (
        f"{result.scenario}, {result.request}, limit {result.limit}, {result.hosts:,} hosts:"
        f" {_time(result.ours, ' ms')}{reference}"
    )


def floor_lines(results: Iterable[Result]) -> Iterator[str]:
    """Yield a line for each result with a floor: the time of this service relative to the lower bound."""
    for result in results:
        if result.floor and result.ours.milliseconds:
            floor, in_process = result.floor.lower_bound, result.floor.in_process
            over_http = result.ours.milliseconds
            yield (
                f"The floor of {result.scenario}, limit {result.limit}, is {floor:.1f} ms."
                f" Ours takes {in_process / floor:.1f} times as long without HTTP ({in_process:.1f} ms)"
                f" and {over_http / floor:.1f} times as long with HTTP."
            )


def claims_table(results: Iterable[ClaimsResult]) -> Table:
    """Return a table of claims with their rates, and times in ms."""
    rendered = Table(box=_box())
    rendered.add_column("hosts")
    for heading in ("clients", "ours per second", "median", "p99", "refused"):
        rendered.add_column(heading, justify="right")
    for heading in ("reference per second", "median", "p99", "refused", "ratio"):
        rendered.add_column(heading, justify="right")
    for result in results:
        rendered.add_row(
            f"{result.hosts:,}" if result.distribution == "spread" else f"one of {result.hosts:,}",
            str(result.clients),
            *_claim_cells(result.ours),
            *_claim_cells(result.reference),
            "" if result.ratio is None else f"{result.ratio:,.1f}x",
        )
    return rendered


def claims_line(result: ClaimsResult) -> str:
    """Return a result as one line, to print as soon as it is measured."""
    reference = f", reference {result.reference.per_second:,.0f}" if result.reference else ""
    return (
        f"claims, {result.distribution}, {result.clients} clients:"
        f" {result.ours.per_second:,.0f} per second{reference}"
    )


def _claim_cells(stats: ClaimStats | None) -> tuple[str, str, str, str]:
    if stats is None:
        return "", "", "", ""
    return f"{stats.per_second:,.0f}", f"{stats.median:,.1f}", f"{stats.p99:,.1f}", str(stats.refused)


def _time(measurement: Measurement | None, unit: str = "") -> str:
    if measurement is None:
        return ""
    if measurement.milliseconds is None:
        return str(measurement.failure)[:60]
    return f"{measurement.milliseconds:,.1f}{unit}"


def _candidates(result: Result) -> str:
    ours, reference = result.ours.candidates, result.reference and result.reference.candidates
    return str(ours) if reference in (None, ours) else f"{ours} / {reference}"


def machine() -> dict[str, Any]:
    """Return the date and a description of the machine."""
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
    """Write all results and the description of the machine."""
    document = {
        "machine": machine(),
        "results": [asdict(result) | {"ratio": result.ratio} for result in results],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
