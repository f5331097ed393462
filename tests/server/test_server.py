"""A service in a process of its own: slow clients, stopping, metrics of several workers, and logs."""

import json
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from sqlalchemy import make_url

from placement_svc import __version__
from placement_svc.db import revisions
from placement_svc.server.serve import GRACEFUL_TIMEOUT
from placement_svc.server.worker import STOP_KEEPALIVE_LINGER
from tests.conftest import LoadCloud
from tests.support.cloud import read
from tests.support.service import TIMEOUT, Service, received, serving, started, wait_until

pytestmark = pytest.mark.long

WORKERS, THREADS = 2, 2
CLIENT_TIMEOUT = 8
"""Seconds after which `short_timeout` disconnects a client; a busy machine delays no other one so long."""

TOKEN = "admin:a-secret-token"
PASSWORD = "a-secret-password"
ADMIN = {"X-Auth-Token": TOKEN, "OpenStack-API-Version": "placement 1.39"}


@pytest.fixture(scope="module")
def short_timeout(database_url: str) -> Iterator[Service]:
    """A service with a short client timeout."""
    with serving(WORKERS, THREADS, database_url=database_url, client_timeout=CLIENT_TIMEOUT) as service:
        yield service


POST = (
    b"POST /resource_providers HTTP/1.1\r\nHost: localhost\r\n"
    b"X-Auth-Token: admin\r\nContent-Type: application/json\r\n"
)
SLOW = {
    "silent": b"",
    "head": b"GET / HTTP/1.1\r\nHost: localhost\r\n",
    "body": POST + b"Content-Length: 1000\r\n\r\n{",
    "chunks": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{",
    "idle": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "open": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
}
"""The bytes that a slow client sends before it stops.

The last two are complete: the client sends no further request, or does not close the connection.
"""


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_slow_clients_do_not_block_others(short_timeout: Service, sent: bytes) -> None:
    slow = [short_timeout.connect(sent) for _ in range(10 * WORKERS * THREADS)]
    # If each of them occupied a thread until its timeout, this would take longer than the timeout of `get`.
    assert [short_timeout.get("/")[0] for _ in range(10)] == [200] * 10
    for connection in slow:
        connection.close()


def test_clients_that_send_too_slowly_are_disconnected(short_timeout: Service) -> None:
    def trickle(sent: bytes) -> bool:
        with short_timeout.connect(sent) as connection:
            connection.settimeout(0.2)
            deadline = time.monotonic() + TIMEOUT
            while time.monotonic() < deadline:
                try:
                    connection.sendall(b"x")
                    if not connection.recv(1000):
                        return True
                except TimeoutError:
                    continue
                except ConnectionError:
                    return True
        return False

    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(trickle, (SLOW["head"], SLOW["body"], POST)))


def test_response_aborted_at_the_deadline_lacks_its_last_chunk(
    database_url: str, load_cloud: LoadCloud
) -> None:
    load_cloud(read("; ".join(f"h{n}{{VCPU64}}; {n}c<h{n}{{VCPU64}}" for n in range(20))))
    groups = "&".join(f"resources{n}=VCPU:1" for n in range(1, 17))
    head = "Host: localhost\r\nX-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39\r\n\r\n"
    request = f"GET /allocation_candidates?{groups}&group_policy=none HTTP/1.1\r\n{head}"
    with serving(1, 1, database_url=database_url, request_deadline=8) as service:
        with service.connect(request.encode()) as connection:
            response = received(connection)
        assert response.startswith(b"HTTP/1.1 200")
        assert b"chunked" in response.split(b"\r\n\r\n")[0]
        assert not response.endswith(b"\r\n0\r\n\r\n")
        wait_until(lambda: service.metric("placement_responses_aborted_total") == 1)


