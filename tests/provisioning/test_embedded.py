"""The embedded PostgreSQL: shared by processes, recovered after crashes, stopped by its last user."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from placement_svc.provisioning import embedded, installation
from placement_svc.provisioning.embedded import EmbeddedError
from tests.support.service import wait_until

PROGRAM = """\
import os, signal, sys, time
from pathlib import Path
from placement_svc.provisioning import embedded

data_dir = Path(sys.argv[1])
"""
HOLD = """\
server = embedded.start(data_dir)
print(server.url, flush=True)
sys.stdin.read()
"""
UNPRIVILEGED_USER = 65534
BECOME_UNPRIVILEGED_USER = f"""\
if os.geteuid() == 0:
    # Load all modules before the change of user: the interpreter may be in a directory that only root can
    # read.
    embedded.start(data_dir).stop()
    os.setgroups([])
    os.setgid({UNPRIVILEGED_USER})
    os.setuid({UNPRIVILEGED_USER})
"""


@pytest.fixture
def data_dir(passable_dir: Path) -> Iterator[Path]:
    """The data directory of most tests; no server runs in it before or after a test."""
    path = passable_dir / "data"
    yield path
    if runs(path):
        embedded.start(path).stop()


@pytest.fixture
def new_dir(passable_dir: Path) -> Iterator[Path]:
    path = passable_dir / "new"
    yield path
    shutil.rmtree(path, ignore_errors=True)


def program(data_dir: Path, code: str) -> subprocess.Popen[str]:
    """Run `code` in a session of its own, like a terminal."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM + code, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def holder(data_dir: Path, before: str = "") -> tuple[subprocess.Popen[str], str]:
    """Run a program that holds a share until its input ends; return it and the server's URL."""
    process = program(data_dir, before + HOLD)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url, process.communicate()[1]
    return process, url


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for the end of the program; return its output."""
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    return output


def query(url: str, sql: str) -> object:
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        result = connection.execute(text(sql))
        return result.scalar() if result.returns_rows else None


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().split("\n")[0])


def stopped_cleanly(data_dir: Path) -> bool:
    log = (data_dir / "postgres.log").read_text()
    return log.endswith("database system is shut down\n") and not runs(data_dir)


def runs(data_dir: Path) -> bool:
    return (data_dir / "postgres" / "postmaster.pid").exists()


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    # The tests that wait so kill the process at once.
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.001)


def test_first_start_creates_the_directory_and_the_database(new_dir: Path) -> None:
    data_dir = new_dir / "with" / "parents"
    with embedded.start(data_dir) as server:
        socket_dir = quote(str(data_dir / "postgres"), safe="")
        assert server.url == f"postgresql+psycopg2://postgres@:5432/placement?host={socket_dir}"
        assert str(query(server.url, "SHOW server_version")).startswith("18.")
        assert query(server.url, "SHOW server_encoding") == "UTF8"
        assert query(server.url, "SHOW fsync") == "on"


def test_data_outlives_the_server(data_dir: Path) -> None:
    with embedded.start(data_dir) as server:
        query(server.url, "CREATE TABLE kept AS SELECT 7 AS number")
    assert stopped_cleanly(data_dir)
    with embedded.start(data_dir) as server:
        assert query(server.url, "SELECT number FROM kept") == 7


def test_server_listens_on_a_private_socket_only(data_dir: Path) -> None:
    with embedded.start(data_dir) as server:
        assert query(server.url, "SHOW listen_addresses") == ""
        assert stat.S_IMODE((data_dir / "postgres").stat().st_mode) == 0o700
        assert stat.S_IMODE((data_dir / "postgres" / ".s.PGSQL.5432").stat().st_mode) == 0o700


def test_stop_does_not_wait_for_clients(data_dir: Path) -> None:
    server = embedded.start(data_dir)
    with create_engine(server.url, poolclass=NullPool).connect() as connection:
        connection.execute(text("SELECT 1"))
        server.stop()
        assert stopped_cleanly(data_dir)
        connection.invalidate()


def test_second_stop_has_no_effect(data_dir: Path) -> None:
    one, two = embedded.start(data_dir), embedded.start(data_dir)
    one.stop()
    one.stop()
    assert query(two.url, "SELECT 1") == 1
    two.stop()
    assert stopped_cleanly(data_dir)


def test_server_runs_until_the_last_process_leaves(data_dir: Path) -> None:
    first, url = holder(data_dir)
    second, joined_url = holder(data_dir)
    assert joined_url == url
    finish(first)
    assert query(url, "SELECT 1") == 1
    finish(second)
    assert stopped_cleanly(data_dir)


def test_processes_that_start_at_the_same_time_share_one_server(new_dir: Path) -> None:
    processes = [program(new_dir, HOLD) for _ in range(4)]
    urls = {process.stdout.readline() for process in processes if process.stdout is not None}
    assert len(urls) == 1
    assert urls != {""}
    for process in processes:
        finish(process)
    assert (new_dir / "postgres.log").read_text().count("ready to accept connections") == 1
    assert stopped_cleanly(new_dir)


@pytest.mark.parametrize(
    ("number", "before"),
    [
        (signal.SIGINT, ""),
        (signal.SIGTERM, "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"),
    ],
    ids=["SIGINT", "SIGTERM"],
)
def test_signal_to_the_process_group_stops_the_server(data_dir: Path, number: int, before: str) -> None:
    process, _ = holder(data_dir, before)
    os.killpg(process.pid, number)
    process.communicate(timeout=30)
    assert stopped_cleanly(data_dir)


def test_ctrl_c_does_not_reach_the_server(data_dir: Path) -> None:
    process, url = holder(data_dir, "signal.signal(signal.SIGINT, signal.SIG_IGN)\n")
    with create_engine(url, poolclass=NullPool).connect() as connection:
        connection.execute(text("SELECT 1"))
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
        assert connection.scalar(text("SELECT 1")) == 1
    assert os.getsid(postmaster(data_dir)) != os.getsid(process.pid)
    finish(process)


@pytest.mark.long
@pytest.mark.parametrize("step", ["postgres.new", "postgres/postmaster.pid"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_interrupted_start_can_be_repeated(new_dir: Path, step: str, number: int) -> None:
    process = program(new_dir, HOLD)
    wait_for(new_dir / step, process)
    os.killpg(process.pid, number)
    process.communicate(timeout=30)
    if number == signal.SIGINT:
        assert not runs(new_dir)
    with embedded.start(new_dir) as server:
        assert query(server.url, "SELECT 1") == 1
    assert stopped_cleanly(new_dir)
    assert not (new_dir / "postgres.new").exists()


@pytest.mark.parametrize("ending", ["server.stop()", "sys.exit()", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_exit_of_a_forked_child_does_not_release_the_share(data_dir: Path, ending: str) -> None:
    process, url = holder(
        data_dir,
        f"server = embedded.start(data_dir)\nif os.fork() == 0:\n    {ending}\n    sys.exit()\nos.wait()\n",
    )
    embedded.start(data_dir).stop()
    assert query(url, "SELECT 1") == 1
    finish(process)
    assert stopped_cleanly(data_dir)


def test_parent_stops_the_server_while_a_child_runs(data_dir: Path) -> None:
    process = program(
        data_dir,
        """
