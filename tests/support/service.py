"""Run the command line, and the service, in a process of its own, and send requests to it."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

import orjson
from prometheus_client.parser import text_string_to_metric_families

from placement_svc import config
from tests.conftest import ADMIN

T = TypeVar("T")

THIS_VERSION = (sys.executable, "-m", "placement_svc")
"""The command line of the code under test."""

TIMEOUT = 60
"""Seconds after which a test fails that waits for an event."""

HEADERS = ADMIN | {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """A response with its JSON body, if it has one; the status is 0 if the connection failed without one."""

    status: int
    body: Any = None

    @property
    def problem(self) -> str:
        """The last line of the error's detail."""
        return self.body["errors"][0]["detail"].splitlines()[-1].strip() if self.body else ""


class Client:
    """A client that sends one request after another, as admin at the newest microversion.

    Without `keeps_alive`, each request has a connection of its own, so that any worker may get it.
    `headers` are those of all its requests.
    """

    def __init__(self, port: int, *, keeps_alive: bool = True) -> None:
        self.headers = HEADERS if keeps_alive else HEADERS | {"Connection": "close"}
        self._connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)

    def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        try:
            if self._connection.sock is None:
                self._connection.connect()
                self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sent = None if body is None else orjson.dumps(body)
            self._connection.request(method, path, sent, self.headers)
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, HTTPException):
            self._connection.close()
            return Answer(0)
        is_json = response.headers.get_content_type() == "application/json"
        return Answer(response.status, orjson.loads(content) if content and is_json else None)

    def result(self, method: str, path: str, body: Any = None) -> Any:
        """Return the body of the response; the request must succeed."""
        response = self(method, path, body)
        assert 200 <= response.status < 300, (method, path, response)
        return response.body


@dataclass(frozen=True)
class Program:
    """A running command."""

    process: subprocess.Popen[bytes]
    log: Path
    """The file that its output goes to."""

    temporary: Path
    """The directory of its temporary files."""

    def stop(self) -> str:
        """Send SIGTERM if the command still runs; then do as `ended` does."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> str:
        """Wait for the end of the command; check its status and that it left no files; return its output."""
        status = self.process.wait(TIMEOUT)
        output = self.log.read_text()
        assert status == 0, output
        assert list(self.temporary.iterdir()) == []
        return output


@dataclass(frozen=True)
class Service(Program):
    """A running service."""

    port: int
    worker_count: int = 1

    @property
    def url(self) -> str:
        """The URL of the service."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, *, keeps_alive: bool = True) -> Client:
        """Return a new client."""
        return Client(self.port, keeps_alive=keeps_alive)

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Open a connection and send the bytes `sent`."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)
        connection.sendall(sent)
        return connection

    def get(self, path: str, headers: dict[str, str] = ADMIN) -> tuple[int, str]:
        """Return status and body of the response to a GET request on a new connection."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)) as connection:
            connection.request("GET", path, headers=headers | {"Connection": "close"})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all its labels."""
        status, text = self.get("/metrics")
        assert status == 200, text
        families = text_string_to_metric_families(text)
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)

    def log_records(self) -> list[dict[str, Any]]:
        """Return the JSON log records that the service has written so far."""
        # A line that crosses a memory page may be read while only its first part is there.
        lines = self.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def workers(self) -> list[int]:
        """Return the process ids of the workers that have not ended."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children if not has_ended(child)]

    def wait_for_workers(self) -> list[int]:
        """Wait until all workers run; return their process ids."""
        return wait_until(lambda: found if len(found := self.workers()) == self.worker_count else None)

    def kill_worker(self) -> None:
        """Kill a worker, and wait until another one has replaced it."""
        # Workers that were killed just before may not be replaced yet.
        killed = self.wait_for_workers()[0]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: killed not in self.workers())
        self.wait_for_workers()

    def wait_until_it_responds(self) -> None:
        """Wait until the service responds; raises AssertionError if it ends or does not respond in time."""

        def responds() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            with suppress(OSError), urlopen(f"{self.url}/healthz", timeout=TIMEOUT):
                return True
            return False

        wait_until(responds)


@contextmanager
def program(*arguments: str, command: Sequence[str] = THIS_VERSION, **settings: object) -> Iterator[Program]:
    """Run the command in a session of its own, like a terminal; kill it at the end if it still runs.

    Its log level is warning by default. `command` may be that of another release.
    """
    settings = {"log_level": "warning"} | settings
    env = {config.variable(name): str(value) for name, value in settings.items()}
    with tempfile.TemporaryDirectory() as directory:
        log, temporary = Path(directory, "log"), Path(directory, "tmp")
        temporary.mkdir()
        with (
            log.open("wb") as output,
            subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
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
def started(
    workers: int = 1,
    threads: int = 4,
    command: Sequence[str] = THIS_VERSION,
    port: int | None = None,
    **settings: object,
) -> Iterator[Service]:
    """Start a service, without waiting for it; kill it at the end if it still runs.

    It uses a free port by default.
    """
    port = port or free_port()
    numbers = {"--port": port, "--workers": workers, "--threads": threads}
    options = [str(word) for option in numbers.items() for word in option]
    with program("serve", *options, command=command, **settings) as running:
        yield Service(running.process, running.log, running.temporary, port, workers)


@contextmanager
def serving(workers: int = 1, threads: int = 4, **settings: object) -> Iterator[Service]:
    """Run a service that responds; at the end, stop it and check that it stops without an error."""
    with started(workers, threads, **settings) as service:
        service.wait_until_it_responds()
        # The service responds as soon as its first worker runs.
        service.wait_for_workers()
        yield service
        output = service.stop()
        assert "Traceback" not in output, output


def free_port() -> int:
    """Return an unused port, which a server that is stopped and started again finds free.

    It is not one of those that the system gives to outgoing connections. No other call returns it: each
    worker of pytest-xdist has ports of its own.
    """
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while True:
        port = random.randrange(first_outgoing // 2 + worker, first_outgoing, workers)
        if port in _returned_ports:
            continue
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _returned_ports.add(port)
            return port


_returned_ports: set[int] = set()


def has_ended(pid: str) -> bool:
    """Return whether a process has ended, whether or not its parent has noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def received(connection: socket.socket) -> bytes:
    """Return all bytes received until the other side closes the connection."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def wait_until(condition: Callable[[], T | None]) -> T:
    """Wait until `condition()` is true, and return it; raises AssertionError after `TIMEOUT` seconds."""
    deadline = time.monotonic() + TIMEOUT
    while not (value := condition()):
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.01)
    return value
