"""The services that are compared: how they are started, and asked."""

import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from subprocess import DEVNULL, Popen, run
from typing import Any, Self
from urllib.parse import urlsplit

_HEADERS = {
    "X-Auth-Token": "admin",
    "Accept": "application/json",
    "Content-Type": "application/json",
}
VERSION = "1.39"
ADDRESS = "127.0.0.1"
WORKERS = 2
START_SECONDS = 60
POLL_SECONDS = 0.05
PATIENCE = 600.0
"""Seconds that an answer may take where its time does not matter."""

REFERENCE_MEMORY = 6 * 1024**3
"""Bytes that a process of the reference may have: it builds all combinations that there are."""

REFERENCE_CONFIG = """\
[api]
auth_strategy = noauth2
[placement_database]
connection = {url}
[oslo_policy]
enforce_new_defaults = false
enforce_scope = false
[oslo_concurrency]
lock_path = {directory}
"""


class ServiceError(Exception):
    """A service cannot be started, or does not answer as it should; the message says what it says."""


def headers(version: str = VERSION) -> dict[str, str]:
    """Return the headers of a request at a microversion."""
    return _HEADERS | {"OpenStack-API-Version": f"placement {version}"}


@dataclass(frozen=True)
class Service:
    """A placement service at `url`."""

    name: str
    url: str

    def connect(self, seconds: float = PATIENCE) -> HTTPConnection:
        """Return a connection, on which an answer may take so many seconds."""
        at = urlsplit(self.url)
        return HTTPConnection(at.hostname or ADDRESS, at.port, timeout=seconds)

    def send(
        self, connection: HTTPConnection, method: str, path: str, body: Any = None, version: str = VERSION
    ) -> tuple[int, bytes]:
        """Return status and body of the answer at a microversion.

        The connection is opened again when the service has closed it. Raises `TimeoutError` when the
        answer takes too long, and `ServiceError` when there is none.
        """
        sent = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, sent, headers(version))
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TimeoutError:
            raise
        except (OSError, HTTPException) as error:
            raise ServiceError(f"{method} {self.url}{path} has no answer: {error!r}") from error

    def ask(
        self, method: str, path: str, body: Any = None, version: str = VERSION, seconds: float = PATIENCE
    ) -> bytes:
        """Return the body of the answer on a connection of its own; raises like `ask_on`."""
        with closing(self.connect(seconds)) as connection:
            return self.ask_on(connection, method, path, body, version)

    def ask_on(
        self, connection: HTTPConnection, method: str, path: str, body: Any = None, version: str = VERSION
    ) -> bytes:
        """Return the body of the answer; raises like `send`, and `ServiceError` unless it is a success."""
        status, content = self.send(connection, method, path, body, version)
        if status >= 300:
            raise ServiceError(f"{self.name}: {method} {path[:200]} answers {status}: {content[:300]!r}")
        return content


class Server:
    """A service and the processes that run it, which can be started again; a context manager.

    In `command`, `{port}` stands for the port to listen on.
    """

    def __init__(
        self, name: str, command: Sequence[str], environ: Mapping[str, str], log: Path, memory: int | None
    ) -> None:
        port = _free_port()
        self.service = Service(name, f"http://{ADDRESS}:{port}")
        self._command = [part.format(port=port) for part in command]
        self._environ = environ
        self._log = log
        self._memory = memory
        self._process: Popen[bytes] | None = None

    def start(self) -> None:
        """Start the service and wait until it answers; raises `ServiceError` when it does not."""
        with self._log.open("ab") as log:
            # In a session of its own a terminal's Ctrl-C does not reach it: who has started it stops it.
            self._process = Popen(
                self._command,
                env=self._environ,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=partial(_limit_memory, self._memory) if self._memory else None,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(ServiceError, TimeoutError):
                self.service.ask("GET", "/", seconds=START_SECONDS)
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServiceError(
                    f"{self.service.name} does not run: {self._log.read_text(errors='replace')[-1000:]}"
                )
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End all processes at once, whatever they do: nothing of theirs is needed any more."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop and start: the way to end a request that nobody waits for."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _limit_memory(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _free_port() -> int:
    with socket.create_server((ADDRESS, 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def _environ(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with `settings`, and with no others of a placement service."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PLACEMENT_", "OS_"))}
    return {**kept, **settings}


@contextmanager
def serve_ours(url: str, directory: Path) -> Iterator[Server]:
    """Give this service, running on the database of `url`, which has the schema."""
    command = [sys.executable, "-m", "placement_svc.cli", "serve", "--workers", str(WORKERS), "--port"]
    with Server(
        "ours",
        [*command, "{port}"],
        # It is killed in the end, and leaves behind what it keeps in files.
        _environ({"PLACEMENT_DATABASE_URL": url, "TMPDIR": str(directory)}),
        directory / "ours.log",
        memory=None,
    ) as server:
        yield server


@contextmanager
def serve_reference(python: Path, url: str, directory: Path) -> Iterator[Server]:
    """Give OpenStack Placement, installed beside `python`, running on the empty database of `url`.

    Its schema is made first. Raises `ServiceError` when it is not installed there or does not run.
    """
    config = directory / "placement.conf"
    # A percent sign or a dollar would begin a name to oslo.config.
    config.write_text(REFERENCE_CONFIG.format(url=url.replace("$", "$$"), directory=directory))
    manage = python.parent / "placement-manage"
    if not manage.exists():
        raise ServiceError(
            f"There is no {manage}: install the extra `bench`, or name with --reference-python the python"
            " of an environment that has openstack-placement, gunicorn and psycopg2-binary"
        )
    synced = run(
        [manage, "--config-file", config, "db", "sync"], env=_environ({}), capture_output=True, text=True
    )
    if synced.returncode:
        raise ServiceError(f"The reference has no schema: {synced.stderr[-1000:]}")
    command = [str(python), "-m", "gunicorn", "--workers", str(WORKERS), "--bind", f"{ADDRESS}:{{port}}"]
    with Server(
        "reference",
        [*command, "--timeout", str(int(PATIENCE)), "placement.wsgi.api:application"],
        _environ({"OS_PLACEMENT_CONFIG_DIR": str(directory)}),
        directory / "reference.log",
        REFERENCE_MEMORY,
    ) as server:
        yield server
