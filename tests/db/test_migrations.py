"""Migrations: their history, concurrent upgrades, and services that run during and after an upgrade."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient
from pytest_alembic.tests import (
    test_model_definitions_match_ddl,
    test_single_head_revision,
    test_up_down_consistency,
)
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from placement_svc.cli import main
from placement_svc.db import revisions, schema
from placement_svc.db.tables import metadata
from placement_svc.domain.errors import Unavailable
from tests.conftest import ADMIN, NewApp
from tests.support.service import TIMEOUT, program, wait_until

__all__ = ["test_model_definitions_match_ddl", "test_single_head_revision", "test_up_down_consistency"]

ROOT = Path(__file__).parents[2]
NEXT = "next"
WAITING = """
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
     WHERE datname = current_database() AND locktype = :kind AND NOT granted
"""

NextRelease = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def url(new_database: Callable[[], str]) -> str:
    """The URL of an empty database."""
    return new_database()


@pytest.fixture
def empty(url: str) -> Engine:
    """An engine of that database."""
    return create_engine(url, poolclass=NullPool)


@pytest.fixture
def database(empty: Engine) -> Engine:
    """An engine of that database, upgraded to the newest schema."""
    schema.upgrade(empty)
    return empty


@pytest.fixture
def alembic_config() -> dict[str, Any]:
    """The migrations that pytest-alembic tests."""
    return {"file": str(ROOT / "alembic.ini")}


@pytest.fixture
def alembic_engine(empty: Engine) -> Iterator[Connection]:
    """The connection on which pytest-alembic runs them."""
    with empty.connect() as connection:
        yield connection


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NextRelease:
    """A context manager in which this code is the next release, with a migration that runs the given SQL."""

    @contextmanager
    def next_release(sql: str) -> Iterator[None]:
        (tmp_path / "alembic.ini").write_text(
            f"[alembic]\nscript_location = {ROOT}/migrations\npath_separator = newline\n"
            f"version_locations =\n  {ROOT}/migrations/versions\n  {tmp_path}\n"
        )
        (tmp_path / "next.py").write_text(
            f"from alembic import op\n\nrevision = {NEXT!r}\ndown_revision = {revisions.newest()!r}\n\n\n"
            f"def upgrade():\n    op.execute({sql!r})\n"
        )
        with monkeypatch.context() as patch:
            patch.setattr(revisions, "_INI", tmp_path / "alembic.ini")
            revisions._history.cache_clear()
            yield
        revisions._history.cache_clear()

    return next_release


def wait_for_waiting(engine: Engine, kind: str, sessions: int) -> None:
    """Wait until this number of sessions waits for a lock of this kind."""
    with engine.connect() as connection:
        wait_until(lambda: connection.scalar(text(WAITING), {"kind": kind}) == sessions)


def test_two_concurrent_commands_both_succeed(empty: Engine, url: str) -> None:
    with ExitStack() as running, empty.begin() as gate:
        gate.execute(text(f"SELECT pg_advisory_xact_lock({schema.SCHEMA_LOCK})"))
        two = [running.enter_context(program("db", "upgrade", database_url=url)) for _ in range(2)]
        wait_for_waiting(empty, "advisory", 2)
        gate.rollback()
        for command in two:
            assert "Traceback" not in command.ended()
    assert revisions.current(empty) == revisions.newest()


def test_waiting_for_another_upgrade_has_no_timeout(empty: Engine, url: str) -> None:
    limited = create_engine(url, poolclass=NullPool, connect_args={"options": "-c lock_timeout=1ms"})
    with ThreadPoolExecutor() as thread, empty.begin() as other:
        other.execute(text(f"SELECT pg_advisory_xact_lock({schema.SCHEMA_LOCK})"))
        waiting = thread.submit(schema.upgrade, limited)
        wait_for_waiting(empty, "advisory", 1)
        other.rollback()
        waiting.result()
    assert revisions.current(empty) == revisions.newest()


@pytest.mark.parametrize(
    ("sql", "option", "message"),
    [
        ("LOCK TABLE traits", "--lock-timeout", "did not get a lock on a table in 1 second, because"),
        ("SELECT pg_sleep(600)", "--statement-timeout", "took more than 1 second."),
    ],
)
def test_migration_that_waits_too_long_is_rolled_back_with_an_error_of_one_line(
    database: Engine, url: str, next_release: NextRelease, sql: str, option: str, message: str
) -> None:
    with next_release(f"CREATE TABLE notes (note text); {sql}"), database.begin() as other:
        other.execute(text("LOCK TABLE traits IN ACCESS SHARE MODE"))
        result = CliRunner().invoke(main, ["db", "upgrade", option, "1"], env={"PLACEMENT_DATABASE_URL": url})
        assert result.exit_code == 1
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert revisions.current(database) != NEXT
        assert not inspect(database).has_table("notes")


def test_migration_that_timed_out_can_be_repeated(database: Engine, next_release: NextRelease) -> None:
    with next_release("ALTER TABLE traits ADD COLUMN note text"):
        with database.begin() as other:
            other.execute(text("LOCK TABLE traits IN ACCESS SHARE MODE"))
            with pytest.raises(Unavailable):
                schema.upgrade(database, lock_timeout=0.1)
        schema.upgrade(database)
        assert revisions.current(database) == NEXT


@pytest.fixture
def service(database: Engine, url: str, new_app: NewApp) -> FlaskClient:
    """A client of a service of this release, which runs before a migration and after it."""
    return new_app(database_url=url).test_client()


def call(service: FlaskClient, method: str, path: str, json: Any = None) -> Any:
    response = service.open(path, method=method, json=json, headers=ADMIN)
    assert response.status_code < 300, response.text
    return response.json


def test_request_during_a_waiting_migration_succeeds(
    service: FlaskClient, database: Engine, next_release: NextRelease
) -> None:
    with (
        next_release("ALTER TABLE traits ADD COLUMN note text"),
        ThreadPoolExecutor() as threads,
        database.begin() as other,
    ):
        other.execute(text("LOCK TABLE traits IN ACCESS SHARE MODE"))
        migration = threads.submit(schema.upgrade, database, lock_timeout=TIMEOUT)
        wait_for_waiting(database, "relation", 1)
        request = threads.submit(call, service, "GET", "/traits")
        wait_for_waiting(database, "relation", 2)
        other.rollback()
        migration.result()
        assert "HW_CPU_X86_AVX" in request.result()["traits"]


def test_release_during_a_migration_of_several_tables_is_no_deadlock(
    database: Engine, next_release: NextRelease
) -> None:
    """A release locks its consumer, changes inventories, and then deletes the consumer."""
    locks = "LOCK TABLE consumers IN SHARE ROW EXCLUSIVE MODE; LOCK TABLE inventories IN SHARE MODE"
    with next_release(locks), ThreadPoolExecutor() as threads, database.begin() as release:
        release.execute(text("SELECT FROM consumers FOR UPDATE"))
        release.execute(text("UPDATE inventories SET used = used"))
        migration = threads.submit(schema.upgrade, database, lock_timeout=TIMEOUT)
        wait_for_waiting(database, "relation", 1)
        release.execute(text("DELETE FROM consumers"))
        release.commit()
        migration.result()
    assert revisions.current(database) == NEXT


def test_service_works_after_a_migration_added_a_column_to_every_table(
    service: FlaskClient, database: Engine, next_release: NextRelease
) -> None:
    with next_release("; ".join(f'ALTER TABLE "{table}" ADD COLUMN note text' for table in metadata.tables)):
        schema.upgrade(database)
    host, consumer, aggregate = (str(uuid4()) for _ in range(3))
    path = f"/resource_providers/{host}"
    call(service, "POST", "/resource_providers", {"name": "host", "uuid": host})
    for resource, body in {
        "inventories": {"inventories": {"VCPU": {"total": 8}}},
        "traits": {"traits": ["HW_CPU_X86_AVX"]},
        "aggregates": {"aggregates": [aggregate]},
    }.items():
        generation = call(service, "GET", path)["generation"]
        call(service, "PUT", f"{path}/{resource}", {"resource_provider_generation": generation} | body)
    query = f"resources=VCPU:2&required=HW_CPU_X86_AVX&member_of={aggregate}"
    [candidate] = call(service, "GET", f"/allocation_candidates?{query}")["allocation_requests"]
    owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE", "consumer_generation": None}
    call(service, "PUT", f"/allocations/{consumer}", candidate | owner)
    assert call(service, "GET", f"{path}/usages")["usages"] == {"VCPU": 2}
    call(service, "DELETE", f"/allocations/{consumer}")
    call(service, "DELETE", path)


def test_release_that_is_rolled_back_leaves_the_newer_schema_unchanged(
    database: Engine, url: str, next_release: NextRelease
) -> None:
    older = revisions.newest()
    with next_release("CREATE TABLE notes (note text)"):
        schema.upgrade(database)
    result = CliRunner().invoke(main, ["db", "upgrade"], env={"PLACEMENT_DATABASE_URL": url})
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(f" is at revision {NEXT}, which is newer than {older}\n")
    assert revisions.current(database) == NEXT
