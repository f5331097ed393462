"""The database and the service of the demo, which last as long as the command."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen

from placement_svc.client.service_client import ClientError, ServiceClient
from placement_svc.http.microversion import NEWEST
from placement_svc.provisioning import embedded
from placement_svc.provisioning.database import upgrade
from placement_svc.provisioning.leftovers import record_data_dir, service_lock

HOST = "127.0.0.1"
TOKEN = "admin"
START_SECONDS = 60
POLL_SECONDS = 0.02


class DemoError(Exception):
    """The demo cannot run; the message gives the reason."""


@dataclass(frozen=True)
class DemoService:
    """The running service with a client, and the file that its output goes to."""

    client: ServiceClient
    process: Popen[bytes]
    log: Path

    def failure(self) -> DemoError:
        """Return an error with the last line that the service has logged."""
        lines = self.log.read_text(errors="replace").split("\n")
        return DemoError(f"The service failed: {next(filter(None, reversed(lines)), 'its log is empty')}")


def free_port(port: int) -> int:
    """Return `port`, or a free one for 0; raises `DemoError` if `port` is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise DemoError(
                f"The demo cannot listen on {HOST}:{port} ({error.strerror}):"
                " choose another port with --port, or any free one with --port 0"
            ) from None
        name: tuple[str, int] = probe.getsockname()
    return name[1]


@contextmanager
def database(data_dir: Path) -> Iterator[str]:
    """Yield the URL of a new embedded database with the current schema."""
    record_data_dir(data_dir.parent, data_dir)
    with embedded.start(data_dir) as running:
        upgrade(running.url)
        yield running.url


@contextmanager
def serving(database_url: str, port: int, directory: Path) -> Iterator[DemoService]:
    """Run `placement-svc serve` until the end of the block, and yield it when it is ready."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PLACEMENT_")}
    environ["PLACEMENT_DATABASE_URL"] = database_url
    environ |= {"PLACEMENT_LOG_FORMAT": "console", "PLACEMENT_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "placement_svc", "serve", "--port", str(port)]
    log = directory / "serve.log"
    with log.open("wb") as output, service_lock(directory) as lock:
        # In a session of its own, so that Ctrl-C on the terminal reaches only the demo.
        process = Popen(
            command,
            env=environ,
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[lock],
        )
        os.write(lock, str(process.pid).encode())
    try:
        client = ServiceClient(f"http://{HOST}:{port}", TOKEN, version=NEWEST)
        service = DemoService(client, process, log)
        _wait_until_ready(service)
        yield service
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(service: DemoService) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            service.client.get("/")
            return
        except ClientError:
            if service.process.poll() is not None or time.monotonic() > deadline:
                raise service.failure() from None
        time.sleep(POLL_SECONDS)
