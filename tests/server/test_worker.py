"""A worker rejects invalid HTTP, and buffers large bodies."""

import html
import logging
import socket
from collections.abc import Iterator
from io import BytesIO
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
from flask import Flask
from gunicorn.config import Config
from gunicorn.http import errors
from gunicorn.workers.gthread import TConn

from placement_svc.config import Settings
from placement_svc.http.environ import IS_CLIENT_GONE
from placement_svc.http.log_text import MAX_LENGTH
from placement_svc.server import logs
from placement_svc.server.arrivals import MAX_BODY_IN_MEMORY
from placement_svc.server.bodies import BodyOnDemand, read_body
from placement_svc.server.slots import READ_SLOTS, Slot
from placement_svc.server.worker import Worker
from tests.support.service import received, wait_until

LARGE = MAX_BODY_IN_MEMORY + 1


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker that has not started."""
    worker = Worker(0, 0, [], SimpleNamespace(settings=Settings(), concurrency=1), 30, Config(), None)
    yield worker
    worker.tmp.close()


def test_database_connections_suffice(worker: Worker) -> None:
    """For the short requests, the long ones, and one with a large body that does not count as long yet."""
    long = 0
    while worker.slots.long_requests.acquire(0):
        long += 1
    assert worker.settings.pool_size == worker.app.concurrency + READ_SLOTS + long + 1


def buffered(body: bytes) -> BinaryIO:
    """Return the body that the application reads when a client sends `body`."""
    return BodyOnDemand(lambda: read_body(BytesIO(body), len(body), Settings().max_body)[0])


@pytest.fixture
def disk_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement_svc.server.bodies.MIN_FREE_BYTES", 2**62)


def test_large_body_is_buffered() -> None:
    with buffered(b"x" * LARGE) as body:
        assert body.read() == b"x" * LARGE


@pytest.mark.usefixtures("disk_full")
def test_small_body_is_buffered_although_the_disk_is_full() -> None:
    with buffered(b"x" * MAX_BODY_IN_MEMORY) as body:
        assert body.read() == b"x" * MAX_BODY_IN_MEMORY


@pytest.mark.usefixtures("disk_full")
def test_large_body_gets_503_while_the_disk_is_full(app: Flask) -> None:
    with buffered(b"x" * LARGE) as body:
        response = app.test_client().post(
            "/resource_providers",
            content_type="application/json",
            headers={"X-Auth-Token": "admin"},
            environ_overrides={"CONTENT_LENGTH": str(LARGE), "wsgi.input": body},
        )
    assert response.status_code == 503
    assert "no room for a body of this size" in response.get_data(as_text=True)


def test_connection_made_before_gunicorn_started_sends_packets_at_once(worker: Worker) -> None:
    accepted: list[TConn] = []
    worker.reception = SimpleNamespace(await_request=accepted.append)  # type: ignore[assignment]
    worker.worker_connections = 2
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()):
            assert worker.accept(listener)
        (connection,) = accepted
        with connection.sock as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


class Connection:
    """A client of `worker`, with the log at level debug."""

    def __init__(self, worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
        worker.cfg.set("loglevel", "debug")
        worker.log = logs.GunicornLogger(worker.cfg)
        worker.application = self._run
        worker.wsgi = worker._run_application
        self.worker = worker
        self.caplog = caplog

    def _run(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        environ["wsgi.input"].read()
        if environ["PATH_INFO"].startswith("/fail"):
            raise ValueError("A bug.")
        start_response("200 OK", [("Content-Length", "0")])
        return []

    def send(self, sent: bytes) -> bytes:
        """Send bytes, close the sending side, and return all bytes of the response."""
        client, server = socket.socketpair()
        with client, server:
            connection = TConn(self.worker.cfg, server, ("192.0.2.1", 1), ("192.0.2.2", 8778))
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            self.worker.handle(connection)
            server.shutdown(socket.SHUT_WR)
            return received(client)

    def logged(self) -> str:
        """Return the log as text."""
        return "\n".join(map(logs.formatter("json").format, self.caplog.records))


@pytest.fixture
def connection(worker: Worker, caplog: pytest.LogCaptureFixture) -> Connection:
    caplog.set_level(logging.DEBUG)
    return Connection(worker, caplog)


HEAD = b"POST /traits HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
INVALID = {
    "line": (b"a-secret\r\n\r\n", 400),
    "line of three words": (b"X-Auth-Token: a-secret x\r\n\r\n", 400),
    "line with a bare LF": (b"GET /a-secret\n HTTP/1.1\r\n\r\n", 400),
    "method": (b"a-secret / HTTP/1.1\r\n\r\n", 400),
    "long method": (b"A-SECRET" * 20 + b" / HTTP/1.1\r\n\r\n", 400),
    "target": (b"GET a-secret HTTP/1.1\r\n\r\n", 400),
    "characters of the target": (b"GET /a-secret\x01 HTTP/1.1\r\n\r\n", 400),
    "bracket in the target": (b"GET http://[a-secret HTTP/1.1\r\n\r\n", 400),
    "version": (b"GET / a-secret\r\n\r\n", 400),
    "header without a colon": (HEAD + b"X-Auth-Token a-secret\r\n\r\n", 400),
    "header name": (HEAD + b"X a-secret: x\r\n\r\n", 400),
    "header value": (HEAD + b"X-Auth-Token: a-secret\x01\r\n\r\n", 400),
    "folded header": (HEAD + b"X-Auth-Token: x\r\n a-secret\r\n\r\n", 400),
    "host": (HEAD + b"Host: a-secret\r\n\r\n", 400),
    "length": (HEAD + b"Content-Length: a-secret\r\n\r\n", 400),
    "expectation": (HEAD + b"Expect: a-secret\r\n\r\n", 417),
    "transfer coding": (HEAD + b"Transfer-Encoding: a-secret\r\n\r\n", 400),
    "chunk size": (CHUNKED + b"a-secret\r\n\r\n", 400),
    "chunk size with an extension": (CHUNKED + b"a-secret;a-secret=x\r\n\r\n", 400),
    "chunk extension": (CHUNKED + b"1; =a-secret\r\nx\r\n0\r\n\r\n", 400),
    "end of a chunk": (CHUNKED + b"1\r\nxa-secret\r\n0\r\n\r\n", 400),
    "trailer": (CHUNKED + b"0\r\nX-Auth-Token a-secret\r\n\r\n", 400),
    "trailer name": (CHUNKED + b"0\r\nX a-secret: x\r\n\r\n", 400),
    "long header": (HEAD + b"X-Auth-Token: " + b"a-secret" * 2000 + b"\r\n\r\n", 431),
}
"""Requests that gunicorn rejects, with the status."""


@pytest.mark.parametrize(("sent", "status"), INVALID.values(), ids=INVALID)
def test_invalid_request_is_not_quoted(connection: Connection, sent: bytes, status: int) -> None:
    response = connection.send(sent)
    assert response.startswith(b"HTTP/1.1 %d " % status)
    assert response.count(b"HTTP/1.1 ") == 1
    assert "Invalid request from ip=192.0.2.1: " in connection.logged()
    assert "a-secret" not in (connection.logged() + response.decode()).lower()


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"Content-Length: +5\r\n\r\n", "Invalid HTTP Header: 'Content-Length'"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "Invalid HTTP Header: 'Content-Length'"),
        (b"Host: localhost\r\n\r\n", "Invalid HTTP Header: 'Host'"),
        (b"Content-Type: a/b\r\nContent-Type: a/b\r\n\r\n", "Invalid HTTP Header: 'Content-Type'"),
        (b"Transfer-Encoding: gzip\r\n\r\n", "Invalid HTTP Header: 'Transfer-Encoding'"),
        (b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % 2**68, "Invalid chunk size: '(not shown)'"),
    ],
)
def test_error_names_the_invalid_header(connection: Connection, sent: bytes, text: str) -> None:
    response = connection.send(HEAD + sent)
    assert response.startswith(b"HTTP/1.1 400 ")
    assert html.unescape(response.decode()).count(text) == 1
    assert text in connection.logged()


INCOMPLETE = {
    "line": b"GET /?token=a-secret",
    "head": HEAD + b"X-Auth-Token: a-secret\r\n",
    "body": HEAD + b"Content-Length: 100\r\n\r\na-secret",
    "chunk size": CHUNKED + b"a-secret",
    "chunk": CHUNKED + b"ff\r\na-secret",
    "trailer": CHUNKED + b"0\r\nX-Auth-Token: a-secret",
}


@pytest.mark.parametrize("sent", INCOMPLETE.values(), ids=INCOMPLETE)
def test_incomplete_request_is_not_quoted(connection: Connection, sent: bytes) -> None:
    connection.send(sent)
    assert connection.caplog.records
    assert "a-secret" not in connection.logged()


def _parse_errors() -> list[type[errors.ParseException]]:
    # The errors of response headers contain what the application tried to send.
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [
        kind
        for kind in kinds
        if issubclass(kind, errors.ParseException) and not kind.__name__.startswith("InvalidResponse")
    ]


@pytest.mark.parametrize("kind", _parse_errors())
@pytest.mark.parametrize("value", ["a-secret", b"a-secret", ("a-secret", 1)])
def test_no_parse_error_of_gunicorn_is_quoted(
    connection: Connection, kind: type[errors.ParseException], value: Any
) -> None:
    client, server = socket.socketpair()
    with client, server:
        connection.worker.handle_error(None, server, ("192.0.2.1", 1), kind(value))
        server.close()
        assert b"a-secret" not in received(client)
    assert connection.caplog.records
    assert "a-secret" not in connection.logged()


@pytest.mark.parametrize(
    "header",
    [
        *(
            b"xchunked",
            b"gzip, chunked",
            b"chunked, gzip",
            b"identity, chunked",
            b"chunked, chunked",
            b"gzip",
        ),
        *(b"identity", b"", b"chunked;q=1", b"gzip\r\nTransfer-Encoding: chunked"),
        b"chunked\r\nTransfer-Encoding: chunked",
    ],
)
def test_transfer_coding_other_than_chunked_gets_400(connection: Connection, header: bytes) -> None:
    sent = HEAD + b"Transfer-Encoding: %b\r\n\r\n0\r\n\r\n" % header
    response = connection.send(sent)
    assert response.startswith(b"HTTP/1.1 400 ")
    assert response.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b" chunked \t"])
def test_chunked_body_is_read(connection: Connection, coding: bytes) -> None:
    sent = HEAD + b"Transfer-Encoding: %b\r\n\r\n1\r\nx\r\n0\r\n\r\n" % coding
    assert connection.send(sent).startswith(b"HTTP/1.1 200 ")


def test_target_of_a_failed_request_is_cut_in_the_log(connection: Connection) -> None:
    connection.worker.cfg.set("limit_request_line", 0)
    response = connection.send(b"GET /fail?%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"x" * 60_000))
    assert response.startswith(b"HTTP/1.1 500 ")
    [failed] = [record for record in connection.caplog.records if record.levelname == "ERROR"]
    assert failed.getMessage().startswith("Error handling request GET /fail?x")
    assert len(failed.getMessage()) <= MAX_LENGTH + 100


def test_application_can_ask_whether_the_client_is_gone(worker: Worker) -> None:
    client, server = socket.socketpair()
    seen: list[bool] = []

    def application(environ: dict[str, Any], _: Any) -> list[bytes]:
        seen.append(environ[IS_CLIENT_GONE]())
        client.close()
        seen.append(environ[IS_CLIENT_GONE]())
        wait_until(environ[IS_CLIENT_GONE])
        return []

    worker.application = application
    with client, server:
        worker.slot_by_socket[server] = Slot(worker.slots)
        environ = {"PATH_INFO": "/", "gunicorn.socket": server, "wsgi.input": BytesIO()}
        worker._run_application(environ | {"CONTENT_LENGTH": "0"}, print)
    assert seen == [False, False]
