"""A proxy between the service and PostgreSQL that records statements and can drop a connection."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import BinaryIO

from sqlalchemy import make_url

from tests.support.servers import POLL_SECONDS


class PostgresProxy(ThreadingTCPServer):
    """Forwards connections to the PostgreSQL server of a URL; `url` connects through the proxy.

    `statements` are those that clients sent to PostgreSQL, in order: each is one round trip.
    """

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forwarder)
        self.statements: list[str] = []
        self._server_url = make_url(url)
        self._drop: tuple[str, bool] | None = None
        self._held: str | None = None
        self._may_forward = threading.Event()
        self._may_forward.set()
        proxy_options = {"host": "127.0.0.1", "sslmode": "disable", "gssencmode": "disable"}
        self.url = (
            self._server_url.set(host=None, port=self.server_address[1])
            .update_query_dict(proxy_options)
            .render_as_string(hide_password=False)
        )
        threading.Thread(target=self.serve_forever, args=[POLL_SECONDS], daemon=True).start()

    def server_close(self) -> None:
        """Stop forwarding, also at the end of a `with` block."""
        self.shutdown()
        super().server_close()

    def drop_connection_at(self, prefix: str, *, delivered: bool) -> None:
        """Drop the next connection that sends a statement with this prefix.

        With `delivered`, PostgreSQL executes the statement but the client never gets the result; otherwise
        PostgreSQL does not get the statement.
        """
        self._drop = prefix, delivered

    @contextmanager
    def holding(self, prefix: str) -> Iterator[None]:
        """Forward statements with this prefix only at the end of the block; they are recorded before."""
        self._held = prefix
        self._may_forward.clear()
        try:
            yield
        finally:
            self._held = None
            self._may_forward.set()

    def record(self, statement: str) -> bool | None:
        """Record a statement; return None to forward it, else whether to deliver it before the drop."""
        is_held = self._held is not None and statement.startswith(self._held)
        self.statements.append(statement)
        if is_held:
            self._may_forward.wait()
        if self._drop is None or not statement.startswith(self._drop[0]):
            return None
        _, delivered = self._drop
        self._drop = None
        return delivered

    def connect(self) -> socket.socket:
        """Return a connection to the PostgreSQL server."""
        host = self._server_url.host or str(self._server_url.query["host"])
        port = self._server_url.port or 5432
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(f"{host}/.s.PGSQL.{port}")
        return upstream


class _Forwarder(BaseRequestHandler):
    server: PostgresProxy
    request: socket.socket

    def handle(self) -> None:
        with self.server.connect() as upstream, self.request.makefile("rb") as client:
            self.is_dropped = False
            self.is_executed = threading.Event()
            responses = threading.Thread(target=self._forward_responses, args=(upstream,))
            responses.start()
            self._forward_messages(client, upstream)
            upstream.shutdown(socket.SHUT_WR)
            responses.join()

    def _forward_messages(self, client: BinaryIO, upstream: socket.socket) -> None:
        """Forward the client's messages; the first message has no type byte, all others have one."""
        kind = b""
        while length := client.read(4):
            content = client.read(struct.unpack("!I", length)[0] - 4)
            if kind == b"Q":
                delivered = self.server.record(content.rstrip(b"\0").decode())
                if delivered is not None:
                    self.is_dropped = True
                    if delivered:
                        upstream.sendall(kind + length + content)
                        # PostgreSQL cancels a statement whose client has closed its side meanwhile
                        # (`client_connection_check_interval`).
                        self.is_executed.wait()
                    return
            upstream.sendall(kind + length + content)
            kind = client.read(1)

    def _forward_responses(self, upstream: socket.socket) -> None:
        end = b""
        while response := upstream.recv(65536):
            if not self.is_dropped:
                self.request.sendall(response)
                continue
            # A result ends with the message ReadyForQuery: its type, its length and the transaction status.
            end = (end + response)[-6:]
            if end.startswith(b"Z\0\0\0\5"):
                self.is_executed.set()
        self.is_executed.set()
        self.request.shutdown(socket.SHUT_RDWR)
