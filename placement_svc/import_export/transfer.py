"""Export to a file; import from a file or from another Placement service.

A file has one record per line. `placement_svc/schemas/records.py` parses and writes the lines.
"""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import click
from rich.console import Console
from rich.progress import Progress
from sqlalchemy import Connection

from placement_svc.db import exports, imports
from placement_svc.db.engine import Database
from placement_svc.domain.errors import Invalid
from placement_svc.domain.records import MAX_PROBLEMS, ImportProblem, ImportRefused, ImportResult, Record
from placement_svc.import_export.placement_client import PlacementClient, PlacementClientError
from placement_svc.schemas import records

MAX_QUOTED = 120
"""The largest number of bytes of an invalid line that an error message quotes."""


class TransferError(Exception):
    """A file cannot be read or written; the message names the file and the reason."""


def export_file(database: Database, path: str) -> int:
    """Write all data, from one snapshot, to a file; return the number of lines.

    The path ``-`` is standard output. A file whose name ends in ``.gz`` is compressed. The file appears under
    its name only when it is complete. Raises `TransferError`.
    """
    with _progress() as progress, _open_output(path) as file:
        return database.read(_write_records, file, progress)


def _write_records(connection: Connection, file: BinaryIO | gzip.GzipFile, progress: Progress) -> int:
    lines = 0
    total = exports.count(connection)
    for record in progress.track(exports.records(connection), total=total, description="Exporting"):
        file.write(records.to_line(record))
        lines += 1
    return lines


@contextmanager
def _open_output(path: str) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Yield a file to write to; rename it to `path` if no error occurs, and delete it otherwise."""
    if path == "-":
        with click.open_file(path, "wb") as file:
            yield cast(BinaryIO, file)
        return
    partial = Path(f"{path}.part")
    try:
        with partial.open("wb") as uncompressed:
            if path.endswith(".gz"):
                with gzip.GzipFile(fileobj=uncompressed, mode="wb") as compressed:
                    yield compressed
            else:
                yield uncompressed
        partial.replace(path)
    except OSError as error:
        raise TransferError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def import_file(database: Database, path: str, allow_overcommitted: bool) -> ImportResult:
    """Import all records of a file, or none; `path` has the meaning that it has for `export_file`.

    Raises `TransferError` and the errors of `imports.load`.
    """
    with _progress() as progress, _open_input(path, progress) as file:
        return imports.load(database, _parse_lines(file, progress), allow_overcommitted)


@contextmanager
def _open_input(path: str, progress: Progress) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Yield a file whose lines can be read; the progress bar shows the position in the file."""
    try:
        with click.open_file(path, "rb") as file:
            size = 0 if path == "-" else Path(path).stat().st_size
            tracked = progress.wrap_file(cast(BinaryIO, file), size, description="Reading")
            buffered = io.BufferedReader(cast(io.RawIOBase, tracked))
            yield gzip.GzipFile(fileobj=buffered) if path.endswith(".gz") else buffered
    except (OSError, EOFError, zlib.error) as error:
        raise TransferError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def import_service(database: Database, url: str, token: str) -> ImportResult:
    """Import all data of a running Placement service, or none.

    Allocations are imported even if they exceed the capacity of an inventory, because the other service has
    granted them. Raises `PlacementClientError` if the service cannot be read or its data cannot be imported.
    """
    with _progress() as progress:
        lines = PlacementClient(url, token).export_lines(progress)
        try:
            return imports.load(database, _parse_lines(lines, progress), allow_overcommitted=True)
        except ImportRefused as refused:
            messages = "\n".join(problem.message for problem in refused.problems)
            raise PlacementClientError(f"the data of {url} cannot be imported:\n{messages}") from refused


def _parse_lines(lines: Iterable[bytes], progress: Progress) -> Iterator[tuple[int, Record]]:
    """Yield the number and the record of each line; blank lines are skipped.

    After the first invalid line, the remaining lines are only checked. Raises `ImportRefused` after the last
    line, or after `MAX_PROBLEMS` invalid lines.
    """
    problems: list[ImportProblem] = []
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            record = records.parse(line)
        except Invalid as error:
            quoted = line[:MAX_QUOTED].decode(errors="replace").rstrip()
            problems.append(ImportProblem((number,), f"{error} (in {quoted}...)"))
            if len(problems) == MAX_PROBLEMS:
                break
        else:
            if not problems:
                yield number, record
    if problems:
        raise ImportRefused(problems)
    progress.add_task("Storing", total=None)


def _progress() -> Progress:
    """Return progress bars on standard error, which appear only on a terminal."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)
