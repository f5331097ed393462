"""Report the results as tables, as lines and as JSON."""

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table

from bench.claims import ClaimsResult, ClaimStats
from bench.fixed import FixedResult
from bench.measuring import Measurement, Result
from bench.reads import ReadResult
from bench.schedule import BatchResult, ScheduleResult
from bench.storm import StormResult

FILE_WIDTH = 200
"""Columns of a report that is not printed to a terminal."""


def console() -> Console:
    """Return the console of the report; `FILE_WIDTH` is enough for tables without line breaks."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)


def _box() -> box.Box:
    """Return the style of tables: Markdown in a file, so that documentation can include them."""
    return box.HEAVY_HEAD if sys.stdout.isatty() else box.MARKDOWN


def _table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """Return a table without rows, whose columns have these headings; numbers are aligned at the right."""
    rendered = Table(box=_box())
    for heading in texts:
        rendered.add_column(heading)
    for heading in numbers:
        rendered.add_column(heading, justify="right")
    return rendered


def requests_report(results: Sequence[Result]) -> Group:
    """Return a table of all requests, one of those that are compared with another one, and the floors."""
    has_comparisons = any(result.compared_with for result in results)
    comparisons = [_comparison_table(results)] if has_comparisons else []
    return Group(_requests_table(results), *comparisons, *_floor_lines(results))


def _requests_table(results: Iterable[Result]) -> Table:
    """Return a table of requests with their median times in ms."""
    rendered = _table(
        ("scenario", "request"),
        ("limit", "hosts", "ours", "reference", "ratio", "statements", "kB", "candidates"),
    )
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


def _comparison_table(results: Sequence[Result]) -> Table:
    """Return a table of the requests that are compared with another one, the slowest in comparison first."""
    times = {
        (result.scenario, result.request, result.limit, result.hosts): result.ours.milliseconds
        for result in results
    }
    compared = []
    for result in results:
        other = result.compared_with and times.get(
            (result.scenario, result.compared_with, result.limit, result.hosts)
        )
        if other and result.ours.milliseconds:
            compared.append((result.ours.milliseconds / other, result))
    rendered = _table(
        ("scenario", "request"), ("limit", "hosts", "ours", "over the plain request", "candidates")
    )
    for ratio, result in sorted(compared, key=lambda pair: -pair[0]):
        rendered.add_row(
            result.scenario,
            result.request,
            str(result.limit),
            f"{result.hosts:,}",
            _time(result.ours),
            f"{ratio:.2f}x",
            _candidates(result),
        )
    return rendered


def request_line(result: Result) -> str:
    """Return a result as one line of text."""
    reference = f", reference {_time(result.reference, ' ms')}" if result.reference else ""
    return (
        f"{result.scenario}, {result.request}, limit {result.limit}, {result.hosts:,} hosts:"
        f" {_time(result.ours, ' ms')}{reference}"
    )


def _floor_lines(results: Iterable[Result]) -> Iterator[str]:
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
    times = ("median", "p99", "refused")
    rendered = _table(
        ("requests", "hosts"),
        ("clients", "ours per second", *times, "reference per second", *times, "ratio"),
    )
    for result in results:
        rendered.add_row(
            _claim_requests(result),
            f"{result.hosts:,}" if result.distribution == "spread" else f"one of {result.hosts:,}",
            str(result.clients),
            *_claim_cells(result.ours),
            *_claim_cells(result.reference),
            "" if result.ratio is None else f"{result.ratio:,.1f}x",
        )
    return rendered


def claims_line(result: ClaimsResult) -> str:
    """Return a result as one line of text."""
    reference = f", reference {result.reference.per_second:,.0f}" if result.reference else ""
    return (
        f"claims, {_claim_requests(result)}, {result.distribution}, {result.clients} clients:"
        f" {result.ours.per_second:,.0f} per second{reference}"
    )


def _claim_requests(result: ClaimsResult) -> str:
    return "PUT and DELETE" if result.with_release else "PUT"


def schedule_table(results: Iterable[ScheduleResult]) -> Table:
    """Return a table of the placements per second of schedulers, by cloud and way."""
    rendered = _table(
        ("cloud", "way"), ("schedulers", "placements per second", "requests per placement", "failed")
    )
    for result in results:
        rendered.add_row(
            result.cloud,
            f"{result.service}, {result.way}",
            str(result.schedulers),
            f"{result.per_second:,.1f}",
            f"{result.requests:.2f}",
            str(result.failed),
        )
    return rendered


def schedule_line(result: ScheduleResult) -> str:
    """Return a result as one line of text."""
    return (
        f"schedule, {result.cloud}, {result.service}, {result.way}, {result.schedulers} schedulers:"
        f" {result.per_second:,.1f} placements per second"
    )


def batches_table(results: Iterable[BatchResult]) -> Table:
    """Return a table of requests that place servers, with their times in ms, also relative to the first."""
    rendered = _table((), ("servers in one request", "time", "ratio"))
    for result in results:
        rendered.add_row(str(result.servers), f"{result.milliseconds:,.1f}", f"{result.ratio:,.1f}x")
    return rendered


def batch_line(result: BatchResult) -> str:
    """Return a result as one line of text."""
    return f"batches, {result.servers} servers in one request: {result.milliseconds:,.1f} ms"


def storm_table(results: Iterable[StormResult]) -> Table:
    """Return a table of searches with their times in ms, before, during and after a storm of claims."""
    rendered = _table(("service", "phase"), ("hosts", "limit", "median", "ratio", "99th", "claims a second"))
    for result in results:
        claims = f"{result.claims_per_second:,.0f}" if result.claims_per_second else ""
        rendered.add_row(
            *(result.service, result.phase, f"{result.hosts:,}", str(result.limit)),
            *(f"{result.median:,.1f}", f"{result.ratio:,.1f}x", f"{result.p99:,.1f}", claims),
        )
    return rendered


def storm_line(result: StormResult) -> str:
    """Return a result as one line of text."""
    return (
        f"storm, {result.service}, limit={result.limit}, {result.phase}:"
        f" {result.median:,.1f} ms, 99th percentile {result.p99:,.1f} ms"
    )


def fixed_table(results: Iterable[FixedResult]) -> Table:
    """Return a table of requests with their times and processor times in ms, and over those of GET /."""
    rendered = _table(("service", "cloud", "request"), ("hosts", "time", "ratio", "processor time", "ratio"))
    for result in results:
        rendered.add_row(
            *(result.service, result.cloud, result.request, f"{result.hosts:,}"),
            *(f"{result.milliseconds:,.2f}", f"{result.time_ratio:,.1f}x"),
            *(f"{result.cpu_milliseconds:,.2f}", f"{result.cpu_ratio:,.1f}x"),
        )
    return rendered


def fixed_line(result: FixedResult) -> str:
    """Return a result as one line of text."""
    return (
        f"fixed, {result.service}, {result.cloud}, {result.request}:"
        f" {result.milliseconds:,.2f} ms, processor time {result.cpu_milliseconds:,.2f} ms"
    )


def reads_table(results: Iterable[ReadResult]) -> Table:
    """Return a table of reads with their times in ms, relative to the first read of the scenario."""
    rendered = _table(("scenario", "read"), ("hosts", "time", "ratio"))
    for result in results:
        rendered.add_row(
            result.scenario, result.read, f"{result.hosts:,}", _read_time(result), f"{result.ratio:,.1f}x"
        )
    return rendered


def read_line(result: ReadResult) -> str:
    """Return a result as one line of text."""
    return f"{result.scenario}, {result.read}, {result.hosts:,} hosts: {_read_time(result)} ms"


def _read_time(result: ReadResult) -> str:
    return f"{'about ' if result.is_extrapolated else ''}{result.milliseconds:,.1f}"


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


def write_json(path: Path, results: Iterable[Any]) -> None:
    """Write all results, which are dataclasses, and the description of the machine."""
    document = {
        "machine": machine(),
        "results": [asdict(result) | {"ratio": getattr(result, "ratio", None)} for result in results],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
