"""The service as a process of its own, run by its command."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import orjson

from placement_svc import config

START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def program(*arguments: str, **settings: object) -> Iterator[subprocess.Popen[str]]:
    """Run the command as a process, in a session of its own, as a terminal would.

    It logs warnings only, unless told otherwise: a pipe that nobody reads until the end is soon full.
    """
    settings = {"log_level": "warning"} | settings
    env = {config.variable(name): str(value) for name, value in settings.items()}
    with subprocess.Popen(
        [sys.executable, "-m", "placement_svc.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | env,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def serve(port: int, **settings: object) -> Any:
    return program("serve", "--port", str(port), "--workers", "1", **settings)


def request(port: int, method: str, path: str, body: object = None) -> Any:
    headers = {
        "X-Auth-Token": "admin",
        "OpenStack-API-Version": "placement 1.39",
        "Content-Type": "application/json",
    }
    data = None if body is None else orjson.dumps(body)
    with urlopen(
        Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method), timeout=30
    ) as answer:
        content = answer.read()
    return orjson.loads(content) if content else None


def wait_until_served(port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            request(port, "GET", "/")
            return
        except (URLError, ConnectionError):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)


def ended(process: subprocess.Popen[str]) -> str:
    """Return what a process that ended well wrote on standard error."""
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    return errors


@contextmanager
def serving(**settings: object) -> Iterator[int]:
    """Serve as long as the context lasts, on the port that it gives; it has to end well."""
    port = free_port()
    with serve(port, **settings) as process:
        wait_until_served(port, process)
        yield port
        process.terminate()
        ended(process)
