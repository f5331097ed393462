"""The two services that are compared."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.differential.services import Service, ask
from tests.support.service import free_port

VARIABLE = "REFERENCE_URL"
START_SECONDS = 60

SEEDS = range(*map(int, os.environ.get("REFERENCE_SEEDS", "0:4").split(":")))
"""The seeds of random requests; each is a test of its own."""


@pytest.fixture(scope="session")
def reference() -> Service:
    """The reference, which has no other client; all that is in it will be deleted."""
    if VARIABLE not in os.environ:
        pytest.fail(f"{VARIABLE} is unset: see tests/differential/README.md", pytrace=False)
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail("One after the other, please: run with `-n 0`", pytrace=False)
    return Service(os.environ[VARIABLE].rstrip("/"))


@pytest.fixture(scope="session")
def ours(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """This service, with the policy that the reference was told to have."""
    port = str(free_port())
    log = tmp_path_factory.mktemp("ours") / "log"
    command = [sys.executable, "-m", "placement_svc.cli", "serve", "--workers", "1", "--port", port]
    settings = {"PLACEMENT_DATABASE_URL": database_url, "PLACEMENT_POLICY_PROFILE": "legacy"}
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | settings)
    service = Service(f"http://127.0.0.1:{port}")
    try:
        _wait_until_it_answers(service, process, log)
        yield service
    finally:
        process.terminate()
        process.wait(timeout=START_SECONDS)


def _wait_until_it_answers(service: Service, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            service.answer(ask("GET", "/"))
            return
        except ConnectionError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


@pytest.fixture
def clear(reference: Service, ours: Service) -> Callable[[], None]:
    """A function that leaves nothing in either service; it has been called once."""

    def both() -> None:
        reference.clear()
        ours.clear()

    both()
    return both
