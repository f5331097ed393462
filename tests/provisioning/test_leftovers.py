"""The next command removes the leftovers of a killed one, and nothing that belongs to a running one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from placement_svc.provisioning.file_locks import try_lock
from placement_svc.provisioning.leftovers import (
    CREATION_SECONDS,
    OWNER_LOCK,
    command_directory,
    remove_leftovers,
    service_lock,
)
from tests.support.service import Client, free_port, wait_until

Start = Callable[..., tuple[subprocess.Popen[bytes], int]]


@pytest.fixture
def temporary(passable_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of temporary files of all commands of a test; empty."""
    path = passable_dir / "tmp"
    path.mkdir(exist_ok=True)
    path.chmod(0o711)
    monkeypatch.setattr("tempfile.tempdir", str(path))
    return path


@pytest.fixture
def start(temporary: Path) -> Iterator[Start]:
    """A function that starts `serve` or `demo` and returns it and its port when it responds."""
    processes: list[subprocess.Popen[bytes]] = []
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PLACEMENT_")}

    def start(
        command: str, *arguments: str, port: int | None = None, **settings: str
    ) -> tuple[subprocess.Popen[bytes], int]:
        port = port or free_port()
        process = subprocess.Popen(
            [sys.executable, "-m", "placement_svc", command, "--port", str(port), *arguments],
            env=environ | settings | {"TMPDIR": str(temporary), "PLACEMENT_LOG_LEVEL": "warning"},
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        processes.append(process)
        wait_until(lambda: process.poll() is not None or Client(port)("GET", "/").status == 200)
        assert process.poll() is None
        return process, port

    yield start
    for process in processes:
        process.terminate()
        process.wait()
    remove_leftovers()
    assert list(temporary.iterdir()) == []
    assert processes_of(temporary.parent) == set()


def directories_in(temporary: Path) -> set[Path]:
    """Return the directories of commands; gunicorn has other files there while it starts a worker."""
    return set(temporary.glob("placement-svc-*"))


def processes_of(directory: Path) -> set[int]:
    """Return the processes that name a file below `directory` in their command line."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(directory).encode() in path.read_bytes():
                found.add(int(path.parent.name))
    return found


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "postgres/postmaster.pid").read_text().splitlines()[0])


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        # A process that has ended and that nobody has waited for is a zombie.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def is_free(lock: Path) -> bool:
    with try_lock(lock) as held:
        return held is not None


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def test_killed_demo_is_removed_by_the_next_one(start: Start, temporary: Path) -> None:
    process, port = start("demo", "--hosts", "0")
    [directory] = temporary.glob("placement-svc-demo-*")
    server = postmaster(directory / "data")
    kill(process)
    # The processes that the demo has started still run.
    assert Client(port)("GET", "/").status == 200
    assert is_alive(server)
    start("demo", "--hosts", "0", port=port)
    # At first, the killed demo's service may still respond.
    wait_until(lambda: not directory.exists())
    assert not is_alive(server)
    wait_until(lambda: Client(port)("GET", "/").status == 200)
    assert len(list(temporary.glob("placement-svc-demo-*"))) == 1


def test_demo_killed_with_its_service_is_removed_by_serve(start: Start, temporary: Path) -> None:
    process, port = start("demo", "--hosts", "0")
    [directory] = temporary.glob("placement-svc-demo-*")
    server = postmaster(directory / "data")
    os.killpg(int((directory / "service.lock").read_text()), signal.SIGKILL)
    kill(process)
    wait_until(lambda: all(map(is_free, temporary.glob(f"*/{OWNER_LOCK}"))))
    start("serve", PLACEMENT_DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing", port=port)
    assert not is_alive(server)
    [left] = directories_in(temporary)
    assert left.name.startswith("placement-svc-serve-")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_service_is_removed_by_the_next_one(
    start: Start, temporary: Path, number: signal.Signals
) -> None:
    data_dir = temporary.parent / "first"
    process, _ = start("serve", PLACEMENT_DATA_DIR=str(data_dir))
    server = postmaster(data_dir)
    [directory] = directories_in(temporary)
    process.send_signal(number)
    process.wait()
    assert is_alive(server) == directory.exists() == (number == signal.SIGKILL)
    # The workers end on their own when they notice that gunicorn's master has ended.
    wait_until(lambda: not directory.exists() or is_free(directory / OWNER_LOCK))
    start("serve", PLACEMENT_DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing")
    assert not is_alive(server)
    assert not directory.exists()
    assert (data_dir / "postgres/PG_VERSION").exists()


def test_running_commands_are_left_alone(start: Start, temporary: Path) -> None:
    data_dir = temporary.parent / "second"
    _, first = start("serve", PLACEMENT_DATA_DIR=str(data_dir))
    _, second = start("demo", "--hosts", "0")
    before = directories_in(temporary)
    servers = [postmaster(data_dir), postmaster(next(temporary.glob("*-demo-*")) / "data")]
    remove_leftovers()
    start("serve", PLACEMENT_DATA_DIR=str(data_dir))
    assert before < directories_in(temporary)
    assert all(map(is_alive, servers))
    for port in (first, second):
        assert Client(port)("GET", "/resource_providers").status == 200


def test_directory_is_removed_at_the_end_of_the_command(temporary: Path) -> None:
    with command_directory("serve") as directory:
        remove_leftovers()
        assert directory.parent == temporary
        assert directory.exists()
    assert not directory.exists()


def test_directory_being_created_is_left_alone(temporary: Path) -> None:
    new = temporary / "placement-svc-serve-new"
    new.mkdir()
    remove_leftovers()
    assert new.exists()
    past = time.time() - CREATION_SECONDS - 1
    os.utime(new, (past, past))
    remove_leftovers()
    assert not new.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_directory_of_another_user_is_left_alone(temporary: Path) -> None:
    foreign = temporary / "placement-svc-serve-foreign"
    foreign.mkdir()
    (foreign / "owner.lock").touch()
    os.chown(foreign, 65534, 65534)
    remove_leftovers()
    assert (foreign / "owner.lock").exists()
    os.chown(foreign, 0, 0)
    remove_leftovers()
    assert not foreign.exists()


def test_link_is_left_alone(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "owner.lock").touch()
    link = temporary / "placement-svc-serve-link"
    link.symlink_to(tmp_path)
    remove_leftovers()
    assert (tmp_path / "owner.lock").exists()
    link.unlink()


def test_service_of_an_unknown_process_is_left_alone(
    temporary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = temporary / "placement-svc-demo-left"
    left.mkdir()
    (left / "owner.lock").touch()
    with service_lock(left):
        remove_leftovers()
    assert f"a process that holds {left / 'service.lock'} still runs" in caplog.text
    remove_leftovers()
    assert not left.exists()


def test_failed_removal_is_logged(temporary: Path, caplog: pytest.LogCaptureFixture) -> None:
    left = temporary / "placement-svc-serve-left"
    left.mkdir()
    (left / "owner.lock").touch()
    (left / "service.lock").mkdir()
    remove_leftovers()
    assert "which a killed command has left, cannot be removed" in caplog.text
    (left / "service.lock").rmdir()
    remove_leftovers()
    assert not left.exists()
