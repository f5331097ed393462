"""Fixtures: the two services that are compared."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.differential.services import Service, api_request
from tests.support.service import free_port

VARIABLE = "REFERENCE_URL"
START_SECONDS = 60

SEEDS = range(*map(int, os.environ.get("REFERENCE_SEEDS", "0:4").split(":")))
"""Seeds of random requests; each seed is one test."""


@pytest.fixture(scope="session")
def reference() -> Service:
    """The reference. It must have no other client, and all of its data is deleted."""
    if VARIABLE not in os.environ:
        pytest.fail(f"{VARIABLE} is not set: see tests/differential/README.md", pytrace=False)
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail("these tests cannot run in parallel: use `-n 0`", pytrace=False)
    return Service(os.environ[VARIABLE].rstrip("/"))


@pytest.fixture(scope="session")
def ours(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """This service, with the same policy as the reference."""
    port = str(free_port())
    log = tmp_path_factory.mktemp("ours") / "log"
    command = [sys.executable, "-m", "placement_svc.cli", "serve", "--workers", "1", "--port", port]
    settings = {"PLACEMENT_DATABASE_URL": database_url, "PLACEMENT_POLICY_PROFILE": "legacy"}
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | settings)
    service = Service(f"http://127.0.0.1:{port}")
    try:
        _wait_until_ready(service, process, log)
        yield service
    finally:
        process.terminate()
        process.wait(timeout=START_SECONDS)


def _wait_until_ready(service: Service, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            service.send(api_request("GET", "/"))
            return
        except ConnectionError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


@pytest.fixture
def clear(reference: Service, ours: Service) -> Callable[[], None]:
    """A function that deletes all data of both services; it has already been called once."""

    def clear_both() -> None:
        reference.clear()
        ours.clear()

    clear_both()
    return clear_both
