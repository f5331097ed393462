"""Export to a file; import from a file or from another Placement service.

A file has one record per line, and the number of records of each type in its last line.
`placement_svc/schemas/records.py` parses and writes the lines.
"""

import gzip
import io
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import click
from rich.progress import Progress
from sqlalchemy import Connection

from placement_svc.client.service_client import ClientError
from placement_svc.db import exports, imports
from placement_svc.db.connections.engine import Database
from placement_svc.db.import_statements import FILLED_TABLES
from placement_svc.domain.errors import Invalid
from placement_svc.domain.records import (
    MAX_PROBLEMS,
    ImportProblem,
    ImportRefused,
    ImportResult,
    Record,
    RecordCounts,
)
from placement_svc.import_export.files import (
    STREAM,
    TransferError,
    display_name,
    open_output,
    progress_bars,
)
from placement_svc.import_export.placement_client import PlacementClient
from placement_svc.schemas import records

MAX_LINE_BYTES = 64 * 1024 * 1024
"""The longest line that an export writes and an import reads: a placement group with 1.7 million members."""

MAX_QUOTED = 120
"""The largest number of bytes of an invalid line that an error message quotes."""

GZIP_MAGIC = b"\x1f\x8b"
"""The first bytes of compressed data."""


def export_file(database: Database, path: str, *, force: bool) -> int:
    """Write all data, from one snapshot, to a file; return the number of records.

    The path ``-`` is standard output. A file whose name ends in ``.gz`` is compressed. The file appears under
    its name only when it is complete. An existing file is replaced only with `force`. Raises `TransferError`.
    """
    with progress_bars() as progress, _open_output(path, force) as file:
        return database.read(_write_records, file, progress)


def _write_records(connection: Connection, file: BinaryIO | gzip.GzipFile, progress: Progress) -> int:
    numbers: Counter[type[Record]] = Counter()
    total = exports.count(connection)
    for record in progress.track(exports.records(connection), total=total, description="Exporting"):
        line = records.to_line(record)
        if len(line) > MAX_LINE_BYTES:
            raise TransferError(
                f"The data cannot be exported: the record {line[:MAX_QUOTED].decode(errors='replace')}... has"
                f" {len(line):,} bytes, and an import reads at most {MAX_LINE_BYTES:,} per line. Use"
                " `placement-svc db dump`"
            )
        file.write(line)
        numbers[type(record)] += 1
    file.write(records.to_line(RecordCounts.of(numbers)))
    return numbers.total()


@contextmanager
def _open_output(path: str, force: bool) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Yield a file to write to, compressed if its name ends in ``.gz``; see `open_output`."""
    with open_output(path, force=force) as file:
        if path.endswith(".gz"):
            with gzip.GzipFile(fileobj=file, mode="wb") as compressed:
                yield compressed
        else:
            yield file


def import_file(
    database: Database, path: str, *, allow_overcommitted: bool, partial: bool, dry_run: bool
) -> ImportResult:
    """Import all records of a file, or none; with `dry_run`, only check them.

    The path ``-`` is standard input. Compressed data is recognized by its first bytes. With `partial`, the
    file need not end with the number of its records. Raises `TransferError` and the errors of `imports.load`.
    """
    with progress_bars() as progress, _open_input(path, progress) as file:
        source = display_name(path, "standard input")
        lines = _read_lines(file, source)
        parsed = _parse_lines(lines, source, partial=partial, progress=progress)
        return imports.load(database, parsed, allow_overcommitted=allow_overcommitted, dry_run=dry_run)


@contextmanager
def _open_input(path: str, progress: Progress) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Yield a file whose lines can be read; the progress bar shows the position in the file."""
    try:
        with click.open_file(path, "rb") as file:
            size = 0 if path == STREAM else Path(path).stat().st_size
            tracked = progress.wrap_file(cast(BinaryIO, file), size, description="Reading")
            buffered = io.BufferedReader(cast(io.RawIOBase, tracked))
            compressed = path.endswith(".gz") or buffered.peek(2).startswith(GZIP_MAGIC)
            yield gzip.GzipFile(fileobj=buffered) if compressed else buffered
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise TransferError(f"{display_name(path, 'standard input')} cannot be read: {reason}") from error


