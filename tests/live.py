"""The service as it is run: `placement-svc serve` with its workers, and clients that ask it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import orjson

PATIENCE = 60
"""Seconds after which something that should happen is taken to never happen."""

HEADERS = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": "placement 1.39",
    "Content-Type": "application/json",
}


@dataclass(frozen=True)
class Answer:
    """What a client was told; the status 0 means nothing, because the connection broke."""

    status: int
    body: Any = None

    @property
    def problem(self) -> str:
        """What is wrong with the request, or with the service."""
        return self.body["errors"][0]["detail"].splitlines()[-1].strip() if self.body else ""


class Client:
    """A client that sends one request after the other, as admin at the newest microversion."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        try:
            if self._connection.sock is None:
                self._connection.connect()
                self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection.request(method, path, None if body is None else orjson.dumps(body), HEADERS)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, HTTPException):
            self._connection.close()
            return Answer(0)
        return Answer(answer.status, orjson.loads(content) if content else None)


@dataclass(frozen=True)
class Service:
    """A running service."""

    port: int
    process: subprocess.Popen[bytes]

    def client(self) -> Client:
        """Return a new client."""
        return Client(self.port)

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def serving(database_url: str, workers: int = 2) -> Iterator[Service]:
    """Serve a database, whose schema is there, by a process of its own until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "placement_svc.cli", "serve"]
    with subprocess.Popen(
        [*command, "--port", str(port), "--workers", str(workers)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"PLACEMENT_DATABASE_URL": database_url, "PLACEMENT_LOG_LEVEL": "warning"},
    ) as process:
        try:
            service = Service(port, process)
            answers = service.client()
            wait_until(lambda: answers("GET", "/resource_providers").status == 200)
            yield service
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_until(condition: Any) -> None:
    """Return once `condition()` holds; raises AssertionError if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
