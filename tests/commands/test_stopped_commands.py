"""Signals that stop a command while it waits for the database or for another service."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from placement_svc.import_export.placement_client import THREADS
from tests.support.lock_waits import count_waiting
from tests.support.records import lines, provider
from tests.support.servers import run_in_thread
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


@contextmanager
def waiting(
    *arguments: str, database_url: str, engine: Engine
) -> Iterator[tuple[Connection, subprocess.Popen[str]]]:
    """Run a command that waits for the transaction of a connection; yield the connection and the process."""
    with engine.begin() as other:
        other.execute(text("INSERT INTO projects (external_id) VALUES ('open')"))
        with running(*arguments, database_url=database_url) as process:
            wait_until(lambda: count_waiting(engine) == 1)
            yield other, process


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
    with waiting("import", str(file), database_url=database_url, engine=engine) as (other, process):
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
    with waiting("audit", "--fix", database_url=database_url, engine=engine) as (other, process):
        check_stops(process, signal.SIGINT)
        wait_until(lambda: count_waiting(engine) == 0)
        other.rollback()


@pytest.mark.parametrize("command", [("audit", "--fix"), ("import", "FILE")])
def test_requests_continue_while_a_command_waits_for_a_lock(
    app: object, database_url: str, engine: Engine, file: Path, command: Sequence[str]
) -> None:
    arguments = [str(file) if each == "FILE" else each for each in command]
    with waiting(*arguments, database_url=database_url, engine=engine) as (other, process):
        with engine.begin() as request:
            request.execute(text("SET LOCAL statement_timeout = '8s'"))
            request.execute(text("SELECT FROM projects"))
            request.execute(text("INSERT INTO users (external_id) VALUES ('u')"))
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Waiting for other transactions")
        other.rollback()
        _, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, errors) == (0, "")


@contextmanager
def hanging_service(requests: int) -> Iterator[tuple[str, Event]]:
    """Run a service that lists providers and answers nothing about them; yield its URL.

    The event is set when so many requests hang.
    """
    hang, ended = Event(), Event()
    hanging: list[str] = []
    providers = [{"uuid": f"{number:032x}", "name": f"n{number}", "generation": 0} for number in range(20)]
    bodies = {
        "/": {"versions": [{"min_version": "1.0", "max_version": "1.39"}]},
        "/traits": {"traits": []},
        "/resource_classes": {"resource_classes": []},
        "/resource_providers": {"resource_providers": providers},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path not in bodies:
                hanging.append(path)
                if len(hanging) == requests:
                    hang.set()
                ended.wait()
                return
            body = json.dumps(bodies[path]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with run_in_thread(server):
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", hang
        finally:
            ended.set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_import_from_a_service_that_hangs_can_be_stopped(
    passable_dir: Path, number: signal.Signals
) -> None:
    data_dir = passable_dir / "data"
    with (
        hanging_service(THREADS) as (url, hang),
        running("import", "--from", url, "--token", "admin", data_dir=data_dir) as process,
    ):
        assert hang.wait(TIMEOUT)
        check_stops(process, number)
    assert not (data_dir / "postgres" / "postmaster.pid").exists()
