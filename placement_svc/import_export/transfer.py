"""Moving data: exports to a file, imports from a file or from another service.

A file has a record a line, which `placement_svc.schemas.records` reads and writes.
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
from placement_svc.domain.records import MOST_PROBLEMS, Imported, ImportRefused, Problem, Record
from placement_svc.import_export.placement_client import Source, SourceError
from placement_svc.schemas import records

QUOTED = 120
"""How many characters of a line that is wrong are shown."""


class TransferError(Exception):
    """A file cannot be read or written; the message says which and why."""


def export_file(database: Database, path: str) -> int:
    """Write all data to a file as it is at this moment, and return the number of lines.

    `path` is ``-`` for standard output; what ends in ``.gz`` is compressed. A file is there only when
    it is complete. Raises `TransferError`.
    """
    with _progress() as progress, _writing(path) as file:
        return database.read(_write, file, progress)


def _write(connection: Connection, file: BinaryIO | gzip.GzipFile, progress: Progress) -> int:
    lines = 0
    total = exports.count(connection)
    for record in progress.track(exports.records(connection), total=total, description="Exporting"):
        file.write(records.to_line(record))
        lines += 1
    return lines


@contextmanager
def _writing(path: str) -> Iterator[BinaryIO | gzip.GzipFile]:
    if path == "-":
        with click.open_file(path, "wb") as file:
            yield cast(BinaryIO, file)
        return
    part = Path(f"{path}.part")
    try:
        with part.open("wb") as plain:
            if path.endswith(".gz"):
                with gzip.GzipFile(fileobj=plain, mode="wb") as packed:
                    yield packed
            else:
                yield plain
        part.replace(path)
    except OSError as error:
        raise TransferError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def import_file(database: Database, path: str, allow_overcommitted: bool) -> Imported:
    """Bring in all that a file says, or nothing; `path` is as in `export_file`.

    Raises `TransferError`, and what `imports.load` raises.
    """
    with _progress() as progress, _reading(path, progress) as file:
        return imports.load(database, _numbered(file, progress), allow_overcommitted)


@contextmanager
def _reading(path: str, progress: Progress) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Give a file to read, line by line, showing how far it is."""
    try:
        with click.open_file(path, "rb") as file:
            total = 0 if path == "-" else Path(path).stat().st_size
            shown = progress.wrap_file(cast(BinaryIO, file), total, description="Reading")
            lines = io.BufferedReader(cast(io.RawIOBase, shown))
            yield gzip.GzipFile(fileobj=lines) if path.endswith(".gz") else lines
    except (OSError, EOFError, zlib.error) as error:
        raise TransferError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def import_service(database: Database, url: str, token: str) -> Imported:
    """Bring in all that a running Placement service has, or nothing.

    What it has granted stays granted, be it more than its inventories now have. Raises `SourceError`
    if it cannot be read, or has what cannot be.
    """
    with _progress() as progress:
        lines = Source(url, token).lines(progress)
        try:
            return imports.load(database, _numbered(lines, progress), allow_overcommitted=True)
        except ImportRefused as refused:
            messages = "\n".join(problem.message for problem in refused.problems)
            raise SourceError(f"{url} has what cannot be imported:\n{messages}") from refused


def _numbered(lines: Iterable[bytes], progress: Progress) -> Iterator[tuple[int, Record]]:
    """Yield the record of each line with the number of the line; blank lines say nothing.

    Raises `ImportRefused` at the end, or once there are too many problems.
    """
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            record = records.parse(line)
        except Invalid as error:
            quoted = line[:QUOTED].decode(errors="replace").rstrip()
            problems.append(Problem((number,), f"{error} (in {quoted}...)"))
            if len(problems) == MOST_PROBLEMS:
                break
        else:
            if not problems:
                yield number, record
    if problems:
        raise ImportRefused(problems)
    progress.add_task("Storing", total=None)


def _progress() -> Progress:
    """Return bars on standard error, if that is a terminal."""
    console = Console(stderr=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)
