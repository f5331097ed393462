"""The wire between the service and PostgreSQL: it tells what was asked, and can be cut at a statement."""

import socket
import struct
import threading
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import BinaryIO

from sqlalchemy import make_url


class Wire(ThreadingTCPServer):
    """Relays connections to the PostgreSQL of a URL; `url` is the way through this relay.

    `asked` are the statements that were sent to PostgreSQL, in their order: each is a round trip.
    """

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.asked: list[str] = []
        self._upstream = make_url(url)
        self._cut: tuple[str, bool] | None = None
        through = {"host": "127.0.0.1", "sslmode": "disable", "gssencmode": "disable"}
        self.url = (
            self._upstream.set(host=None, port=self.server_address[1])
            .update_query_dict(through)
            .render_as_string(hide_password=False)
        )
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def cut_at(self, statement: str, *, arrives: bool) -> None:
        """Cut the next connection that sends a `statement` begun so: before it arrives, or is answered."""
        self._cut = statement, arrives

    def cut_by(self, statement: str) -> bool | None:
        """Return None if `statement` passes, else whether it arrives before the connection is cut."""
        self.asked.append(statement)
        if self._cut is None or not statement.startswith(self._cut[0]):
            return None
        _, arrives = self._cut
        self._cut = None
        return arrives

    def connect(self) -> socket.socket:
        """Return a connection to PostgreSQL itself."""
        host = self._upstream.host or str(self._upstream.query["host"])
        port = self._upstream.port or 5432
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(f"{host}/.s.PGSQL.{port}")
        return upstream


class _Relay(BaseRequestHandler):
    server: Wire
    request: socket.socket

    def handle(self) -> None:
        with self.server.connect() as upstream, self.request.makefile("rb") as sent:
            self.is_cut = False
            back = threading.Thread(target=self._send_back, args=(upstream,))
            back.start()
            self._send_on(sent, upstream)
            upstream.shutdown(socket.SHUT_WR)
            back.join()

    def _send_on(self, sent: BinaryIO, upstream: socket.socket) -> None:
        """Pass on what the client sends: a first message without a type, then messages with one."""
        kind = b""
        while length := sent.read(4):
            content = sent.read(struct.unpack("!I", length)[0] - 4)
            if kind == b"Q":
                arrives = self.server.cut_by(content.rstrip(b"\0").decode())
                if arrives is not None:
                    self.is_cut = True
                    if arrives:
                        upstream.sendall(kind + length + content)
                    return
            upstream.sendall(kind + length + content)
            kind = sent.read(1)

    def _send_back(self, upstream: socket.socket) -> None:
        while answer := upstream.recv(65536):
            if not self.is_cut:
                self.request.sendall(answer)
        self.request.shutdown(socket.SHUT_RDWR)
