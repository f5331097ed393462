"""A real `serve` that writes its log to a file: to be connected to, counted and looked at."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from placement_svc import config
from tests.service import free_port

SECONDS = 60
"""How long anything may take that is waited for."""

WORKERS, THREADS = 2, 2
TOKEN = "admin:a-secret-token"
ADMIN = {"X-Auth-Token": TOKEN, "OpenStack-API-Version": "placement 1.39"}


@dataclass(frozen=True)
class Service:
    """A running service: its process, its port, and the file of what it writes on standard error."""

    process: subprocess.Popen[bytes]
    port: int
    written: Path

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Open a connection and send something."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
        connection.sendall(sent)
        return connection

    def get(self, path: str, headers: dict[str, str] = ADMIN) -> tuple[int, str]:
        """Return status and body of an answer, asked for on a connection of its own."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as connection:
            connection.request("GET", path, headers=headers | {"Connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all its labels."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return sum(found.value for family in families for found in family.samples if found.name == name)

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def lines(self) -> list[dict[str, Any]]:
        """Return what the lines of JSON say that have been written so far."""
        return [json.loads(line) for line in self.written.read_text().splitlines()]


def received(connection: socket.socket) -> bytes:
    """Return all that is received until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def serving(directory: Path, **settings: object) -> Iterator[Service]:
    """Serve until the context ends, by then with all that the service has to clear away cleared away."""
    env = {config.variable(name): str(value) for name, value in settings.items()}
    temporary = directory / "tmp"
    temporary.mkdir()
    port, written = free_port(), directory / "log"
    command = [sys.executable, "-m", "placement_svc.cli", "serve", "--port", str(port)]
    with (
        written.open("wb") as output,
        subprocess.Popen(
            [*command, "--workers", str(WORKERS), "--threads", str(THREADS)],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | env | {"TMPDIR": str(temporary)},
        ) as process,
    ):
        service = Service(process, port, written)
        try:
            wait_until(lambda: _is_ready(service))
            yield service
            if process.poll() is None:
                process.terminate()
            assert process.wait(SECONDS) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert list(temporary.iterdir()) == []


def _is_ready(service: Service) -> bool:
    assert service.process.poll() is None, service.written.read_text()
    try:
        return service.get("/readyz")[0] == 200
    except (OSError, HTTPException):
        return False
