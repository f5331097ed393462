"""The listening socket of a service that stops."""

import errno
import select
import socket
import sys

import pytest

from placement_svc.server.listener import ignore_new_clients

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux can filter the packets of a socket"
)


def connect_within(seconds: float, address: tuple[str, int]) -> str:
    """Return the result of an attempt to connect."""
    try:
        socket.create_connection(address, timeout=seconds).close()
    except OSError as error:
        return type(error).__name__
    return "connected"


def test_queued_connections_remain_and_no_new_one_is_established() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        queued = [socket.create_connection(address) for _ in range(3)]
        assert connect_within(0.2, address) == "connected"
        ignore_new_clients(listener)
        assert connect_within(0.2, address) == "TimeoutError"
        for client in queued:
            client.sendall(b"a request")
            accepted, _ = listener.accept()
            with client, accepted:
                assert accepted.recv(100) == b"a request"
                accepted.sendall(b"a response")
                assert client.recv(100) == b"a response"


def test_client_that_was_ignored_is_refused_after_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        ignore_new_clients(listener)
        with socket.socket() as client:
            client.setblocking(False)
            assert client.connect_ex(address) == errno.EINPROGRESS
            listener.close()
            assert select.select([], [client], [], 10)[1] == [client]
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
