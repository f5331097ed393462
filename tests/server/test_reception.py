"""A worker bounds the connections on which it waits, and notices when a request is complete."""

import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.workers.gthread import TConn

from placement_svc.server import reception
from placement_svc.server.arrivals import Arrival, Limits
from placement_svc.server.reception import Reception

LIMITS = Limits(line=100, head=1000, body=10_000)
HEAD = b"PUT /x HTTP/1.1\r\nHost: x\r\n"


def is_complete(*pieces: bytes) -> bool:
    arrival = Arrival(LIMITS, 0.0)
    results = []
    for piece in pieces:
        arrival.data += piece
        results.append(arrival.is_complete())
    assert not any(results[:-1])
    return results[-1]


COMPLETE = {
    "without a body": HEAD + b"\r\n",
    "with a body": HEAD + b"content-length: 3 \r\n\r\nabc",
    "with a chunked body": HEAD + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nab\n\r\n0\r\n\r\n",
    "with a trailer": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n",
    "two at once": HEAD + b"\r\n" + HEAD,
    "after an empty line": b"\r\n" + HEAD + b"\r\n",
}


@pytest.mark.parametrize("sent", COMPLETE.values(), ids=COMPLETE)
def test_request_is_complete_with_its_last_byte(sent: bytes) -> None:
    end = len(COMPLETE["without a body"]) if sent == COMPLETE["two at once"] else len(sent)
    assert is_complete(*(sent[at : at + 1] for at in range(end)))
    assert is_complete(sent)


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"X: a\n",
        b"\n",
        b"x" * 103,
        HEAD + b"X: " + b"x" * 1000,
        HEAD + b"Content-Length: 10001\r\n\r\n",
        HEAD + b"Content-Length: 99999999999\r\n\r\n",
        HEAD + b"Content-Length: x\r\n\r\n",
        *(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
            for chunks in (b"x", b"3\n", b"3\r\nabcd\r\n", b"0\r\nX: y\n", b"\r\n", b"1" * 1100)
        ),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2711\r\n" + b"x" * 10_001,
        HEAD + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n",
    ],
)
def test_request_for_which_the_worker_need_not_wait(sent: bytes) -> None:
    assert is_complete(sent)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r",
        b"x" * 102,
        HEAD + b"\r",
        HEAD + b"Content-Length: 3\r\n\r\nab",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_incomplete_request(sent: bytes) -> None:
    assert not is_complete(sent)


class Clients:
    """Clients of a `Reception`."""

    def __init__(self) -> None:
        self.poller = selectors.DefaultSelector()
        self.requests: list[bytes] = []
        self.ended: list[Any] = []
        self.reception = Reception(
            self.poller,
            LIMITS,
            60,
            on_request=lambda _, request: self.requests.append(bytes(request.data)),
            on_end=self._end,
        )
        self.sockets: list[socket.socket] = []

    def _request(self, _: Any, request: Arrival) -> None:
        self.requests.append(bytes(request.data))

    def _end(self, conn: Any) -> None:
        self.ended.append(conn)
        conn.sock.close()

    def connect(self, sent: bytes = b"") -> tuple[Any, socket.socket]:
        client, server = socket.socketpair()
        self.sockets += [client, server]
        client.sendall(sent)
        conn = type("Connection", (), {"sock": server})()
        self.reception.await_request(conn)
        return conn, client

    def dispatch(self) -> None:
        for key, _ in self.poller.select(0):
            key.data(key.fileobj)


@pytest.fixture
def clients() -> Iterator[Clients]:
    clients = Clients()
    yield clients
    clients.poller.close()
    for sock in clients.sockets:
        sock.close()


def test_request_that_arrives_in_pieces(clients: Clients) -> None:
    _, client = clients.connect(HEAD)
    assert clients.requests == []
    client.sendall(b"\r\n")
    clients.dispatch()
    assert clients.requests == [HEAD + b"\r\n"]


def test_client_that_disconnects(clients: Clients) -> None:
    conn, client = clients.connect(HEAD)
    client.close()
    clients.dispatch()
    assert clients.ended == [conn]


def test_oldest_connection_is_closed_first(clients: Clients) -> None:
    (first, _), (second, _) = clients.connect(), clients.connect()
    assert clients.reception.close_oldest()
    assert clients.ended == [first]
    assert clients.reception.close_oldest()
    assert clients.ended == [first, second]
    assert not clients.reception.close_oldest()


def test_received_bytes_are_bounded(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "MAX_RECEIVED_BYTES", 2 * len(HEAD))
    (first, _), (_, second), _ = (clients.connect(HEAD) for _ in range(3))
    assert clients.ended == [first]
    # The bytes of closed connections and of processed requests do not count any longer.
    second.sendall(b"\r\n")
    clients.dispatch()
    assert clients.requests == [HEAD + b"\r\n"]


def test_connection_ends_when_the_client_closes_it(clients: Clients) -> None:
    conn, client = clients.connect(HEAD + b"\r\n")
    clients.reception.processed(conn)
    clients.reception.close_gracefully(conn)
    client.sendall(b"ignored")
    clients.dispatch()
    assert clients.ended == []
    assert client.recv(1) == b""
    client.close()
    clients.dispatch()
    assert clients.ended == [conn]


def test_expired_connections_are_closed(clients: Clients) -> None:
    (silent, _), (begun, _) = clients.connect(), clients.connect(HEAD)
    clients.reception.close_expired()
    assert clients.ended == []
    clients.reception.limit_silence(-1)
    clients.reception.close_expired()
    assert clients.ended == [silent]
    assert begun not in clients.ended


def test_idle_connection_with_a_new_request_stays_open() -> None:
    """The request has arrived since the poller was last asked."""
    ended: list[Any] = []
    pairs = [socket.socketpair() for _ in range(3)]
    with selectors.DefaultSelector() as poller:
        waiting = Reception(poller, LIMITS, 30, on_request=lambda *_: None, on_end=ended.append)
        idle = deque(TConn(Config(), server, None, None) for _, server in pairs)
        quiet, active, recent = idle
        quiet.timeout = active.timeout = time.monotonic() - 1
        recent.set_timeout()
        for conn in idle:
            poller.register(conn.sock, selectors.EVENT_READ)
        pairs[1][0].sendall(HEAD)
        waiting.close_idle(idle, at_once=False)
        assert ended == [quiet]
        assert list(idle) == [recent, active]
        assert active.timeout >= recent.timeout
        waiting.close_idle(idle, at_once=True)
        assert ended == [quiet, recent, active]
        assert not poller.get_map()
    for pair in pairs:
        for sock in pair:
            sock.close()
