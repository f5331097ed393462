"""`placement-svc db downgrade` asks and refuses; what commands say about a URL that cannot be used."""

import os
import pty
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, create_engine, make_url, text

from placement_svc.db import revisions, schema
from placement_svc.db.connections.engine import connect
from placement_svc.provisioning import embedded
from tests.support.service import serving

NAMES = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


def placement_svc(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal."""
    command = [sys.executable, "-m", "placement_svc", *arguments]
    env = NAMES | {"PLACEMENT_DATABASE_URL": url}
    return subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


def answered(url: str, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal, answer its question; return the exit status and all output."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "placement_svc", *arguments]
    env = NAMES | {"PLACEMENT_DATABASE_URL": url}
    process = subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = ""
    while select.select([ours], [], [], 120)[0]:
        try:
            read = os.read(ours, 10_000)
        except OSError:
            break
        asked, shown = "[y/N]" in shown, shown + read.decode()
        if "[y/N]" in shown and not asked:
            os.write(ours, f"{answer}\n".encode())
    os.close(ours)
    return process.wait(timeout=120), " ".join(shown.split())


@pytest.fixture
def url(new_database: Callable[[], str]) -> str:
    """The URL of a database with the schema."""
    url = new_database()
    engine = create_engine(url)
    schema.upgrade(engine)
    engine.dispose()
    return url


def revision(url: str) -> str | None:
    engine = create_engine(url)
    try:
        return revisions.current(engine)
    finally:
        engine.dispose()


def test_a_downgrade_without_a_terminal_needs_an_option(url: str) -> None:
    refused = placement_svc("db", "downgrade", "base", url=url)
    assert refused.returncode == 2
    assert "Confirm the downgrade with --yes" in refused.stderr
    assert revision(url) == revisions.newest()
    assert placement_svc("db", "downgrade", "base", "--yes", url=url).returncode == 0
    assert revision(url) is None


def test_a_downgrade_on_a_terminal_asks(url: str) -> None:
    status, shown = answered(url, "n", "db", "downgrade", "base")
    name = make_url(url).render_as_string()
    assert f"Downgrade {name} from {revisions.newest()} to base? This drops all tables and all data." in shown
    assert status == 1
    assert revision(url) == revisions.newest()
    status, shown = answered(url, "y", "db", "downgrade", "0007")
    assert (status, revision(url)) == (0, "0007")
    assert shown.endswith("is at revision 0007")


@pytest.mark.parametrize("name", ["", "?application_name=placement-eu"])
def test_a_downgrade_is_refused_while_a_service_is_connected(url: str, name: str) -> None:
    named = make_url(url).update_query_string(name.removeprefix("?")).render_as_string(hide_password=False)
    with serving(database_url=named) as service:
        service.client().result("GET", "/resource_providers")
        refused = placement_svc("db", "downgrade", "base", "--yes", url=named)
        assert refused.returncode == 1
        assert refused.stderr.startswith("Error: Services or other commands are connected to postgresql")
        assert "stop them first, or use --force" in refused.stderr
        assert revision(url) == revisions.newest()
    assert placement_svc("db", "downgrade", "0007", "--yes", url=named).returncode == 0


def test_a_downgrade_can_be_forced(url: str) -> None:
    service = connect(url)
    try:
        with service.connect():
            assert placement_svc("db", "downgrade", "base", "--yes", url=url).returncode == 1
            assert placement_svc("db", "downgrade", "base", "--yes", "--force", url=url).returncode == 0
    finally:
        service.dispose()
    assert revision(url) is None


@pytest.fixture(scope="module")
def password_url(passable_dir: Path) -> Iterator[URL]:
    """The URL of a server that asks for passwords, with user and password."""
    with embedded.start(passable_dir / "passwords") as running:
        admin = create_engine(running.url, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text("CREATE ROLE placement LOGIN PASSWORD 's3cret'"))
            pg_hba = Path(connection.scalar(text("SHOW hba_file")))
        admin.dispose()
        pg_hba.write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        with admin.connect() as connection:
            connection.execute(text("SELECT pg_reload_conf()"))
        admin.dispose()
        yield make_url(running.url).set(username="placement", password="s3cret")


def test_a_wrong_password_is_reported(password_url: URL) -> None:
    wrong = password_url.set(password="wr0ng")
    line = reported(wrong)
    assert "does not accept this password of user placement: correct the user or the password in" in line
    assert "wr0ng" not in line
    assert "requires a password: add it" in reported(password_url._replace(password=None))
    assert reported(password_url.set(username="nobody")).count("does not accept this password of user nobody")


def test_an_unknown_database_is_reported(password_url: URL) -> None:
    line = reported(password_url.set(database="other"))
    assert "has no database other: create it (createdb other), or correct the name in PLACEMENT" in line


def reported(url: URL) -> str:
    """Return the line that a command with this URL reports; it never has the password."""
    failed = placement_svc("db", "current", url=url.render_as_string(hide_password=False))
    [line] = failed.stderr.splitlines()
    assert failed.returncode == 1
    assert line.startswith("Error: ")
    assert "PLACEMENT_DATABASE_URL" in line
    assert str(url.password) not in line
    return line


TCP = make_url("postgresql://placement:s3cret@127.0.0.1:1/placement")


def test_an_unknown_user_is_reported(server_url: str) -> None:
    line = reported(make_url(server_url).set(username="nobody", password="s3cret"))
    assert "has no user nobody: create it (createuser nobody), or correct the user" in line


def test_an_unknown_host_is_reported() -> None:
    line = reported(TCP.set(host="host.invalid"))
    assert line == (
        "Error: The host host.invalid is unknown: correct the host name in PLACEMENT_DATABASE_URL."
    )


def test_a_port_where_nothing_listens_is_reported() -> None:
    line = reported(TCP)
    assert line.startswith(
        'Error: No PostgreSQL server accepts connections at "127.0.0.1", port 1: start it, or correct the'
    )


def test_a_port_of_another_service_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(1000)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        line = reported(TCP.set(port=listener.getsockname()[1]))
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=60)
    assert "does not answer like PostgreSQL: correct the port (usually 5432)" in line


@pytest.mark.parametrize(
    ("url", "correction"),
    [
        (
            "postgres://u:s3cret@host/placement",
            "begins with postgres://, and this service needs postgresql://",
        ),
        ("postgresql+psycopg://u:s3cret@host/placement", "and this service needs postgresql://"),
        ("mysql://u:s3cret@host/placement", "this service needs a PostgreSQL database"),
        ("u:s3cret@host/placement", "is not a URL: write it like postgresql://user:password@host:5432/pl"),
        ("postgresql://u:s3cret@host:port/placement", "is malformed: its port must be a number"),
        ("postgresql://u:p@s3cret@host/placement", "has more than one @: write %40 for each"),
        ("postgresql://u:p@s3cret/x@host,other/placement", "has more than one @: write %40 for each"),
        ("postgresql://u:s3cret@host:99999/placement", "has the port 99999: write one from 1 to 65535"),
        ("postgresql://u:s3cret@host/placement?color=s3cret", "write only options of libpq"),
    ],
)
def test_an_invalid_url_is_reported_without_its_password(url: str, correction: str) -> None:
    failed = placement_svc("db", "current", url=url)
    assert failed.returncode == 1
    assert failed.stderr.startswith("Error: PLACEMENT_DATABASE_URL ")
    assert correction in failed.stderr
    assert "s3cret" not in failed.stderr
