"""Start and stop the server process of a data directory of the embedded PostgreSQL.

The caller holds the data directory's `start.lock` during each function of this module.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from placement_svc.provisioning.errors import EmbeddedError
from placement_svc.provisioning.file_locks import open_file, try_lock
from placement_svc.provisioning.installation import binary, server_process, system_user

DATABASE = "placement"
PORT = 5432
SERVER_OPTIONS = {
    "listen_addresses": "",
    "port": PORT,
    "unix_socket_permissions": "0700",
    "max_connections": 200,
    "shared_buffers": "256MB",
    "jit": "off",
    # The client that sent a failing statement reports the error; the server's log is for server events.
    "log_min_messages": "log",
    # A statement contains the values of a request, up to megabytes of them.
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
}
INITDB_OPTIONS = [
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    # A power failure within seconds of initdb may lose the new database; all later writes are synced.
    "--no-sync",
]

MAX_SOCKET_PATH = 103
"""Bytes of a socket path on the most restrictive system (macOS: 104 with the final NUL)."""

START_SECONDS = 60
STOP_SECONDS = 60
POLL_SECONDS = 0.02


def start(data_dir: Path) -> str:
    """Start the server of `data_dir` unless it runs; return its URL once it accepts connections.

    The URL names the database `placement`. Creates the data with initdb if necessary. If the server is
    shutting down, waits for that and starts it again. Raises `EmbeddedError` if the server does not accept
    connections within `START_SECONDS`.
    """
    pgdata, server_log = data_dir / "postgres", data_dir / "postgres.log"
    log_start: int | None = None
    reason = f"no connection within {START_SECONDS} s"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with try_lock(data_dir / "server.lock") as lock:
            if lock is not None:
                if log_start is not None:
                    reason = _failure_reason(server_log.read_bytes()[log_start:].decode(errors="replace"))
                    break
                if not pgdata.exists():
                    _initdb(data_dir, lock)
                log_start = server_log.stat().st_size if server_log.exists() else 0
                _launch(pgdata, server_log, lock)
        postmaster = _read_postmaster_file(pgdata)
        if postmaster is not None and postmaster.ready:
            url = _database_url(postmaster.socket_dir)
            try:
                _ensure_database(url)
            except OperationalError as error:
                reason = str(error.orig).strip()
            else:
                return url.render_as_string()
        time.sleep(POLL_SECONDS)
    raise EmbeddedError(f"The embedded PostgreSQL in {data_dir} did not start ({reason}): see {server_log}.")


def stop(data_dir: Path) -> None:
    """Stop the server of `data_dir` with a fast shutdown, which does not wait for its clients to disconnect.

    Raises `EmbeddedError` if the server does not stop within `STOP_SECONDS`.
    """
    pgdata = data_dir / "postgres"
    signaled = None
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        postmaster = _read_postmaster_file(pgdata)
        with try_lock(data_dir / "server.lock") as lock:
            if lock is not None:
                _remove_socket_directory(pgdata, signaled or postmaster)
                return
        if signaled is None and postmaster is not None:
            with suppress(ProcessLookupError):
                os.kill(postmaster.pid, signal.SIGINT)
            signaled = postmaster
        time.sleep(POLL_SECONDS)
    raise EmbeddedError(
        f"The embedded PostgreSQL in {data_dir} did not stop within {STOP_SECONDS} s: "
        f"see {data_dir / 'postgres.log'}."
    )


def _initdb(data_dir: Path, lock: int) -> None:
    """Create `postgres/` under a temporary name and rename it when initdb has finished."""
    unfinished = data_dir / "postgres.new"
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    if os.geteuid() == 0:
        user = system_user()
        os.chown(unfinished, user.pw_uid, user.pw_gid)
    initdb = subprocess.run(
        [binary("initdb"), *INITDB_OPTIONS],
        capture_output=True,
        text=True,
        **server_process(unfinished, lock),
    )
    if initdb.returncode != 0:
        raise EmbeddedError(
            f"The embedded PostgreSQL cannot create its data in {data_dir}: {_failure_reason(initdb.stderr)}"
        )
    unfinished.rename(data_dir / "postgres")


def _launch(pgdata: Path, server_log: Path, lock: int) -> None:
    """Start the server in the background, with its output in `server_log`."""
    _discard_stale_postmaster(pgdata)
    options = SERVER_OPTIONS | {"unix_socket_directories": _socket_directory(pgdata)}
    arguments = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in options.items())
    output = open_file(server_log, os.O_APPEND)
    try:
        subprocess.run(
            [binary("pg_ctl"), "start", "--no-wait", "--silent", "--options", arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            **server_process(pgdata, lock),
        )
    finally:
        os.close(output)


def _socket_directory(pgdata: Path) -> Path:
    """Return `pgdata`, or a new temporary directory if the path of `pgdata` cannot be used for a socket."""
    # libpq and PostgreSQL treat a comma as a separator of directories.
    if len(os.fsencode(pgdata / f".s.PGSQL.{PORT}")) <= MAX_SOCKET_PATH and "," not in str(pgdata):
        return pgdata
    directory = Path(tempfile.mkdtemp(prefix="placement-"))
    if os.geteuid() == 0:
        owner = pgdata.stat()
        os.chown(directory, owner.st_uid, owner.st_gid)
    return directory


def _discard_stale_postmaster(pgdata: Path) -> None:
    """Remove the lock files of a dead server: another process may have its process id by now.

    The caller holds `server.lock`. Raises `EmbeddedError` if a server runs in spite of that, which was
    started by hand.
    """
    postmaster = _read_postmaster_file(pgdata)
    if postmaster is not None:
        server = ["--host", postmaster.socket_dir, "--port", postmaster.port]
        if subprocess.run([binary("pg_isready"), "--quiet", *server]).returncode in (0, 1):
            raise EmbeddedError(
                f"A PostgreSQL server that was started by hand (process {postmaster.pid}) runs on {pgdata}: "
                "stop it first."
            )
    _remove_socket_directory(pgdata, postmaster)
    for name in ("postmaster.pid", f".s.PGSQL.{PORT}.lock"):
        (pgdata / name).unlink(missing_ok=True)


def _remove_socket_directory(pgdata: Path, postmaster: "_Postmaster | None") -> None:
    """Remove the temporary directory of the socket of a server that has ended, if it had one."""
    if postmaster is None or postmaster.socket_dir == str(pgdata):
        return
    directory = Path(postmaster.socket_dir)
    with suppress(OSError):
        for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


class _Postmaster(NamedTuple):
    """The contents of a server's `postmaster.pid`."""

    pid: int
    port: str
    socket_dir: str
    ready: bool


def _read_postmaster_file(pgdata: Path) -> _Postmaster | None:
    """Return the contents of `postmaster.pid`, or None if it does not exist or is not complete yet."""
    try:
        lines = (pgdata / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    if len(lines) < 5:
        return None
    return _Postmaster(
        pid=int(lines[0]),
        port=lines[3],
        socket_dir=lines[4],
        ready=len(lines) > 7 and lines[7].strip() == "ready",
    )


def _database_url(socket_dir: str) -> URL:
    return URL.create(
        "postgresql+psycopg2",
        username="postgres",
        port=PORT,
        database=DATABASE,
        query={"host": socket_dir},
    )


def _ensure_database(url: URL) -> None:
    """Create the database of `url` if it does not exist."""
    engine = create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        exists = connection.scalar(
            text("SELECT 1 FROM pg_database WHERE datname = :name"), {"name": url.database}
        )
        if exists is None:
            connection.execute(text(f"CREATE DATABASE {url.database}"))


def _failure_reason(output: str) -> str:
    """Return the first error message in the output of a PostgreSQL program, or else the whole output."""
    error = re.search(r"(?:FATAL|error): +(.+)", output)
    return error[1] if error else output.strip()
