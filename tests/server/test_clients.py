"""The worker notices whether a client is still connected."""

import socket
import struct
from collections.abc import Iterator

import pytest

from placement_svc.server.clients import gone_check, is_gone
from tests.support.service import wait_until


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's and the server's end of a TCP connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
        listener.accept()[0] as server,
    ):
        yield client, server


@pytest.mark.parametrize("sent", [b"", b"unread"])
def test_waiting_client_is_not_gone(connection: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    client, server = connection
    client.sendall(sent)
    server.settimeout(30)
    assert not is_gone(server)


@pytest.mark.parametrize("sent", [b"", b"unread"])
def test_client_that_closes_is_gone(connection: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    client, server = connection
    client.sendall(sent)
    client.close()
    wait_until(lambda: is_gone(server))


def test_client_that_resets_is_gone(connection: tuple[socket.socket, socket.socket]) -> None:
    client, server = connection
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    wait_until(lambda: is_gone(server))


def test_client_that_closes_its_sending_side_is_gone(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    client, server = connection
    client.shutdown(socket.SHUT_WR)
    wait_until(lambda: is_gone(server))


def test_closed_connection_counts_as_gone(connection: tuple[socket.socket, socket.socket]) -> None:
    _, server = connection
    server.close()
    assert is_gone(server)


def test_client_that_closes_its_sending_side_counts_as_gone_later(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    client, server = connection
    counts_as_gone = gone_check(server)
    client.shutdown(socket.SHUT_WR)
    wait_until(lambda: is_gone(server))
    assert not counts_as_gone()
    wait_until(counts_as_gone)