def _read_lines(file: BinaryIO | gzip.GzipFile, source: str) -> Iterator[bytes]:
    """Yield the lines of a file; raise `TransferError` for a line of more than `MAX_LINE_BYTES`."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES:
            raise TransferError(
                f"{source} cannot be imported: line {number} has more than {MAX_LINE_BYTES:,} bytes, which no"
                " line of an export has. Nothing is imported"
            )
        yield line


def import_service(database: Database, client: PlacementClient, *, dry_run: bool) -> ImportResult:
    """Import all data of a running Placement service, or none; with `dry_run`, only check it.

    Allocations are imported even if they exceed the capacity of an inventory, because the other service has
    granted them. Raises `ClientError` if the service cannot be read or its data cannot be imported.
    """
    with progress_bars() as progress:
        lines = client.export_lines(progress)
        parsed = _parse_lines(lines, client.url, partial=False, progress=progress)
        try:
            return imports.load(database, parsed, allow_overcommitted=True, dry_run=dry_run)
        except ImportRefused as refused:
            messages = "\n".join(problem.message for problem in refused.problems)
            raise ClientError(f"the data of {client.url} cannot be imported:\n{messages}") from refused


def vacuum(database: Database) -> None:
    """Vacuum the tables that an import has filled; raises `Unavailable`.

    Until then, or until autovacuum has done it, searches take longer.
    """
    with progress_bars() as progress:
        for table in progress.track(FILLED_TABLES, description="Vacuuming"):
            imports.vacuum(database, table)


def _parse_lines(
    lines: Iterable[bytes], source: str, *, partial: bool, progress: Progress
) -> Iterator[tuple[int, Record]]:
    """Yield the number and the record of each line; blank lines are skipped.

    After the first invalid line, the remaining lines are only checked. After the last line, or after
    `MAX_PROBLEMS` invalid lines, raises `ImportRefused` if lines are invalid. Otherwise the last line must
    have the number of records of each type, unless `partial`: raises `TransferError` or `ImportRefused`.
    """
    problems: list[ImportProblem] = []
    numbers: Counter[type[Record]] = Counter()
    counts: tuple[int, RecordCounts] | None = None
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        if counts is not None and not partial:
            problems.append(ImportProblem((number,), _AFTER_COUNTS))
            break
        try:
            record = records.parse(line)
        except Invalid as error:
            quoted = line[:MAX_QUOTED].decode(errors="replace").rstrip()
            problems.append(ImportProblem((number,), f"{error} (in {quoted}...)"))
            if len(problems) == MAX_PROBLEMS:
                break
            continue
        if isinstance(record, RecordCounts):
            counts = number, record
            continue
        numbers[type(record)] += 1
        if not problems:
            yield number, record
    if not problems and not partial:
        problems = _compare_counts(counts, RecordCounts.of(numbers), source)
    if problems:
        raise ImportRefused(problems)
    progress.add_task("Storing", total=None)


_AFTER_COUNTS = (
    "the record of counts must be the last line: import several files one after the other,"
    " or use --partial to ignore the counts"
)


def _compare_counts(
    stated: tuple[int, RecordCounts] | None, found: RecordCounts, source: str
) -> list[ImportProblem]:
    """Return the differences between the last line of a file and its records.

    Raises `TransferError` if the file has no record of counts.
    """
    if stated is None:
        raise TransferError(
            f"{source} does not end with a record of counts: it is incomplete, or an older version of"
            " placement-svc has exported it. Nothing is imported. Use --partial to import it anyway"
        )
    number, counts = stated
    return [
        ImportProblem(
            (number,),
            f"the record of counts has {count:,} for {name}, but the file has {found.by_type[name]:,}:"
            " the file is incomplete or was changed; use --partial to import it anyway",
        )
        for name, count in counts.by_type.items()
        if count != found.by_type[name]
    ]
