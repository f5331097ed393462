"""The command as a process of its own, and the service that it runs with clients that ask it."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
from prometheus_client.parser import text_string_to_metric_families

from placement_svc import config
from tests.conftest import ADMIN

PATIENCE = 60
"""Seconds after which something that should happen is taken to never happen."""

HEADERS = ADMIN | {"Content-Type": "application/json"}


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

    def result(self, method: str, path: str, body: Any = None) -> Any:
        """Return what the answer to a request says, which must succeed."""
        answer = self(method, path, body)
        assert 200 <= answer.status < 300, (method, path, answer)
        return answer.body


@dataclass(frozen=True)
class Program:
    """The command, as it runs."""

    process: subprocess.Popen[bytes]
    log: Path
    """The file of all that it writes."""

    temporary: Path
    """The directory for its temporary files."""

    def stop(self) -> str:
        """Tell it to stop if it still runs, and return what it has written when it has ended well."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> str:
        """Return what it has written when it has ended by itself, and well: it leaves nothing behind."""
        status = self.process.wait(PATIENCE)
        written = self.log.read_text()
        assert status == 0, written
        assert list(self.temporary.iterdir()) == []
        return written


@dataclass(frozen=True)
class Service(Program):
    """The service, as it runs."""

    port: int

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Client:
        """Return a new client."""
        return Client(self.port)

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Open a connection and send something."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        connection.sendall(sent)
        return connection

    def get(self, path: str, headers: dict[str, str] = ADMIN) -> tuple[int, str]:
        """Return status and body of an answer, asked for on a connection of its own."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request("GET", path, headers=headers | {"Connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all its labels."""
        status, told = self.get("/metrics")
        assert status == 200, told
        families = text_string_to_metric_families(told)
        return sum(found.value for family in families for found in family.samples if found.name == name)

    def lines(self) -> list[dict[str, Any]]:
        """Return what the lines of JSON say that have been logged so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def wait_until_it_answers(self) -> None:
        """Return once it answers; raises AssertionError if it ends before, or never does."""

        def answers() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            with suppress(OSError), urlopen(f"{self.url}/healthz", timeout=PATIENCE):
                return True
            return False

        wait_until(answers)


@contextmanager
def program(*arguments: str, **settings: object) -> Iterator[Program]:
    """Run the command, in a session of its own as a terminal would; what runs at the end is killed.

    It logs warnings only, unless told otherwise.
    """
    settings = {"log_level": "warning"} | settings
    env = {config.variable(name): str(value) for name, value in settings.items()}
    with tempfile.TemporaryDirectory() as directory:
        log, temporary = Path(directory, "log"), Path(directory, "tmp")
        temporary.mkdir()
        with (
            log.open("wb") as written,
            subprocess.Popen(
                [sys.executable, "-m", "placement_svc.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
                env=os.environ | env | {"TMPDIR": str(temporary)},
            ) as process,
        ):
            try:
                yield Program(process, log, temporary)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def started(workers: int = 1, threads: int = 4, **settings: object) -> Iterator[Service]:
    """Start a service; what still runs of it at the end is killed."""
    port = free_port()
    numbers = {"--port": port, "--workers": workers, "--threads": threads}
    options = [str(word) for option in numbers.items() for word in option]
    with program("serve", *options, **settings) as running:
        yield Service(running.process, running.log, running.temporary, port)


@contextmanager
def serving(workers: int = 1, threads: int = 4, **settings: object) -> Iterator[Service]:
    """Serve until the end of the block, where the service has to end well."""
    with started(workers, threads, **settings) as service:
        service.wait_until_it_answers()
        # One worker is enough to answer.
        wait_until(lambda: len(service.workers()) == workers)
        yield service
        written = service.stop()
        assert "Traceback" not in written, written


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def received(connection: socket.socket) -> bytes:
    """Return all that is received until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def wait_until(condition: Callable[[], object]) -> None:
    """Return once `condition()` holds; raises AssertionError if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