server = embedded.start(data_dir)
child = os.fork()
if child == 0:
    time.sleep(60)
server.stop()
print(child, flush=True)
os._exit(0)
""",
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert stopped_cleanly(data_dir)
    embedded.start(data_dir).stop()
    assert stopped_cleanly(data_dir)
    os.kill(child, signal.SIGKILL)
    finish(process)


def test_server_of_a_killed_holder_is_joined_and_stopped(data_dir: Path) -> None:
    process, url = holder(data_dir)
    orphan = postmaster(data_dir)
    process.kill()
    process.communicate()
    with embedded.start(data_dir) as server:
        assert server.url == url
        assert postmaster(data_dir) == orphan
    assert stopped_cleanly(data_dir)


def test_killed_server_is_recovered(data_dir: Path) -> None:
    process, url = holder(data_dir)
    query(url, "CREATE TABLE committed AS SELECT 1 AS number")
    process.kill()
    os.kill(postmaster(data_dir), signal.SIGKILL)
    process.communicate()
    with embedded.start(data_dir) as server:
        assert query(server.url, "SELECT number FROM committed") == 1
    assert "automatic recovery in progress" in (data_dir / "postgres.log").read_text()
    assert stopped_cleanly(data_dir)


def test_server_killed_during_use_is_restarted_by_the_next_start(data_dir: Path) -> None:
    with embedded.start(data_dir) as first:
        os.kill(postmaster(data_dir), signal.SIGKILL)
        with embedded.start(data_dir):
            assert query(first.url, "SELECT 1") == 1
        assert query(first.url, "SELECT 1") == 1
    assert stopped_cleanly(data_dir)


def test_stop_ignores_a_dead_server(data_dir: Path) -> None:
    with embedded.start(data_dir):
        os.kill(postmaster(data_dir), signal.SIGKILL)


def test_start_waits_for_a_server_that_is_shutting_down(data_dir: Path) -> None:
    process, _ = holder(data_dir)
    process.kill()
    process.communicate()
    os.kill(postmaster(data_dir), signal.SIGINT)
    with embedded.start(data_dir) as server:
        assert query(server.url, "SELECT 1") == 1


def test_reused_process_id_is_not_mistaken_for_the_server(data_dir: Path) -> None:
    embedded.start(data_dir).stop()
    owner = (data_dir / "postgres").stat().st_uid
    with subprocess.Popen(["sleep", "60"], user=owner if os.geteuid() == 0 else None) as other:
        for name, rest in (
            ("postmaster.pid", "5432\n/nowhere\n\n 1 1\nready   \n"),
            (".s.PGSQL.5432.lock", ""),
        ):
            (data_dir / "postgres" / name).write_text(f"{other.pid}\n{data_dir}/postgres\n1700000000\n{rest}")
        with embedded.start(data_dir) as server:
            assert query(server.url, "SELECT 1") == 1
        assert other.poll() is None
        other.kill()
    assert stopped_cleanly(data_dir)


@pytest.mark.long
@pytest.mark.parametrize("name", ["x" * 120, "one,two", "a 'b' \"c\" $d %e ü"], ids=["long", "comma", "odd"])
def test_any_path_can_be_used(new_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    temporary = new_dir / "t"
    temporary.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with embedded.start(new_dir / name) as server, embedded.start(new_dir / name) as joined:
        assert joined.url == server.url
        assert query(server.url, "SELECT 1") == 1
    assert stopped_cleanly(new_dir / name)
    assert list(temporary.iterdir()) == []


def test_environment_variables_of_postgresql_are_ignored(
    new_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "PGPORT": "6543",
        "PGDATA": "/nowhere",
        "PGHOST": "nowhere",
        "LC_ALL": "xx_YY",
    }.items():
        monkeypatch.setenv(name, value)
    with embedded.start(new_dir) as server:
        assert query(server.url, "SELECT 1") == 1


def test_unprivileged_user_can_start_and_stop_the_server(data_dir: Path, new_dir: Path) -> None:
    new_dir.mkdir()
    if os.geteuid() == 0:
        os.chown(new_dir, UNPRIVILEGED_USER, UNPRIVILEGED_USER)
    unprivileged_dir = new_dir / "data"
    process, url = holder(
        data_dir, BECOME_UNPRIVILEGED_USER + f"data_dir = Path({str(unprivileged_dir)!r})\n"
    )
    assert (unprivileged_dir / "postgres").stat().st_uid == new_dir.stat().st_uid
    # Root may join the server of an unprivileged user, and be the last to release its share.
    with embedded.start(unprivileged_dir) as server:
        assert server.url == url
        finish(process)
        assert query(url, "SELECT 1") == 1
    assert stopped_cleanly(unprivileged_dir)


def test_read_only_directory_is_rejected(data_dir: Path, new_dir: Path) -> None:
    new_dir.mkdir()
    new_dir.chmod(0o555)
    code = f"""
