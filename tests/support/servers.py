"""Servers that run in a thread of the tests."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any

POLL_SECONDS = 0.01
"""Seconds between two checks of a server whether it should stop; by default, it takes half a second."""


@contextmanager
def run_in_thread(server: BaseServer) -> Iterator[None]:
    """Run a server in a thread until the end of the block, then close it."""
    thread = threading.Thread(target=server.serve_forever, args=[POLL_SECONDS])
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def responding(
    status: int, body: bytes = b"{}", headers: Mapping[str, str] | None = None
) -> Iterator[tuple[int, list[Message]]]:
    """Run a server with the same response to every request; yield its port and the headers that it gets."""
    received: list[Message] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.headers)
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with run_in_thread(server):
        yield server.server_address[1], received
