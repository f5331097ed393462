"""The service behind PgBouncer in transaction mode, which shares sessions among clients."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine, make_url, text

from placement_svc.cli import main
from placement_svc.db import schema
from placement_svc.db.connections.connection_check import check_connection, missing_options
from placement_svc.db.connections.engine import Database, connect
from placement_svc.db.prepared import each_row
from placement_svc.domain.errors import Unavailable
from placement_svc.provisioning.installation import system_user
from tests.support.service import TIMEOUT, serving, wait_until

pytestmark = pytest.mark.cluster

PORT = 6432
CLIENTS = 8
CLAIMS = 20

CONFIGURATION = """
[databases]
* = host={host} port={port} user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = {directory}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
{option}
"""


@contextmanager
def pgbouncer(directory: Path, url: str, option: str = "") -> Iterator[str]:
    """Run PgBouncer in a new directory; yield the URL that connects through it."""
    server = make_url(url)
    directory.mkdir(mode=0o711)
    configuration = directory / "pgbouncer.ini"
    host, port = server.host or server.query["host"], server.port or 5432
    configuration.write_text(CONFIGURATION.format(host=host, port=port, directory=directory, option=option))
    owner = system_user() if os.geteuid() == 0 else None
    if owner:
        os.chown(directory, owner.pw_uid, owner.pw_gid)
    ids = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if owner else {}
    process = subprocess.Popen(["pgbouncer", "--quiet", configuration], cwd="/", **ids)  # type: ignore[call-overload]
    try:
        wait_until(lambda: _accepts_connections(directory / f".s.PGSQL.{PORT}"))
        yield f"postgresql://postgres@/{server.database}?host={directory}&port={PORT}"
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def _accepts_connections(path: Path) -> bool:
    """Whether a server listens on the socket; its file exists a moment before that."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    """The URL of a database of its own, with the schema, without PgBouncer."""
    url = new_database()
    engine = connect(url)
    schema.upgrade(engine)
    engine.dispose()
    return url


def test_refused_options_are_explained(passable_dir: Path, database: str) -> None:
    with pgbouncer(passable_dir / "strict", database) as url:
        engine = connect(url)
        with pytest.raises(Unavailable, match="ignore_startup_parameters = options"):
            check_connection(engine)


def test_dropped_options_are_noticed_and_can_be_set_for_the_role(
    passable_dir: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pgbouncer(passable_dir / "lax", database, "ignore_startup_parameters = options") as url:
        engine = connect(url)
        assert "lock_timeout" in missing_options(engine)
        engine.dispose()
        monkeypatch.setenv("PLACEMENT_DATABASE_URL", url)
        printed = CliRunner().invoke(main, ["db", "role-settings"], catch_exceptions=False)
        assert printed.exit_code == 0
        admin = create_engine(database, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            for statement in printed.output.splitlines():
                connection.execute(text(statement))
        admin.dispose()
        with pgbouncer(passable_dir / "lax2", database, "ignore_startup_parameters = options") as fresh:
            engine = connect(fresh)
            assert missing_options(engine) == []
            engine.dispose()


def test_statements_are_not_prepared_in_transaction_mode(
    passable_dir: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pgbouncer(passable_dir / "plain", database, "ignore_startup_parameters = options") as url:
        engine = connect(url, prepares_statements=True)
        pooled = Database(engine)
        for _ in range(3):
            assert pooled.read(lambda connection: list(each_row(connection, "SELECT 1"))) == [(1,)]
        count = text("SELECT count(*) FROM pg_prepared_statements")
        assert pooled.read(lambda connection: connection.scalar(count)) == 0
        engine.dispose()
    warnings = [each.message for each in caplog.records if "connection pooler" in each.message]
    assert len(warnings) == 1


def test_claims_and_searches_work_in_transaction_mode(passable_dir: Path, database: str) -> None:
    with (
        pgbouncer(passable_dir / "claims", database, "ignore_startup_parameters = options") as url,
        serving(1, 4, database_url=url) as service,
    ):
        client = service.client()
        root = str(uuid4())
        client.result("POST", "/resource_providers", {"name": root, "uuid": root})
        inventories = {
            "resource_provider_generation": 0,
            "inventories": {"VCPU": {"total": CLIENTS * CLAIMS}},
        }
        client.result("PUT", f"/resource_providers/{root}/inventories", inventories)

        def claim(_: int) -> int:
            own = service.client()
            found = 0
            for _ in range(CLAIMS):
                body = {
                    "allocations": {root: {"resources": {"VCPU": 1}}},
                    "project_id": "p",
                    "user_id": "u",
                    "consumer_generation": None,
                    "consumer_type": "INSTANCE",
                }
                own.result("PUT", f"/allocations/{uuid4()}", body)
                found += service.get("/allocation_candidates?resources=VCPU:1")[0] == 200
            return found

        with ThreadPoolExecutor(CLIENTS) as threads:
            assert sum(threads.map(claim, range(CLIENTS))) == CLIENTS * CLAIMS
        usages = service.client().result("GET", f"/resource_providers/{root}/usages")
        assert usages["usages"] == {"VCPU": CLIENTS * CLAIMS}