try:
    embedded.start(Path({str(new_dir)!r}))
except embedded.EmbeddedError as error:
    print(error)
"""
    message = finish(program(data_dir, BECOME_UNPRIVILEGED_USER + code))
    assert f"cannot use the data directory {new_dir}" in message
    assert "Permission denied" in message
    assert "PLACEMENT_DATA_DIR must name a directory that this user can write to" in message


@pytest.mark.skipif(os.geteuid() != 0, reason="requires root")
def test_server_of_root_runs_as_another_user(new_dir: Path) -> None:
    new_dir.mkdir(mode=0o700)
    with embedded.start(new_dir / "data"):
        owner = (new_dir / "data" / "postgres").stat().st_uid
        assert owner == pwd.getpwnam("pgserver").pw_uid
        assert Path(f"/proc/{postmaster(new_dir / 'data')}").stat().st_uid == owner
        assert stat.S_IMODE(new_dir.stat().st_mode) == 0o701


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_file_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedError, match="PLACEMENT_DATA_DIR must name"):
        embedded.start(tmp_path / name)


def test_directory_with_other_files_is_rejected_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(
        EmbeddedError, match="is not empty and not a data directory of the embedded PostgreSQL"
    ):
        embedded.start(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_other_major_version_is_rejected_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("16\n")
    with pytest.raises(
        EmbeddedError, match="holds data of PostgreSQL 16, and the embedded server is PostgreSQL 18"
    ):
        embedded.start(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["postgres"]


def test_error_message_has_the_reason_of_a_failed_start(new_dir: Path) -> None:
    embedded.start(new_dir).stop()
    with (new_dir / "postgres" / "postgresql.conf").open("a") as configuration:
        configuration.write("nonsense = on\n")
    with pytest.raises(
        EmbeddedError, match=r"did not start \(configuration file .* contains errors\): see .*log"
    ):
        embedded.start(new_dir)
    assert not runs(new_dir)


def test_server_started_by_hand_is_not_stopped(data_dir: Path) -> None:
    with embedded.start(data_dir) as server:
        url = server.url
    pgdata = data_dir / "postgres"
    owner = pgdata.stat().st_uid if os.geteuid() == 0 else None
    command: list[str | Path] = [installation.binary("postgres"), "-D", pgdata, "-k", pgdata, "-h", ""]
    with subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, user=owner) as by_hand:

        def is_ready() -> bool:
            assert by_hand.poll() is None
            return runs(data_dir) and "ready" in (pgdata / "postmaster.pid").read_text()

        wait_until(is_ready)
        with pytest.raises(EmbeddedError, match="started by hand"):
            embedded.start(data_dir)
        assert query(url, "SELECT 1") == 1
        by_hand.send_signal(signal.SIGINT)


def test_missing_postgresql_is_reported(new_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EmbeddedError, match="PLACEMENT_DATABASE_URL must name one"):
        embedded.start(new_dir)
