"""A real `serve`: slow clients, the way it stops, what its workers count together, and what it logs."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from sqlalchemy import make_url

from placement_svc.db import schema
from placement_svc.server.serve import GRACEFUL_TIMEOUT
from tests.support.service import PATIENCE, Service, received, serving, started, wait_until

pytestmark = pytest.mark.long

WORKERS, THREADS = 2, 2
TOKEN = "admin:a-secret-token"
PASSWORD = "a-secret-password"
ADMIN = {"X-Auth-Token": TOKEN, "OpenStack-API-Version": "placement 1.39"}


@pytest.fixture(scope="module")
def impatient(database_url: str) -> Iterator[Service]:
    """A service that waits two seconds for its clients."""
    with serving(WORKERS, THREADS, database_url=database_url, client_timeout=2) as service:
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
            deadline = time.monotonic() + PATIENCE
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
        deadline = time.monotonic() + PATIENCE
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


def test_requests_that_come_together_are_answered_in_turn(impatient: Service) -> None:
    with impatient.connect(SLOW["idle"] * 3 + SLOW["open"]) as connection:
        assert received(connection).count(b"HTTP/1.1 200 OK\r\n") == 4


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
            connection = HTTPConnection("127.0.0.1", self.service.port, timeout=PATIENCE)
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


def test_service_that_stops_loses_no_request(database_url: str) -> None:
    with serving(WORKERS, THREADS, database_url=database_url) as service:
        clients = [Client(service, keeps_alive) for keeps_alive in (True, False) for _ in range(6)]
        with ThreadPoolExecutor(len(clients)) as threads:
            running = [threads.submit(client.run) for client in clients]
            wait_until(lambda: all(client.answers > 5 for client in clients))
            service.process.terminate()
            for done in running:
                done.result()
    assert [client.problems for client in clients] == [[]] * len(clients)


def test_service_that_stops_is_not_ready_while_a_request_in_flight_ends(database_url: str) -> None:
    body = b'{"name": "in flight"}'
    head = POST + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    with serving(WORKERS, THREADS, database_url=database_url) as service:
        probe = HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_service_stops_as_soon_as_it_starts(database_url: str, number: signal.Signals) -> None:
    with started(WORKERS, THREADS, database_url=database_url) as service:
        service.wait_until_it_answers()
        service.process.send_signal(number)
        assert "Traceback" not in service.ended()


@pytest.mark.parametrize("attempt", range(3))
def test_service_that_is_interrupted_ends_at_once(database_url: str, attempt: int) -> None:
    with started(WORKERS, THREADS, database_url=database_url) as service:
        service.wait_until_it_answers()
        clients = [Client(service, keeps_alive) for keeps_alive in (True, False) for _ in range(6)]
        with ThreadPoolExecutor(len(clients)) as threads:
            running = [threads.submit(client.run) for client in clients]
            wait_until(lambda: all(client.answers > 5 for client in clients))
            service.process.send_signal(signal.SIGINT)
            # Gunicorn kills what still runs after its time of grace.
            service.process.wait(GRACEFUL_TIMEOUT / 2)
            for done in running:
                done.result()


def test_service_that_drains_says_so_and_goes_on(database_url: str) -> None:
    with serving(WORKERS, THREADS, database_url=database_url, drain=PATIENCE) as service:
        service.process.terminate()
        wait_until(lambda: service.get("/readyz") == (503, "The service is stopping.\n"))
        assert service.get("/healthz")[0] == 200
        assert service.get("/traits")[0] == 200
        # Who told it once to stop may be in a hurry.
        service.process.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def watched(database_url: str) -> Iterator[Service]:
    """A service that logs JSON, with a password for its database and a request timed as slow."""
    url = make_url(database_url).set(password=PASSWORD).render_as_string(hide_password=False)
    with serving(WORKERS, THREADS, database_url=url, slow_request=0, log_level="info") as service:
        yield service


def test_workers_count_together_and_what_a_dead_one_counted_stays(watched: Service) -> None:
    # The service answers as soon as one of its workers does.
    wait_until(lambda: watched.metric("placement_pool_size_connections") == 10 * WORKERS)
    before = watched.metric("placement_requests_total")
    for _ in range(20):
        watched.get("/traits")
    # A request counts when its answer is there.
    wait_until(lambda: watched.metric("placement_requests_total") == before + 20)
    killed = watched.workers()
    os.kill(killed[0], signal.SIGKILL)
    wait_until(lambda: len(watched.workers()) == WORKERS and watched.workers() != killed)
    wait_until(lambda: watched.metric("placement_pool_size_connections") == 10 * WORKERS)
    assert watched.metric("placement_requests_total") == before + 20


def test_worker_that_has_not_written_yet_what_it_counts_hides_no_metrics(watched: Service) -> None:
    # It makes its files first, and may be killed before it writes to them.
    [directory] = watched.temporary.glob("placement-metrics-*")
    directory.joinpath("counter_0.db").touch()
    wait_until(lambda: watched.metric("placement_pool_size_connections") == 10 * WORKERS)


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
    assert watched.get("/resource_providers?name=x", ADMIN)[0] == 200
    wait_until(lambda: any(line.get("query") == "name=x" for line in watched.lines()))
    text = watched.log.read_text()
    assert "a-secret" not in text
    assert text.replace("\n", "").isprintable()
    logged = watched.lines()
    assert {line["logger"] for line in logged} >= {"gunicorn.error", "placement_svc.observability.access_log"}
    assert [line["path"] for line in logged if "fake" in line.get("path", "")] == ["/\n\x1b[31mfake"]