def test_client_that_does_not_read_responses_is_disconnected(short_timeout: Service) -> None:
    request = (
        b"GET /traits HTTP/1.1\r\nHost: localhost\r\n"
        b"X-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39\r\n\r\n"
    )

    def send_until_disconnected(connection: socket.socket) -> None:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            with suppress(TimeoutError):
                connection.sendall(request * 100)

    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.2)
        connection.connect(("127.0.0.1", short_timeout.port))
        with pytest.raises(ConnectionError):
            send_until_disconnected(connection)
    assert short_timeout.get("/")[0] == 200


def test_parser_does_not_depend_on_what_is_installed(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gunicorn_h1c.py").write_text("class LimitRequestLine(Exception): pass")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serving(1, 1, database_url=database_url) as service:
        assert service.get("/")[0] == 200


def test_pipelined_requests_are_all_processed(short_timeout: Service) -> None:
    with short_timeout.connect(SLOW["idle"] * 3 + SLOW["open"]) as connection:
        assert received(connection).count(b"HTTP/1.1 200 OK\r\n") == 4


def test_buffered_body_is_deleted_after_the_response(short_timeout: Service) -> None:
    def buffer_files() -> set[str]:
        files = set[str]()
        for descriptor in (fd for pid in short_timeout.workers() for fd in Path(f"/proc/{pid}/fd").iterdir()):
            # A worker opens and closes other files meanwhile.
            with suppress(FileNotFoundError):
                files.add(str(descriptor.readlink()))
        return {file for file in files if file.endswith(" (deleted)")}

    before = buffer_files()
    body = b"x" * 2_000_000
    sent = POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with short_timeout.connect(sent + body) as connection:
        assert received(connection).startswith(b"HTTP/1.1 400 ")
    # Those of earlier requests may be deleted too.
    wait_until(lambda: buffer_files() <= before)


def test_query_may_have_two_hundred_request_groups(short_timeout: Service) -> None:
    groups = "&".join(f"resources_{n}=VCPU:1,MEMORY_MB:512&required_{n}=HW_CPU_X86_AVX2" for n in range(200))
    status, body = short_timeout.get(f"/allocation_candidates?{groups}&group_policy=none")
    assert (status, json.loads(body)["allocation_requests"]) == (200, [])


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/?" + "x" * 70_000, {}, 414),
        ("/", {f"X-{n}": "x" for n in range(100)}, 431),
        ("/", {"X-Long": "x" * 9_000}, 431),
    ],
)
def test_too_large_headers_are_rejected(
    short_timeout: Service, path: str, headers: dict[str, str], status: int
) -> None:
    assert short_timeout.get(path, headers)[0] == status


def test_longest_request_line_is_accepted(short_timeout: Service) -> None:
    padding = 65_536 - len("GET /?x= HTTP/1.1")
    assert [short_timeout.get("/?x=" + "x" * (padding + excess))[0] for excess in (0, 1)] == [200, 414]


class Client:
    """A client that sends requests until the service refuses connections, and collects errors before that.

    It may be delayed for so long that a stopping service closes its connection, which is no error.
    """

    def __init__(self, service: Service, keeps_alive: bool) -> None:
        self.service = service
        self.keeps_alive = keeps_alive
        self.responses = 0
        self.errors: list[str] = []

    def run(self) -> None:
        headers = ADMIN if self.keeps_alive else ADMIN | {"Connection": "close"}
        while True:
            connection = HTTPConnection("127.0.0.1", self.service.port, timeout=TIMEOUT)
            idle_since = time.monotonic()
            try:
                connection.connect()
            except ConnectionRefusedError:
                return
            with closing(connection):
                try:
                    while connection.sock is not None:
                        try:
                            connection.request("GET", "/traits", headers=headers)
                        finally:
                            idle_seconds = time.monotonic() - idle_since
                        response = connection.getresponse()
                        assert len(json.loads(response.read())["traits"]) > 100
                        self.responses += 1
                        idle_since = time.monotonic()
                except Exception as error:
                    if idle_seconds < STOP_KEEPALIVE_LINGER / 2:
                        self.errors.append(repr(error))
                    return


