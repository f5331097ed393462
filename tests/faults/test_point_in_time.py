"""A base backup and the archived log restore the database as it was at a time, under load."""

import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import Engine, create_engine, make_url, text

from placement_svc.config import Settings
from placement_svc.db import schema
from placement_svc.db.connections.engine import connect
from placement_svc.provisioning import embedded
from tests.conftest import ADMIN, application
from tests.support.failover import make_directory, run_program
from tests.support.service import wait_until
from tests.support.soundness import audit_faults

SECTION = (
    (Path(__file__).parents[2] / "docs/operations.md")
    .read_text()
    .split("### Restore to a point in time\n")[1]
    .split("\n## ")[0]
)
ARCHIVING, RECOVERY = re.findall(r"```ini\n(.*?)```", SECTION, re.S)
[BASE_BACKUP] = re.findall(r"```sh\n(.*?)```", SECTION, re.S)

HOSTS = [str(uuid4()) for _ in range(3)]
CLIENTS = 4
PHASE_CLAIMS = 40
"""How many claims are granted at least in each phase of the test."""


def settings_of(block: str, directory: Path) -> str:
    """Return documented settings with the archive in a directory of the test."""
    return block.replace("/srv/", f"{directory}/")


@dataclass
class Ledger:
    """Claims with the times before the request and after the response that granted it."""

    entries: list[tuple[str, float, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def claim_until(self, app: Flask, stopped: threading.Event) -> None:
        """Claim for new consumers until `stopped` is set."""
        client = app.test_client()
        while not stopped.is_set():
            consumer, host = str(uuid4()), HOSTS[len(self.entries) % len(HOSTS)]
            body = {
                "allocations": {host: {"resources": {"VCPU": 1}}},
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            }
            before = time.time()
            response = client.put(f"/allocations/{consumer}", json=body, headers=ADMIN)
            if response.status_code == 204:
                self.entries.append((consumer, before, time.time()))
            else:
                self.problems.append(response.text)

    def wait_for_more(self) -> None:
        """Wait until `PHASE_CLAIMS` more claims are granted."""
        number = len(self.entries) + PHASE_CLAIMS
        wait_until(lambda: len(self.entries) >= number)


@pytest.fixture
def primary(passable_dir: Path) -> Iterator[tuple[str, Engine]]:
    """The URL of a server that archives its log, with the schema, and an engine for administration."""
    make_directory(passable_dir / "archive")
    with embedded.start(passable_dir / "primary") as running:
        engine = create_engine(running.url)
        schema.upgrade(engine)
        engine.dispose()
    with (passable_dir / "primary/postgres/postgresql.auto.conf").open("a") as file:
        file.write(settings_of(ARCHIVING, passable_dir))
    with embedded.start(passable_dir / "primary") as running:
        engine = create_engine(running.url, isolation_level="AUTOCOMMIT")
        yield running.url, engine
        engine.dispose()


def add_hosts(app: Flask) -> None:
    client = app.test_client()
    for uuid in HOSTS:
        body = {"name": uuid, "uuid": uuid}
        assert client.post("/resource_providers", json=body, headers=ADMIN).status_code == 200
        inventories = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1_000_000}}}
        path = f"/resource_providers/{uuid}/inventories"
        assert client.put(path, json=inventories, headers=ADMIN).status_code == 200


def archive_all(admin: Engine) -> None:
    """End the current file of the log, and wait until it is archived."""
    with admin.connect() as connection:
        last = connection.scalar(text("SELECT pg_walfile_name(pg_switch_wal())"))

        def is_archived() -> bool:
            archived = connection.scalar(text("SELECT last_archived_wal FROM pg_stat_archiver"))
            return archived is not None and archived >= last

        wait_until(is_archived)


def back_up(url: str, directory: Path) -> None:
    """Write a base backup to `directory/base` with the documented command."""
    program, *arguments = settings_of(BASE_BACKUP, directory).split()
    server = make_url(url)
    make_directory(directory / "base")
    run_program(program, f"--host={server.query['host']}", "--username=postgres", *arguments)


def restore(directory: Path, target: str) -> Path:
    """Return a data directory with the base backup, configured to recover until a time."""
    recovery, replaced = re.subn(r"(?<=recovery_target_time = ').*(?=')", target, RECOVERY)
    assert replaced == 1
    restored = directory / "restored"
    make_directory(restored)
    base = directory / "base"
    (base / "recovery.signal").touch()
    shutil.chown(base / "recovery.signal", base.stat().st_uid, base.stat().st_gid)
    with (base / "postgresql.auto.conf").open("a") as file:
        file.write(settings_of(recovery, directory))
    base.rename(restored / "postgres")
    # The directory of the embedded PostgreSQL has these files.
    (restored / "start.lock").touch(mode=0o600)
    return restored


def test_a_restore_to_a_time_has_the_claims_until_then(
    primary: tuple[str, Engine], passable_dir: Path
) -> None:
    url, admin = primary
    ledger, stopped = Ledger(), threading.Event()
    with application(Settings(database_url=url)) as app:
        add_hosts(app)
        threads = [threading.Thread(target=ledger.claim_until, args=(app, stopped)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            ledger.wait_for_more()
            back_up(url, passable_dir)
            ledger.wait_for_more()
            with admin.connect() as connection:
                target = connection.execute(
                    text("SELECT statement_timestamp()::text, extract(epoch FROM statement_timestamp())")
                ).one()
            ledger.wait_for_more()
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
    archive_all(admin)

    with embedded.start(restore(passable_dir, target[0])) as running:
        engine = connect(running.url)
        with engine.connect() as connection:
            stored = set(map(str, connection.scalars(text("SELECT uuid FROM consumers"))))
            assert connection.scalar(text("SELECT sum(used) FROM inventories")) == len(stored)
        assert audit_faults(engine) == {}
        engine.dispose()
    assert ledger.problems == []
    moment = float(target[1])
    assert {consumer for consumer, _, after in ledger.entries if after < moment} <= stored
    assert {consumer for consumer, before, _ in ledger.entries if before > moment}.isdisjoint(stored)
    assert len(stored) >= 2 * PHASE_CLAIMS
