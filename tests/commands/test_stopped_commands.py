"""Signals that stop a command while it waits for the database or for another service."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from tests.support.lock_waits import count_waiting
from tests.support.records import lines, provider
from tests.support.service import TIMEOUT, wait_until

SECONDS = 5.0
"""Seconds in which a command must have ended; its interpreter needs some of them on a busy machine."""


@contextmanager
def running(*arguments: str, **settings: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a process of its own; kill it at the end if it still runs."""
    env = {"PATH": os.environ["PATH"]} | {f"PLACEMENT_{k.upper()}": str(v) for k, v in settings.items()}
    with subprocess.Popen(
        [sys.executable, "-m", "placement_svc", *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def check_stops(process: subprocess.Popen[str], *numbers: signal.Signals) -> None:
    """Send signals to a command; it must end in time, as after Ctrl-C, and say nothing else."""
    for number in numbers:
        process.send_signal(number)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output, errors.split()[-1:]) == (1, "", ["Aborted!"])
    assert "Traceback" not in errors


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one resource provider."""
    file = tmp_path / "cloud.jsonl"
    file.write_bytes(lines(provider("host")))
    return file


@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT, signal.SIGTERM)])
def test_an_import_that_waits_for_a_lock_can_be_stopped(
    app: object, database_url: str, engine: Engine, file: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    with engine.begin() as other:
        other.execute(text("INSERT INTO projects (external_id) VALUES ('open')"))
        with running("import", str(file), database_url=database_url) as process:
            wait_until(lambda: count_waiting(engine) == 1)
            check_stops(process, *numbers)
            wait_until(lambda: count_waiting(engine) == 0)
        other.rollback()
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM resource_providers")) == 0


def test_a_statement_of_an_audit_can_be_stopped(app: object, database_url: str, engine: Engine) -> None:
    with engine.begin() as other:
        other.execute(text("LOCK TABLE traits IN ACCESS EXCLUSIVE MODE"))
        with running("audit", database_url=database_url) as process:
            wait_until(lambda: count_waiting(engine) == 1)
            check_stops(process, signal.SIGINT)
            wait_until(lambda: count_waiting(engine) == 0)


def test_a_repair_that_waits_for_a_lock_can_be_stopped(
    app: object, database_url: str, engine: Engine
) -> None:
    with engine.begin() as other:
        other.execute(text("INSERT INTO projects (external_id) VALUES ('open')"))
        with running("audit", "--fix", database_url=database_url) as process:
            wait_until(lambda: count_waiting(engine) == 1)
            check_stops(process, signal.SIGINT)
            wait_until(lambda: count_waiting(engine) == 0)
        other.rollback()


def test_requests_continue_while_a_repair_waits_for_a_lock(
    app: object, database_url: str, engine: Engine
) -> None:
    with engine.begin() as other:
        other.execute(text("INSERT INTO projects (external_id) VALUES ('open')"))
        with running("audit", "--fix", database_url=database_url) as process:
            wait_until(lambda: count_waiting(engine) == 1)
            with engine.begin() as request:
                request.execute(text("SET LOCAL statement_timeout = '8s'"))
                request.execute(text("SELECT FROM projects"))
                request.execute(text("INSERT INTO users (external_id) VALUES ('u')"))
            assert process.stderr is not None
            assert process.stderr.readline().startswith("Waiting for other transactions")
            other.rollback()
            _, errors = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, errors) == (0, "")
