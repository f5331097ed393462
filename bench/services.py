"""The services that are compared: start them, stop them, and send requests."""

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

from placement_svc.domain.version_header import EXTENSION_VERSIONS, EXTENSIONS, PLACEMENT, VERSION_HEADER

_HEADERS = {
    "X-Auth-Token": "admin",
    "Accept": "application/json",
    "Content-Type": "application/json",
}
VERSION = "1.39"
VERSION_WITH_EXTENSIONS = f"{VERSION}, {EXTENSIONS} {EXTENSION_VERSIONS[-1]}"
ADDRESS = "127.0.0.1"
WORKERS = 2
START_SECONDS = 60
POLL_SECONDS = 0.05
RESPONSE_TIMEOUT = 600.0
"""Seconds to wait for a response that is not measured."""

REFERENCE_MEMORY_BYTES = 6 * 1024**3
"""The memory limit of a process of the reference, which builds all combinations of a request."""

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
    """A service cannot be started or returns an error; the message includes its log or its response."""


def headers(version: str = VERSION) -> dict[str, str]:
    """Return the headers of a request with this microversion; other services may follow, after a comma."""
    return _HEADERS | {VERSION_HEADER: f"{PLACEMENT} {version}"}


@dataclass(frozen=True)
class Service:
    """A Placement service at `url`."""

    name: str
    url: str

    def connect(self, seconds: float = RESPONSE_TIMEOUT) -> HTTPConnection:
        """Return a connection with this timeout for each response."""
        parts = urlsplit(self.url)
        return HTTPConnection(parts.hostname or ADDRESS, parts.port, timeout=seconds)

    def send(
        self, connection: HTTPConnection, method: str, path: str, body: Any = None, version: str = VERSION
    ) -> tuple[int, bytes]:
        """Return the status and the body of the response.

        The connection is opened again if the service has closed it. Raises `TimeoutError` after the timeout
        of the connection, and `ServiceError` if the connection fails.
        """
        content = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, content, headers(version))
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError:
            raise
        except (OSError, HTTPException) as error:
            raise ServiceError(f"{method} {self.url}{path} failed: {error!r}") from error

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        version: str = VERSION,
        seconds: float = RESPONSE_TIMEOUT,
    ) -> bytes:
        """Return the body of the response on a new connection; raises the errors of `request_on`."""
        with closing(self.connect(seconds)) as connection:
            return self.request_on(connection, method, path, body, version)

    def request_on(
        self, connection: HTTPConnection, method: str, path: str, body: Any = None, version: str = VERSION
    ) -> bytes:
        """Return the body of the response.

        Raises the errors of `send`, and `ServiceError` for an error response.
        """
        status, content = self.send(connection, method, path, body, version)
        if status >= 300:
            raise ServiceError(f"{self.name}: {method} {path[:200]} returned {status}: {content[:300]!r}")
        return content


class Server:
    """A service and its processes, which can be restarted; a context manager.

    `command` contains `{port}` in place of the port to listen on. `memory` limits each process, in bytes.
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
        """Start the service and wait until it responds; raises `ServiceError` if it does not."""
        with self._log.open("ab") as log:
            # In a new session the processes do not receive Ctrl-C from the terminal; `stop` ends them.
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
                self.service.request("GET", "/", seconds=START_SECONDS)
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServiceError(
                    f"{self.service.name} did not start: {self._log.read_text(errors='replace')[-1000:]}"
                )
            time.sleep(POLL_SECONDS)

    @property
    def pid(self) -> int:
        """The process id of the running service."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Kill all processes; their state is not needed any more."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop and start the service, which ends a request that has timed out."""
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
    """Return the environment variables with `settings` as the only settings of a Placement service."""
    other = {name: value for name, value in os.environ.items() if not name.startswith(("PLACEMENT_", "OS_"))}
    return {**other, **settings}


@contextmanager
def serve_ours(url: str, directory: Path) -> Iterator[Server]:
    """Yield this service, running on the database at `url`, which must have the schema."""
    command = [sys.executable, "-m", "placement_svc.cli", "serve", "--workers", str(WORKERS), "--port"]
    with Server(
        "ours",
        [*command, "{port}"],
        # The service is killed, so it cannot delete its temporary files; they go to the temporary directory.
        _environ({"PLACEMENT_DATABASE_URL": url, "TMPDIR": str(directory)}),
        directory / "ours.log",
        memory=None,
    ) as server:
        yield server


@contextmanager
def serve_reference(python: Path, url: str, directory: Path) -> Iterator[Server]:
    """Yield OpenStack Placement, running on the database at `url`, which must be empty.

    `python` is the Python of the environment in which it is installed. Raises `ServiceError` if it is not
    installed there or does not start.
    """
    config = directory / "placement.conf"
    # oslo.config substitutes names that begin with a dollar sign; a doubled one stands for itself.
    config.write_text(REFERENCE_CONFIG.format(url=url.replace("$", "$$"), directory=directory))
    manage = python.parent / "placement-manage"
    if not manage.exists():
        raise ServiceError(
            f"{manage} does not exist: install the extra `bench`, or set --reference-python to the Python of"
            " an environment that has openstack-placement, gunicorn and psycopg2-binary"
        )
    synced = run(
        [manage, "--config-file", config, "db", "sync"], env=_environ({}), capture_output=True, text=True
    )
    if synced.returncode:
        raise ServiceError(f"The schema of the reference cannot be created: {synced.stderr[-1000:]}")
    command = [str(python), "-m", "gunicorn", "--workers", str(WORKERS), "--bind", f"{ADDRESS}:{{port}}"]
    with Server(
        "reference",
        [*command, "--timeout", str(int(RESPONSE_TIMEOUT)), "placement.wsgi.api:application"],
        _environ({"OS_PLACEMENT_CONFIG_DIR": str(directory)}),
        directory / "reference.log",
        REFERENCE_MEMORY_BYTES,
    ) as server:
        yield server
