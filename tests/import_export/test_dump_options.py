"""How `db dump` and `db restore` pass the options of the database URL to programs of PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import URL, create_engine, make_url, text

from placement_svc.cli import main
from placement_svc.provisioning import embedded


def db(*arguments: str | Path, url: URL) -> Result:
    """Run `placement-svc db`."""
    env = {"PLACEMENT_DATABASE_URL": url.render_as_string(hide_password=False)}
    return CliRunner().invoke(main, ["db", *map(str, arguments)], env=env)


def execute(url: URL, statement: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.fixture(scope="module")
def server(passable_dir: Path) -> Iterator[URL]:
    """The URL of a server that asks the user `backup` for a password; the database has the schema."""
    directory = passable_dir / "passwords"
    with embedded.start(directory) as running:
        url = make_url(running.url)
        execute(url, "CREATE ROLE backup LOGIN SUPERUSER")
        hba = directory / "postgres" / "pg_hba.conf"
        hba.write_text(f"local all backup scram-sha-256\n{hba.read_text()}")
        execute(url, "SELECT pg_reload_conf()")
        assert db("upgrade", url=url).exit_code == 0
        yield url


@pytest.mark.parametrize("password", ["s3cret ", "s" * 1200, "s3cret\nhost=/nowhere"])
def test_any_password_is_passed_on(server: URL, tmp_path: Path, password: str) -> None:
    execute(server, f"ALTER ROLE backup PASSWORD '{password}'")
    url = server.set(username="backup", password=password)
    dumped = db("dump", tmp_path / "file", url=url)
    assert dumped.exit_code == 0, dumped.stderr
    restored = db("restore", "--force", tmp_path / "file", url=url)
    assert restored.exit_code == 0, restored.stderr


def check_refused(url: URL, option: str, tmp_path: Path) -> None:
    """`db dump` and `db restore` must refuse an option of a URL, without its value."""
    problem = f"Error: The programs of PostgreSQL cannot be given the option {option} of the database URL: it"
    dumped = db("dump", tmp_path / "other", url=url)
    assert (dumped.exit_code, dumped.stderr.startswith(problem)) == (1, True), dumped.stderr
    assert "s3cret" not in dumped.stderr
    assert not (tmp_path / "other").exists()
    restored = db("restore", "--force", tmp_path / "file", url=url)
    assert (restored.exit_code, restored.stderr.startswith(problem)) == (1, True), restored.stderr


def test_a_database_whose_name_ends_with_a_blank_is_refused(server: URL, tmp_path: Path) -> None:
    other = server.set(database=f"{server.database} ")
    execute(server, f'CREATE DATABASE "{other.database}" TEMPLATE "{server.database}"')
    assert db("dump", tmp_path / "file", url=server).exit_code == 0
    check_refused(other, "dbname", tmp_path)


@pytest.mark.parametrize("value", ["s3cret\nhost=/nowhere", "s3cret" * 200])
def test_options_that_a_service_file_cannot_hold_are_refused(server: URL, tmp_path: Path, value: str) -> None:
    assert db("dump", tmp_path / "file", url=server).exit_code == 0
    check_refused(server.update_query_dict({"sslpassword": value}), "sslpassword", tmp_path)
