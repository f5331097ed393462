"""nginx in front of several services, with the settings of deploy/nginx."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.service import THIS_VERSION, Client, Service, free_port, started, wait_until

ROOT = Path(__file__).parents[2]
PLACEMENT = ROOT / "deploy/nginx/placement.conf"

[_fail_timeout] = map(int, re.findall(r"fail_timeout=(\d+)s;", PLACEMENT.read_text()))

EXCLUDED_SECONDS = _fail_timeout + 1
"""Seconds for which nginx does not use a service that has refused a connection: it counts whole ones."""

MAIN = """
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/error.log warn;
events {{}}
http {{
    access_log {directory}/access.log;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    include {directory}/placement.conf;
}}
"""


@dataclass(frozen=True)
class Nginx:
    """A running nginx."""

    port: int
    error_log: Path

    def client(self) -> Client:
        """Return a new client."""
        return Client(self.port)


def _placement(port: int, upstreams: Sequence[int]) -> str:
    """Return deploy/nginx/placement.conf with another port and other services."""
    servers = "\n".join(rf"\1server 127.0.0.1:{upstream}\2" for upstream in upstreams)
    text, count = re.subn(r"( +)server api:8778(.*)", servers, PLACEMENT.read_text())
    text, listens = re.subn("listen 8080;", f"listen 127.0.0.1:{port};", text)
    assert (count, listens) == (1, 1)
    return text


@contextmanager
def nginx(directory: Path, upstreams: Sequence[int]) -> Iterator[Nginx]:
    """Run nginx in front of the services on these ports of loopback, which need not run yet."""
    port = free_port()
    (directory / "placement.conf").write_text(_placement(port, upstreams))
    main = directory / "nginx.conf"
    main.write_text(MAIN.format(directory=directory))
    errors = directory / "error.log"
    command = ["nginx", "-e", errors, "-p", directory, "-c", main]
    path = f"{os.environ['PATH']}:/usr/sbin"
    with subprocess.Popen(command, start_new_session=True, env=os.environ | {"PATH": path}) as process:
        try:
            running = Nginx(port, errors)
            wait_until(lambda: process.poll() is not None or running.client()("GET", "/").status == 200)
            assert process.poll() is None, errors.read_text()
            yield running
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


@contextmanager
def instance(database_url: str, port: int, command: Sequence[str] = THIS_VERSION) -> Iterator[Service]:
    """Run a service that is ready, of the release whose command is given; kill it at the end."""
    with started(command=command, port=port, database_url=database_url, proxy_headers=1) as service:
        service.wait_until_it_responds()
        wait_until(lambda: service.get("/readyz")[0] == 200)
        yield service
