"""Signals to the master, and workers that replace others: after SIGHUP, and after one was killed."""

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from placement_svc.server.serve import _Master
from tests.support.service import TIMEOUT, Service, serving, wait_until

ALLOWED = '"placement:traits:list": "@"\n'
REFUSED = '"placement:traits:list": "!"\n'


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy file that allows everyone to list traits."""
    path = tmp_path / "policy.yaml"
    path.write_text(ALLOWED)
    return path


@pytest.fixture
def service(database_url: str, policy: Path) -> Iterator[Service]:
    """A service of one worker with this policy."""
    with serving(1, database_url=database_url, policy_file=policy, log_level="info") as service:
        yield service


def events(service: Service, text: str) -> int:
    """Return how many log records contain a text."""
    return sum(text in record["event"] for record in service.log_records())


def reload_workers(service: Service) -> None:
    """Send SIGHUP, and wait until the workers before it have ended."""
    before = service.workers()
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: service.workers() and set(before).isdisjoint(service.workers()))


@pytest.mark.parametrize("replace", [Service.kill_worker, reload_workers])
def test_a_worker_starts_with_the_last_valid_content_of_an_invalid_file(
    service: Service, policy: Path, replace: Callable[[Service], None]
) -> None:
    assert service.get("/traits")[0] == 200
    policy.write_text(REFUSED)
    assert service.get("/traits")[0] == 403
    # Once by the worker, and once by the master, from which the next worker inherits it.
    wait_until(lambda: events(service, "Reloaded") == 2)
    policy.write_text("[broken")
    replace(service)
    wait_until(lambda: service.get("/healthz")[0] == 200)
    assert service.get("/traits")[0] == 403
    assert events(service, "its previous content stays in effect") >= 1
    policy.write_text(ALLOWED)
    assert service.get("/traits")[0] == 200


def test_a_reload_is_no_reason_to_send_requests_elsewhere(database_url: str) -> None:
    with serving(2, database_url=database_url, drain=TIMEOUT) as service:
        before = set(service.workers())
        service.process.send_signal(signal.SIGHUP)
        while not before.isdisjoint(service.workers()):
            assert service.get("/readyz")[0] == 200
        # A second signal ends the drain.
        service.process.terminate()
        service.process.send_signal(signal.SIGINT)


def test_a_signal_that_arrives_together_with_sigterm_is_not_forgotten() -> None:
    master = _Master.__new__(_Master)
    master.SIG_QUEUE = SimpleQueue()
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        master.SIG_QUEUE.put(number)
    assert master.wait_for_signals() == [signal.SIGHUP, signal.SIGTERM]
    assert master.wait_for_signals() == [signal.SIGINT]


def test_a_worker_starts_although_the_directory_of_the_metrics_was_removed(service: Service) -> None:
    [directory] = service.temporary.glob("placement-svc-serve-*")
    shutil.rmtree(directory)
    service.kill_worker()
    wait_until(lambda: service.get("/traits")[0] == 200)
    assert service.metric("placement_pool_size_connections") == 10
