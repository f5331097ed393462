"""PostgreSQL ends the session of a request during its commit: what the client is told is true."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flask.testing import FlaskClient
from sqlalchemy import text
from werkzeug.test import TestResponse

from placement_svc.app import create_app
from placement_svc.config import Settings
from placement_svc.db.connections.engine import connect
from tests.conftest import ADMIN
from tests.faults.test_claim import UNKNOWN, error_detail
from tests.faults.test_failover import CLAIM, PROVIDER, running_pair
from tests.support.failover import COMMIT, WAITS_FOR_STANDBY, FailoverPair
from tests.support.service import TIMEOUT, wait_until

BEFORE_GENERATIONS = ADMIN | {"OpenStack-API-Version": "placement 1.12"}
WAITS_FOR_LOCK = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


class Server:
    """A service and its PostgreSQL, whose commits can be made to wait for a standby that does not exist."""

    def __init__(self, pair: FailoverPair, threads: ThreadPoolExecutor) -> None:
        self._pair, self._threads = pair, threads
        self._app = create_app(Settings(database_url=pair.primary_url))

    @property
    def client(self) -> FlaskClient:
        return self._app.test_client()

    def send(self, method: str, uuid: str, body: Any = None, headers: Any = ADMIN) -> Future[TestResponse]:
        """Send a request for the allocations of a consumer from another thread."""
        path = f"/allocations/{uuid}"
        return self._threads.submit(self.client.open, path, method=method, json=body, headers=headers)

    def create_provider(self, name: str) -> Future[TestResponse]:
        """Create a provider in another thread."""
        return self._threads.submit(
            self.client.post, "/resource_providers", json={"name": name}, headers=ADMIN
        )

    def stored_generation(self, uuid: str) -> int | None:
        generation: int | None = self._pair.on_primary(
            f"SELECT generation FROM consumers WHERE uuid = '{uuid}'"
        )
        return generation

    def wait_for_standby(self) -> None:
        """Let all later commits wait."""
        self._pair.let_commits_wait()

    def resume(self) -> None:
        """Let commits end that wait, and all later ones."""
        self._pair.configure_primary("synchronous_standby_names = ''")
        # This commit waits if PostgreSQL has not resumed the earlier ones yet.
        self._pair.on_primary(COMMIT)

    def reset(self) -> None:
        """Set everything back."""
        self._pair.configure_primary("log_min_duration_statement = -1")
        self._pair.configure_primary("log_statement = 'none'")
        self.resume()

    def log_durations(self) -> None:
        self._pair.configure_primary("log_min_duration_statement = 0")

    def log_statements(self) -> None:
        self._pair.configure_primary("log_statement = 'all'")

    @contextmanager
    def locked_consumers(self) -> Iterator[None]:
        """Lock all consumers during the block."""
        engine = connect(self._pair.primary_url)
        with engine.begin() as connection:
            connection.execute(text("SELECT FROM consumers FOR UPDATE"))
            yield
        engine.dispose()

    def waiting_backend(self, query: str = WAITS_FOR_STANDBY) -> int:
        """Return the process that waits for a standby, or for what `query` finds, as soon as there is one."""
        wait_until(lambda: self._pair.on_primary(query) is not None)
        return int(self._pair.on_primary(query))

    def terminate_after_commit(self) -> None:
        """Terminate a backend whose commit waits; it does not notice before the commit has ended."""
        pid = self.waiting_backend()
        os.kill(pid, signal.SIGSTOP)
        self.resume()
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)

    def terminate(self, pid: int) -> None:
        """Terminate a backend and wait for its end."""
        assert self._pair.on_primary(f"SELECT pg_terminate_backend({pid}, {1000 * TIMEOUT})")


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


@pytest.fixture(scope="module")
def running(passable_dir: Path, threads: ThreadPoolExecutor) -> Iterator[Server]:
    with running_pair(passable_dir / "lost-commits") as pair:
        server = Server(pair, threads)
        host = {"name": "host", "uuid": PROVIDER}
        assert server.client.post("/resource_providers", json=host, headers=ADMIN).status_code == 200
        inventory = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}
        path = f"/resource_providers/{PROVIDER}/inventories"
        assert server.client.put(path, json=inventory, headers=ADMIN).status_code == 200
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    yield running
    running.reset()


@pytest.fixture
def consumer(server: Server) -> str:
    """A consumer with generation 1."""
    uuid = str(uuid4())
    assert server.send("PUT", uuid, CLAIM).result().status_code == 204
    return uuid


def claim_before_generations() -> dict[str, Any]:
    return {key: CLAIM[key] for key in ("allocations", "project_id", "user_id")}


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_interrupted_commit_is_a_success_only_when_it_is_on_the_standbys(
    server: Server, consumer: str, method: str
) -> None:
    server.wait_for_standby()
    sent = server.send(method, consumer, CLAIM | {"consumer_generation": 1} if method == "PUT" else None)
    server.terminate(server.waiting_backend())
    # The change is visible, but only on the primary.
    assert server.stored_generation(consumer) == (2 if method == "PUT" else None)
    server.waiting_backend()
    assert not sent.done()
    server.resume()
    assert sent.result().status_code == 204
    assert server.stored_generation(consumer) == (2 if method == "PUT" else None)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_outcome_is_unknown_if_the_standbys_remain_absent(server: Server, consumer: str, method: str) -> None:
    server.wait_for_standby()
    sent = server.send(method, consumer, CLAIM | {"consumer_generation": 1} if method == "PUT" else None)
    for _ in range(2):
        server.terminate(server.waiting_backend())
    assert error_detail(sent.result()) == UNKNOWN


def test_interrupted_commit_without_a_generation_is_not_repeated(server: Server, consumer: str) -> None:
    server.wait_for_standby()
    sent = server.send("PUT", consumer, claim_before_generations(), BEFORE_GENERATIONS)
    server.terminate(server.waiting_backend())
    assert error_detail(sent.result()) == UNKNOWN
    assert server.stored_generation(consumer) == 2


def test_release_that_waits_for_a_lock_is_repeated_also_if_its_statement_was_logged(
    server: Server, consumer: str
) -> None:
    server.log_statements()
    with server.locked_consumers():
        sent = server.send("DELETE", consumer)
        server.terminate(server.waiting_backend(WAITS_FOR_LOCK))
    assert sent.result().status_code == 204
    assert server.stored_generation(consumer) is None


def test_commit_is_not_repeated_if_its_session_ends_with_an_error_after_it(
    server: Server, consumer: str
) -> None:
    """A backend that is told to stop after the commit sends its error when it logs the duration."""
    server.log_durations()
    server.wait_for_standby()
    sent = server.send("PUT", consumer, claim_before_generations(), BEFORE_GENERATIONS)
    server.terminate_after_commit()
    assert error_detail(sent.result()) == UNKNOWN
    assert server.stored_generation(consumer) == 2


def test_transaction_is_not_repeated_if_its_session_ends_with_an_error_after_the_commit(
    server: Server,
) -> None:
    server.log_durations()
    server.wait_for_standby()
    sent = server.create_provider("another host")
    server.terminate_after_commit()
    assert error_detail(sent.result()) == UNKNOWN
    assert server.create_provider("another host").result().status_code == 409