def test_stop_loses_no_request(database_url: str) -> None:
    with serving(WORKERS, THREADS, database_url=database_url) as service:
        clients = [Client(service, keeps_alive) for keeps_alive in (True, False) for _ in range(6)]
        with ThreadPoolExecutor(len(clients)) as threads:
            running = [threads.submit(client.run) for client in clients]
            wait_until(lambda: all(client.responses > 5 for client in clients))
            service.process.terminate()
            for done in running:
                done.result()
    assert [client.errors for client in clients] == [[]] * len(clients)


def test_stopping_service_is_not_ready_but_completes_requests_in_flight(database_url: str) -> None:
    body = b'{"name": "in flight"}'
    head = POST + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    with (
        serving(1, THREADS, database_url=database_url) as service,
        service.connect() as silent,
        service.connect(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n") as probe,
        service.connect(head + body[:1]) as in_flight,
    ):
        assert service.get("/readyz")[0] == 200
        service.process.terminate()
        # The only worker closes a connection without a request once it stops.
        assert received(silent) == b""
        probe.sendall(b"\r\n")
        assert received(probe).startswith(b"HTTP/1.1 503 ")
        in_flight.sendall(body[1:])
        assert received(in_flight).startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_service_can_be_stopped_as_soon_as_it_responds(database_url: str, number: signal.Signals) -> None:
    with started(WORKERS, THREADS, database_url=database_url) as service:
        service.wait_until_it_responds()
        service.process.send_signal(number)
        assert "Traceback" not in service.ended()


SLOW_START = """
import sys, time
from placement_svc.cli import main
from placement_svc.server.worker import Worker

def init_slowly(worker, init=Worker.init_process):
    print("A worker starts.", flush=True)
    time.sleep(2)
    init(worker)

Worker.init_process = init_slowly
main(sys.argv[1:])
"""


def test_service_can_be_stopped_while_its_workers_start(database_url: str) -> None:
    command = (sys.executable, "-c", SLOW_START)
    with started(WORKERS, THREADS, command=command, database_url=database_url) as service:
        wait_until(lambda: service.log.read_text().count("A worker starts.") == WORKERS)
        service.process.terminate()
        # Gunicorn kills workers that still run after the graceful timeout.
        service.process.wait(GRACEFUL_TIMEOUT / 2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_further_signals_do_not_change_how_a_service_ends(database_url: str, number: signal.Signals) -> None:
    with started(WORKERS, THREADS, database_url=database_url) as service:
        service.wait_until_it_responds()
        while service.process.poll() is None:
            service.process.send_signal(number)
            time.sleep(0.0005)
        assert "Traceback" not in service.ended()


@pytest.mark.parametrize("attempt", range(3))
def test_further_signals_do_not_change_how_a_start_ends(database_url: str, attempt: int) -> None:
    with started(WORKERS, THREADS, database_url=database_url) as service:
        wait_until(lambda: list(service.temporary.glob("placement-svc-*")))
        while service.process.poll() is None:
            service.process.terminate()
            time.sleep(0.0005)
        assert "Traceback" not in service.ended()


@pytest.mark.parametrize("attempt", range(3))
def test_sigint_does_not_wait_for_the_graceful_timeout(database_url: str, attempt: int) -> None:
    with started(WORKERS, THREADS, database_url=database_url) as service:
        service.wait_until_it_responds()
        clients = [Client(service, keeps_alive) for keeps_alive in (True, False) for _ in range(6)]
        with ThreadPoolExecutor(len(clients)) as threads:
            running = [threads.submit(client.run) for client in clients]
            wait_until(lambda: all(client.responses > 5 for client in clients))
            service.process.send_signal(signal.SIGINT)
            # Gunicorn kills workers that still run after the graceful timeout.
            service.process.wait(GRACEFUL_TIMEOUT / 2)
            for done in running:
                done.result()


def test_draining_service_is_not_ready_but_accepts_requests(database_url: str) -> None:
    with serving(WORKERS, THREADS, database_url=database_url, drain=TIMEOUT) as service:
        service.process.terminate()
        wait_until(lambda: service.get("/readyz") == (503, "The service is stopping.\n"))
        assert service.get("/healthz")[0] == 200
        assert service.get("/traits")[0] == 200
        # A second signal ends the drain.
        service.process.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def monitored(database_url: str) -> Iterator[Service]:
    """A service that logs JSON, with a database password, that logs every request as slow."""
    url = make_url(database_url).set(password=PASSWORD).render_as_string(hide_password=False)
    with serving(WORKERS, THREADS, database_url=url, slow_request=0, log_level="info") as service:
        yield service


def test_metrics_cover_all_workers_and_keep_the_counts_of_a_dead_one(monitored: Service) -> None:
    # The service responds as soon as its first worker runs.
    wait_until(lambda: monitored.metric("placement_pool_size_connections") == 10 * WORKERS)
    before = monitored.metric("placement_requests_total")
    for _ in range(20):
        monitored.get("/traits")
    # A request is counted after its response has been sent.
    wait_until(lambda: monitored.metric("placement_requests_total") == before + 20)
    monitored.kill_worker()
    wait_until(lambda: monitored.metric("placement_pool_size_connections") == 10 * WORKERS)
    assert monitored.metric("placement_requests_total") == before + 20


def test_empty_metrics_file_of_a_worker_is_ignored(monitored: Service) -> None:
    # A worker creates its files first, and may be killed before it writes to them.
    [directory] = monitored.temporary.glob("placement-svc-serve-*")
    directory.joinpath("counter_0.db").touch()
    wait_until(lambda: monitored.metric("placement_pool_size_connections") == 10 * WORKERS)


def test_startup_report_is_logged(monitored: Service, database_url: str) -> None:
    [report] = [line for line in monitored.log_records() if line["event"] == "start"]
    for common in ("timestamp", "level", "logger", "event"):
        del report[common]
    assert report == {
        "version": __version__,
        "url": f"http://127.0.0.1:{monitored.port}",
        "database": make_url(database_url).set(password=PASSWORD).render_as_string(),
        "schema": revisions.newest(),
        "commits": "on disk of the primary only (synchronous_commit=on)",
        "standbys": "none",
        "auth": "noauth",
        "policy": "secure",
        "workers": f"{WORKERS} of {THREADS} threads",
        "metrics": f"http://127.0.0.1:{monitored.port}/metrics",
    }


def test_log_has_no_secrets_and_each_line_is_json(monitored: Service) -> None:
    for sent in (
        b"GET /%0a%1b[31mfake?name=%0A HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: a-secret-token\r\n",
        b"GET /traits HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: a-secret-token:a-secret-project\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token a-secret-token\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: a-secret-token\x01\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token a-secret-token: x\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: x\r\n a-secret-token\r\n",
        b"GET / \x1b[31m\nfake HTTP/1.1\r\nHost: localhost\r\n",
    ):
        with monitored.connect(sent + b"Connection: close\r\n\r\n") as connection:
            response = received(connection)
            assert response.startswith(b"HTTP/1.1 ")
            assert b"a-secret-token" not in response
    assert monitored.get("/resource_providers?name=x", ADMIN)[0] == 200
    wait_until(lambda: any(line.get("query") == "name=x" for line in monitored.log_records()))
    text = monitored.log.read_text()
    assert "a-secret" not in text
    assert text.replace("\n", "").isprintable()
    logged = monitored.log_records()
    assert {line["logger"] for line in logged} >= {"gunicorn.error", "placement_svc.observability.access_log"}
    assert [line["path"] for line in logged if "fake" in line.get("path", "")] == ["/\n\x1b[31mfake"]
