"""A primary and a standby PostgreSQL, to test what a failover does to the service."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import NullPool, create_engine, make_url, text

from placement_svc.db import schema
from placement_svc.db.connections.engine import connect
from placement_svc.provisioning import embedded
from placement_svc.provisioning.embedded_server import SERVER_OPTIONS
from placement_svc.provisioning.installation import binary, system_user
from tests.support.service import wait_until


def _signal(pgdata: Path, number: int) -> None:
    """Send a signal to all processes of a server: its postmaster first, which then starts no other one."""
    postmaster = int((pgdata / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, number)
    if number == signal.SIGSTOP:
        # The signal is delivered a moment later.
        wait_until(lambda: ") T " in Path(f"/proc/{postmaster}/stat").read_text())
    for child in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(child), number)


COMMIT = "SELECT pg_logical_emit_message(true, '', '')"
"""A statement whose transaction is written to the log, as that of a change is, but changes nothing."""

REPLAY_AGE = "SELECT extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())"
"""The age of the last transaction that a standby has replayed, in seconds."""

WAITS_FOR_STANDBY = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
"""The processes whose commits wait for a synchronous standby."""


def url_of(directory: object) -> str:
    """Return the URL of the server whose socket is in a directory."""
    return f"postgresql://postgres@/placement?host={directory}&port=5432"


def execute(url: str, *statements: str) -> Any:
    """Execute statements, each on its own; return the value of the last one."""
    engine = create_engine(connect(url).url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        value = None
        for statement in statements:
            result = connection.execute(text(statement))
            value = result.scalar() if result.returns_rows else None
    return value


def run_program(program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL as the user that owns the data directories."""
    owner = system_user() if os.geteuid() == 0 else None
    subprocess.run(
        [binary(program), *arguments],
        check=True,
        user=owner.pw_uid if owner else None,
        group=owner.pw_gid if owner else None,
        extra_groups=[] if owner else None,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def make_directory(path: Path) -> None:
    """Create a directory of the user that owns the data directories."""
    path.mkdir(mode=0o700)
    if os.geteuid() == 0:
        owner = system_user()
        os.chown(path, owner.pw_uid, owner.pw_gid)


def start(data: Path) -> None:
    """Start a standby."""
    # A hot standby needs at least the primary's max_connections.
    settings = {
        "listen_addresses": "",
        "max_connections": SERVER_OPTIONS["max_connections"],
        "unix_socket_directories": data,
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    log = str(data / "server.log")
    run_program("pg_ctl", "start", "--wait", "-D", str(data), "-l", log, "--options", options)


def stop(data: Path) -> None:
    """Stop a server immediately."""
    run_program("pg_ctl", "stop", "--mode=immediate", "-D", str(data))


class FailoverPair:
    """A primary with the embedded PostgreSQL in `directory`, and a standby that replicates it."""

    def __init__(self, directory: Path, primary_url: str) -> None:
        self._primary_data = directory / "primary" / "postgres"
        self._standby_data = directory / "standby"
        self._primary_url = make_url(primary_url)
        self.add_standby(self._standby_data)

    @property
    def url(self) -> str:
        """The URL of both: the primary is the first host."""
        hosts = f"{self._primary_url.query['host']},{self._standby_data}"
        return f"postgresql://postgres@/placement?host={hosts}&port=5432,5432"

    @property
    def standby_url(self) -> str:
        """The URL of the standby alone."""
        return url_of(self._standby_data)

    def add_standby(self, data: Path) -> None:
        """Copy the primary to a directory, and start the copy as a standby."""
        make_directory(data)
        source = ("--host", str(self._primary_url.query["host"]), "--username", "postgres")
        run_program("pg_basebackup", *source, "-D", str(data), "-R", "--checkpoint=fast")
        # The primary's socket is in its data directory.
        (data / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
        start(data)

    def create_schema(self) -> None:
        """Create the schema on the primary, and wait until the standby has it."""
        engine = connect(self.primary_url)
        schema.upgrade(engine)
        engine.dispose()
        self.wait_for_replay()

    def start_standby(self) -> None:
        """Start the standby."""
        start(self._standby_data)

    def promote(self) -> None:
        """Make the standby a primary."""
        run_program("pg_ctl", "promote", "--wait", "-D", str(self._standby_data))

    def freeze_primary(self) -> None:
        """Stop all processes of the primary; the kernel still accepts connections for it."""
        _signal(self._primary_data, signal.SIGSTOP)

    def thaw_primary(self) -> None:
        """Let the primary continue."""
        _signal(self._primary_data, signal.SIGCONT)

    @property
    def primary_url(self) -> str:
        """The URL of the primary alone."""
        return url_of(self._primary_url.query["host"])

    def on_primary(self, *statements: str) -> Any:
        """Execute statements on the primary, each on its own; return the value of the last one."""
        return execute(self.primary_url, *statements)

    def configure_primary(self, setting: str) -> None:
        """Change a setting of the primary: it applies to all statements that begin after this.

        `pg_reload_conf` returns before the other sessions have their signal, so they get it from here.
        """
        self.on_primary(f"ALTER SYSTEM SET {setting}")
        _signal(self._primary_data, signal.SIGHUP)

    def configure_standby(self, setting: str) -> None:
        """Change a setting of the standby: it applies to all that the standby replays after this."""
        self.on_standby(f"ALTER SYSTEM SET {setting}")
        _signal(self._standby_data, signal.SIGHUP)

    def let_commits_wait(self) -> None:
        """Let all later commits on the primary wait for a standby that does not exist.

        It is the checkpointer that tells the other processes whether to wait, some time after its signal.
        """
        self.configure_primary("synchronous_standby_names = 'gone'")
        has_waited = False
        with ThreadPoolExecutor(1) as threads:
            while not has_waited:
                commit = threads.submit(self.on_primary, COMMIT)
                while not commit.done():
                    pid = self.on_primary(WAITS_FOR_STANDBY)
                    if pid is not None:
                        has_waited = self.on_primary(f"SELECT pg_cancel_backend({pid})")

    def on_standby(self, *statements: str) -> Any:
        """Execute statements on the standby, each on its own; return the value of the last one."""
        return execute(self.standby_url, *statements)

    def wait_for_replay(self) -> None:
        """Wait until the standby has replayed all that the primary has written."""
        position = self.on_primary("SELECT pg_current_wal_lsn()")
        wait_until(lambda: self.on_standby(f"SELECT pg_last_wal_replay_lsn() >= '{position}'"))

    @contextmanager
    def paused_replay(self) -> Iterator[None]:
        """Let the standby replay nothing during the block, and all that it has missed at its end."""
        self.on_standby("SELECT pg_wal_replay_pause()")
        try:
            yield
        finally:
            self.on_standby("SELECT pg_wal_replay_resume()")
        self.wait_for_replay()

    def stop_standby(self) -> None:
        """Stop the standby."""
        stop(self._standby_data)


@contextmanager
def failover_pair(directory: Path) -> Iterator[FailoverPair]:
    """Run a primary and a standby in a directory that any user may enter."""
    with embedded.start(directory / "primary") as running:
        pair = FailoverPair(directory, running.url)
        try:
            yield pair
        finally:
            pair.thaw_primary()
            pair.stop_standby()
            shutil.rmtree(directory / "standby", ignore_errors=True)
