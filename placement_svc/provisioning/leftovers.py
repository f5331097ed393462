"""The temporary directories of commands, and the removal of what killed commands leave.

A command that is killed (SIGKILL) cannot remove its temporary directory, nor stop the processes that it has
started. The next command that starts does so. Files in the directory tell what there is to do:

* `owner.lock` is locked (flock) by the command and its forked children. It is free when they have ended.
* `data_dir` has the path of the data directory of the embedded PostgreSQL that the command uses, if any.
* `service.lock` is locked by the service that a demo runs; it contains the id of its process group.

Directories without `owner.lock` are being created, or their command was killed at that moment.
"""

import fcntl
import logging
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from placement_svc.provisioning import embedded
from placement_svc.provisioning.errors import EmbeddedError
from placement_svc.provisioning.file_locks import open_file, try_lock

PREFIX = "placement-svc-"
"""The first part of the names of all these directories."""

OWNER_LOCK = "owner.lock"
SERVICE_LOCK = "service.lock"
DATA_DIR = "data_dir"

CREATION_SECONDS = 3600
"""Age at which a directory without `owner.lock` counts as left by a killed command."""

TERMINATION_SECONDS = 10
"""Seconds that the service of a killed demo has to stop before it is killed."""

KILL_SECONDS = 5
POLL_SECONDS = 0.02

log = logging.getLogger(__name__)


@contextmanager
def command_directory(command: str) -> Iterator[Path]:
    """Yield a new temporary directory, and remove it in the end, unless in a forked child of this process."""
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{command}-"))
    owner = os.getpid()
    # The file gets its name when it is locked, so that a free lock always means that the command has ended.
    unlocked = directory / f"{OWNER_LOCK}.new"
    lock = open_file(unlocked)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(directory / OWNER_LOCK)
        yield directory
    finally:
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)


@contextmanager
def service_lock(directory: Path) -> Iterator[int]:
    """Yield the locked `service.lock` of `directory`, for a service to inherit; its process id goes there."""
    with try_lock(directory / SERVICE_LOCK) as lock:
        assert lock is not None
        yield lock


def record_data_dir(directory: Path, data_dir: Path) -> None:
    """Record that the command of `directory` uses the embedded PostgreSQL of `data_dir`."""
    (directory / DATA_DIR).write_text(str(data_dir.resolve()))


def remove_leftovers() -> None:
    """Stop the processes and remove the directories that killed commands of this user have left.

    Directories of commands that run, and of other users, do not change. What cannot be removed is logged.
    """
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            if _is_own_directory(directory):
                _remove_if_left(directory)
        except FileNotFoundError:
            # Another command has removed it.
            continue
        except (OSError, EmbeddedError) as error:
            log.warning("%s, which a killed command has left, cannot be removed: %s", directory, error)


def _is_own_directory(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _remove_if_left(directory: Path) -> None:
    owner_lock = directory / OWNER_LOCK
    if not owner_lock.exists():
        if time.time() - directory.stat().st_mtime > CREATION_SECONDS:
            shutil.rmtree(directory)
        return
    with try_lock(owner_lock, create=False) as lock:
        if lock is None:
            return
        _stop_service(directory / SERVICE_LOCK)
        recorded = directory / DATA_DIR
        if recorded.exists():
            embedded.stop_abandoned(Path(recorded.read_text()))
        shutil.rmtree(directory)
        log.info("Removed %s, which a killed command has left.", directory)


def _stop_service(service_lock: Path) -> None:
    """Stop the processes that hold `service_lock`, by SIGTERM and then by SIGKILL.

    Raises `TimeoutError` if that does not work.
    """
    if not service_lock.exists() or _is_free(service_lock):
        return
    # Empty if the demo was killed as soon as it had started the service.
    process_group = service_lock.read_text()
    if process_group:
        for number, seconds in ((signal.SIGTERM, TERMINATION_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            # The id is not in use otherwise: a process group keeps it while one of its processes runs.
            with suppress(ProcessLookupError):
                os.killpg(int(process_group), number)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if _is_free(service_lock):
                    return
                time.sleep(POLL_SECONDS)
    raise TimeoutError(f"a process that holds {service_lock} still runs")


def _is_free(path: Path) -> bool:
    with try_lock(path, create=False) as lock:
        return lock is not None
