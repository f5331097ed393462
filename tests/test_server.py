"""A real `serve`: slow clients, the way it stops, what its workers count together, and what it logs."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import make_url

from placement_svc import config
from placement_svc.db import schema
from tests.service import free_port

pytestmark = pytest.mark.long

SECONDS = 60
"""How long anything may take that is waited for."""

WORKERS, THREADS = 2, 2
TOKEN = "admin:a-secret-token"
PASSWORD = "a-secret-password"
ADMIN = {"X-Auth-Token": TOKEN, "OpenStack-API-Version": "placement 1.39"}


@dataclass(frozen=True)
class Service:
    """A running service: its process, its port, and the file of what it writes on standard error."""

    process: subprocess.Popen[bytes]
    port: int
    written: Path

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Open a connection and send something."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
        connection.sendall(sent)
        return connection

    def get(self, path: str, headers: dict[str, str] = ADMIN) -> tuple[int, str]:
        """Return status and body of an answer, asked for on a connection of its own."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as connection:
            connection.request("GET", path, headers=headers | {"Connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all its labels."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return sum(found.value for family in families for found in family.samples if found.name == name)

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def lines(self) -> list[dict[str, Any]]:
        """Return what the lines of JSON say that have been written so far."""
        return [json.loads(line) for line in self.written.read_text().splitlines()]


def received(connection: socket.socket) -> bytes:
    """Return all that is received until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def serving(directory: Path, **settings: object) -> Iterator[Service]:
    """Serve until the context ends, by then with all that the service has to clear away cleared away."""
    env = {config.variable(name): str(value) for name, value in settings.items()}
    temporary = directory / "tmp"
    temporary.mkdir()
    port, written = free_port(), directory / "log"
    command = [sys.executable, "-m", "placement_svc.cli", "serve", "--port", str(port)]
    with (
        written.open("wb") as output,
        subprocess.Popen(
            [*command, "--workers", str(WORKERS), "--threads", str(THREADS)],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | env | {"TMPDIR": str(temporary)},
        ) as process,
    ):
        service = Service(process, port, written)
        try:
            wait_until(lambda: _is_ready(service))
            yield service
            if process.poll() is None:
                process.terminate()
            assert process.wait(SECONDS) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert list(temporary.iterdir()) == []


def _is_ready(service: Service) -> bool:
    assert service.process.poll() is None, service.written.read_text()
    try:
        return service.get("/readyz")[0] == 200
    except (OSError, HTTPException):
        return False


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator[Service]:
    """A service that waits two seconds for its clients."""
    directory = tmp_path_factory.mktemp("impatient")
    with serving(directory, database_url=database_url, client_timeout=2) as service:
        yield service


POST = (
    b"POST /resource_providers HTTP/1.1\r\nHost: x\r\n"
    b"X-Auth-Token: admin\r\nContent-Type: application/json\r\n"
)
SLOW = {
    "silent": b"",
    "head": b"GET / HTTP/1.1\r\nHost: x\r\n",
    "body": POST + b"Content-Length: 1000\r\n\r\n{",
    "chunks": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{",
    "idle": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "open": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
}
"""What slow clients have sent when they fall silent: the last two only their next word, and their leave."""


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_slow_clients_do_not_stop_others(impatient: Service, sent: bytes) -> None:
    slow = [impatient.connect(sent) for _ in range(10 * WORKERS * THREADS)]
    # Each of them holding a thread until it is cut off would take longer than a client here waits.
    assert [impatient.get("/")[0] for _ in range(10)] == [200] * 10
    for connection in slow:
        connection.close()


def test_clients_that_take_too_long_to_ask_are_cut_off(impatient: Service) -> None:
    def trickle(sent: bytes) -> bool:
        with impatient.connect(sent) as connection:
            connection.settimeout(0.2)
            deadline = time.monotonic() + SECONDS
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


def test_client_that_does_not_take_its_answers_is_cut_off(impatient: Service) -> None:
    request = (
        b"GET /traits HTTP/1.1\r\nHost: x\r\n"
        b"X-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39\r\n\r\n"
    )

    def ask_on(connection: socket.socket) -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            with suppress(TimeoutError):
                connection.sendall(request * 100)

    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.2)
        connection.connect(("127.0.0.1", impatient.port))
        with pytest.raises(ConnectionError):
            ask_on(connection)
    assert impatient.get("/")[0] == 200


def test_body_takes_up_no_room_once_it_is_answered(impatient: Service) -> None:
    def kept() -> set[str]:
        files = [fd.readlink() for pid in impatient.workers() for fd in Path(f"/proc/{pid}/fd").iterdir()]
        return {str(file) for file in files if file.name.endswith(" (deleted)")}

    before = kept()
    body = b"x" * 2_000_000
    sent = POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with impatient.connect(sent + body) as connection:
        assert received(connection).startswith(b"HTTP/1.1 400 ")
    assert kept() == before


def test_two_hundred_groups_can_be_asked_for(impatient: Service) -> None:
    groups = "&".join(f"resources_{n}=VCPU:1,MEMORY_MB:512&required_{n}=HW_CPU_X86_AVX2" for n in range(200))
    status, body = impatient.get(f"/allocation_candidates?{groups}&group_policy=none")
    assert (status, json.loads(body)["allocation_requests"]) == (200, [])


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/?" + "x" * 70_000, {}, 414),
        ("/", {f"X-{n}": "x" for n in range(100)}, 431),
        ("/", {"X-Long": "x" * 9_000}, 431),
    ],
)
def test_head_that_is_too_large_is_refused(
    impatient: Service, path: str, headers: dict[str, str], status: int
) -> None:
    assert impatient.get(path, headers)[0] == status


class Client:
    """Asks again and again until nobody listens any more, and remembers what went wrong before."""

    def __init__(self, service: Service, keeps_alive: bool) -> None:
        self.service = service
        self.keeps_alive = keeps_alive
        self.answers = 0
        self.problems: list[str] = []

    def run(self) -> None:
        headers = ADMIN if self.keeps_alive else ADMIN | {"Connection": "close"}
        while True:
            connection = HTTPConnection("127.0.0.1", self.service.port, timeout=SECONDS)
            try:
                connection.connect()
            except ConnectionRefusedError:
                return
            with closing(connection):
                try:
                    while connection.sock is not None:
                        connection.request("GET", "/traits", headers=headers)
                        answer = connection.getresponse()
                        assert len(json.loads(answer.read())["traits"]) > 100
                        self.answers += 1
                except Exception as problem:
                    self.problems.append(repr(problem))
                    return


def test_service_that_stops_loses_no_request(tmp_path: Path, database_url: str) -> None:
    with serving(tmp_path, database_url=database_url, log_level="warning") as service:
        clients = [Client(service, keeps_alive) for keeps_alive in (True, False) for _ in range(6)]
        with ThreadPoolExecutor(len(clients)) as threads:
            running = [threads.submit(client.run) for client in clients]
            wait_until(lambda: all(client.answers > 5 for client in clients))
            service.process.terminate()
            for done in running:
                done.result()
    assert [client.problems for client in clients] == [[]] * len(clients)


def test_service_that_stops_is_not_ready_while_a_request_in_flight_ends(
    tmp_path: Path, database_url: str
) -> None:
    body = b'{"name": "in flight"}'
    head = POST + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    with serving(tmp_path, database_url=database_url) as service:
        probe = HTTPConnection("127.0.0.1", service.port, timeout=SECONDS)

        def readiness() -> int:
            probe.request("GET", "/readyz")
            answer = probe.getresponse()
            answer.read()
            return answer.status

        with closing(probe), service.connect(head + body[:1]) as in_flight:
            assert readiness() == 200
            service.process.terminate()
            wait_until(lambda: readiness() == 503)
            in_flight.sendall(body[1:])
            assert received(in_flight).startswith(b"HTTP/1.1 201 ")


def test_service_that_drains_says_so_and_goes_on(tmp_path: Path, database_url: str) -> None:
    with serving(tmp_path, database_url=database_url, drain=SECONDS) as service:
        service.process.terminate()
        wait_until(lambda: service.get("/readyz") == (503, "The service is stopping.\n"))
        assert service.get("/healthz")[0] == 200
        assert service.get("/traits")[0] == 200
        # Who told it once to stop may be in a hurry.
        service.process.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator[Service]:
    """A service that logs JSON, with a password for its database and a request timed as slow."""
    url = make_url(database_url).set(password=PASSWORD).render_as_string(hide_password=False)
    directory = tmp_path_factory.mktemp("watched")
    with serving(directory, database_url=url, slow_request=0) as service:
        yield service


def test_workers_count_together_and_what_a_dead_one_counted_stays(watched: Service) -> None:
    before = watched.metric("placement_requests_total")
    for _ in range(20):
        watched.get("/traits")
    # A request counts when its answer is there.
    wait_until(lambda: watched.metric("placement_requests_total") == before + 20)
    assert watched.metric("placement_pool_size_connections") == 10 * WORKERS
    killed = watched.workers()
    os.kill(killed[0], signal.SIGKILL)
    wait_until(lambda: len(watched.workers()) == WORKERS and watched.workers() != killed)
    wait_until(lambda: watched.metric("placement_pool_size_connections") == 10 * WORKERS)
    assert watched.metric("placement_requests_total") == before + 20


def test_start_is_reported(watched: Service, database_url: str) -> None:
    [report] = [line for line in watched.lines() if line["event"] == "start"]
    for told in ("timestamp", "level", "logger", "event"):
        del report[told]
    assert report == {
        "version": "0.1.0",
        "url": f"http://127.0.0.1:{watched.port}",
        "database": make_url(database_url).set(password=PASSWORD).render_as_string(),
        "schema": schema.newest(),
        "auth": "noauth",
        "policy": "secure",
        "workers": f"{WORKERS} of {THREADS} threads",
        "metrics": f"http://127.0.0.1:{watched.port}/metrics",
    }


def test_log_holds_no_secret_and_each_line_is_json(watched: Service) -> None:
    for sent in (
        b"GET /%0a%1b[31mfake?name=%0A HTTP/1.1\r\nHost: x\r\nX-Auth-Token: a-secret-token\r\n",
        b"GET /traits HTTP/1.1\r\nHost: x\r\nX-Auth-Token: a-secret-token:a-secret-project\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Auth-Token a-secret-token\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Auth-Token: a-secret-token\x01\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Auth-Token a-secret-token: x\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Auth-Token: x\r\n a-secret-token\r\n",
        b"GET / \x1b[31m\nfake HTTP/1.1\r\nHost: x\r\n",
    ):
        with watched.connect(sent + b"Connection: close\r\n\r\n") as connection:
            answer = received(connection)
            assert answer.startswith(b"HTTP/1.1 ")
            assert b"a-secret-token" not in answer
    watched.get("/resource_providers?name=x")
    wait_until(lambda: any(line.get("query") == "name=x" for line in watched.lines()))
    text = watched.written.read_text()
    assert "a-secret" not in text
    assert text.replace("\n", "").isprintable()
    lines = watched.lines()
    assert {line["logger"] for line in lines} >= {"gunicorn.error", "placement_svc.observe"}
    assert [line["path"] for line in lines if "fake" in line.get("path", "")] == ["/\n\x1b[31mfake"]
