"""Requests that are arriving: the bytes that their clients have sent so far."""

import re
import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

MAX_BODY_IN_MEMORY = 1024 * 1024
"""Bytes of a request body that are buffered in memory; a larger body is buffered in a file."""

CHUNK_SIZE = 64 * 1024

_HEAD_END = re.compile(rb"\r\n\r\n|(?<!\r)\n")
"""The end of a head, or a line break that makes the parser reject it."""

_LENGTH = re.compile(rb"\r\nContent-Length:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\nTransfer-Encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nExpect[ \t]*:", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]{0,1000})?\r\n")
_INVALID_CHUNK_SIZE = re.compile(rb"[^0-9a-fA-F]|[^\n]{1100}|[^\n]*\n")

MAX_CHUNKS_IN_ADVANCE = 1000
"""Chunks of a body that is read before the caller is authenticated.

Gunicorn copies, for each chunk, what was received behind it: 80,000 chunks that had all been received took
3 s. A body of more chunks is read in small pieces.
"""

MAX_TRAILER = 8190
"""Bytes of a trailer for whose end the worker waits."""


@dataclass(frozen=True)
class Limits:
    """The maximum sizes, in bytes, of a request line, of a whole head, and of a body to wait for."""

    line: int
    head: int
    body: int

    @classmethod
    def of(cls, config: Any, max_body: int) -> "Limits":
        """Return the limits that gunicorn's parser has with this configuration of gunicorn."""
        headers = config.limit_request_fields * (config.limit_request_field_size + 2) + 4
        line = config.limit_request_line
        return cls(line=line, head=line + headers, body=min(max_body, MAX_BODY_IN_MEMORY))


@dataclass(slots=True)
class ChunkedBody:
    """A chunked body in a buffer that grows; `position` is the start of chunk number `count`."""

    position: int
    count: int = 0

    def is_complete(self, data: bytes | bytearray) -> bool | None:
        """Return whether the body ends within `data`, None if it is invalid or unusually long."""
        while self.count <= MAX_CHUNKS_IN_ADVANCE and (size := _CHUNK_SIZE.match(data, self.position)):
            length = int(size[1], 16)
            if length == 0:
                return self._has_trailer_end(data, size.end() - 2)
            end = size.end() + length
            if len(data) < end + 2:
                return False
            if data[end : end + 2] != b"\r\n":
                return None
            self.position = end + 2
            self.count += 1
        if self.count > MAX_CHUNKS_IN_ADVANCE:
            return None
        return None if _INVALID_CHUNK_SIZE.match(data, self.position) else False

    @staticmethod
    def _has_trailer_end(data: bytes | bytearray, start: int) -> bool | None:
        end = _HEAD_END.search(data, start)
        if end is None:
            return None if len(data) - start > MAX_TRAILER else False
        return True if end[0] == b"\r\n\r\n" else None


@dataclass(eq=False, slots=True)
class Arrival:
    """A request that is arriving; its client must have sent it by the time `deadline` (monotonic clock)."""

    limits: Limits
    deadline: float
    data: bytearray = field(default_factory=bytearray)
    is_body_on_demand: bool = False
    """Whether the body of a complete request is still to be read."""
    _searched: int = 0
    _size: int | None = None
    _chunked: ChunkedBody | None = None

    def receive(self, sock: socket.socket) -> bool:
        """Add what the client has sent; return False if it has closed the connection.

        Raises `BlockingIOError` if the non-blocking `sock` has nothing to read.
        """
        chunk = sock.recv(CHUNK_SIZE)
        self.data += chunk
        return bool(chunk)

    def receive_all(self, sock: socket.socket) -> bool:
        """Wait until the request is complete; return False if it is not by its deadline."""
        sock.setblocking(False)
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        while not self.is_complete():
            left = self.deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return False
            with suppress(BlockingIOError):
                if not self.receive(sock):
                    return False
        return True

    def is_complete(self) -> bool:
        """Return whether a thread can process the request without waiting for its client.

        This includes a request that the parser will reject, and one with a body that is too large or is sent
        on demand: a thread reads such a body after it has authenticated the caller.
        """
        if self._size is None:
            end = _HEAD_END.search(self.data, max(0, self._searched - 3))
            self._searched = len(self.data)
            if end is not None:
                self._size = end.end() + self._body_size(end.end())
            elif self._is_too_large():
                self._size = len(self.data)
        if self._size is None or len(self.data) < self._size:
            return False
        if self._chunked is None:
            return True
        is_whole = self._chunked.is_complete(self.data)
        self.is_body_on_demand = not is_whole
        return is_whole is not False or len(self.data) > self._size + self.limits.body

    def _body_size(self, head_size: int) -> int:
        """Return how many bytes must follow the head before a thread begins; 0 for a chunked body."""
        head = bytes(self.data[:head_size])
        if _EXPECT.search(head):
            self.is_body_on_demand = True
            return 0
        if _CHUNKED.search(head):
            self._chunked = ChunkedBody(head_size)
            return 0
        length = _LENGTH.search(head)
        size = int(length[1]) if length else 0
        self.is_body_on_demand = size > self.limits.body
        return 0 if self.is_body_on_demand else size

    def _is_too_large(self) -> bool:
        size, line = len(self.data), self.limits.line
        return size > self.limits.head or (size > line + 2 and self.data.find(b"\r\n", 0, line + 4) < 0)
