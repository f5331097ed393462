"""Request bodies: small ones in memory before the application runs, others in a file when it asks for them.

The application asks for a body after it has authenticated the caller and checked the rest of the head. A
caller without a valid token gets its response without sending a large body.
"""

import errno
import os
import tempfile
from collections.abc import Callable
from io import BytesIO, RawIOBase
from itertools import count
from threading import Lock
from typing import Any, BinaryIO, Protocol, cast

from gunicorn.http.errors import InvalidChunkSize

from placement_svc.domain.errors import Unavailable
from placement_svc.server.arrivals import CHUNK_SIZE, MAX_BODY_IN_MEMORY

MIN_FREE_BYTES = 16 * 1024 * 1024
"""Bytes that buffered bodies leave free in the temporary directory.

The metrics are kept there too, in files mapped into memory: a worker that cannot write them is killed.
"""

MAX_CHUNKS = 65_536
"""The chunks that a body may have; each costs some microseconds, however small it is."""

MAX_CHUNK_SIZE = 2**63 - 1
"""The largest size that a chunk may announce; a body of so many bytes never arrives."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_file_lock = Lock()
"""Held to write to the temporary directory, so that its free space is known."""


class Source(Protocol):
    """The body as gunicorn reads it from the connection."""

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, none at the end."""


class ReadFailed(BaseException):
    """A body is invalid HTTP, or its client has disconnected; `error` says which.

    The application must not respond: gunicorn handles the error. Therefore this is no `Exception`.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class InsufficientStorage(RawIOBase):
    """A request body that could not be buffered: reading it raises `Unavailable`."""

    def readinto(self, _buffer: Any) -> int:
        """Raise `Unavailable`."""
        raise Unavailable("There is no room for a body of this size at the moment.")


class BodyOnDemand(RawIOBase):
    """A body that `read` reads from the connection when the application first asks for it."""

    def __init__(self, read: Callable[[], BinaryIO]) -> None:
        super().__init__()
        self._read = read
        self._buffered: BinaryIO | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into `buffer`; raise `ReadFailed` if the client does not send the body."""
        if self._buffered is None:
            try:
                self._buffered = self._read()
            except Exception as error:
                raise ReadFailed(error) from error
        data = self._buffered.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Delete the buffered body: the traceback of an error may refer to this object for long."""
        if self._buffered is not None:
            self._buffered.close()
        super().close()


class TooManyChunks(InvalidChunkSize):  # type: ignore[misc]
    """A body has more than `MAX_CHUNKS` chunks."""

    def __init__(self) -> None:
        super().__init__(b"")

    def __str__(self) -> str:
        return f"The body has more than {MAX_CHUNKS:,} chunks"


def limit_chunks(body: Any) -> None:
    """Let a chunked body of gunicorn have at most `MAX_CHUNKS` chunks, of at most `MAX_CHUNK_SIZE` bytes.

    Otherwise, reading it raises `InvalidChunkSize`.
    """
    parse_chunk_size = body.reader.parse_chunk_size
    numbers = count(1)

    def parse(unreader: Any, data: bytes | None = None) -> tuple[int, bytes | None]:
        size, rest = parse_chunk_size(unreader, data)
        if size > MAX_CHUNK_SIZE:
            raise InvalidChunkSize(b"%x" % size)
        if size and next(numbers) > MAX_CHUNKS:
            raise TooManyChunks()
        return size, rest

    body.reader.parse_chunk_size = parse


def read_body(source: Source, length: int | None, max_body: int) -> tuple[BinaryIO, bool]:
    """Return a buffer with the complete body, or only with so much that it exceeds `max_body`.

    Also return whether the body has been read to its end. `length` is the announced length, None for a
    chunked body. Raises `ConnectionResetError` if the client sends less than announced.
    """
    expected = max_body + 1 if length is None else length
    if expected <= MAX_BODY_IN_MEMORY:
        data = source.read(expected)
        _check_length(len(data), length)
        return BytesIO(data), length is not None or len(data) < expected
    body = tempfile.SpooledTemporaryFile(max_size=MAX_BODY_IN_MEMORY)  # noqa: SIM115
    try:
        while body.tell() < expected and (chunk := source.read(min(CHUNK_SIZE, expected - body.tell()))):
            if not _append(body, chunk):
                body.close()
                return cast(BinaryIO, InsufficientStorage()), False
        _check_length(body.tell(), length)
    except BaseException:
        body.close()
        raise
    is_whole = length is not None or body.tell() < expected
    body.seek(0)
    return cast(BinaryIO, body), is_whole


def _check_length(received: int, length: int | None) -> None:
    if length is not None and received < length:
        raise ConnectionResetError(errno.ECONNRESET, "The client disconnected within a request.")


def _append(body: tempfile.SpooledTemporaryFile[bytes], chunk: bytes) -> bool:
    """Append a chunk to a buffered body; return False if the temporary directory is too full for it."""
    if body.tell() + len(chunk) <= MAX_BODY_IN_MEMORY:
        body.write(chunk)
        return True
    with _file_lock:
        file_system = os.statvfs(tempfile.gettempdir())
        if file_system.f_bavail * file_system.f_frsize < MIN_FREE_BYTES:
            return False
        body.write(chunk)
    return True
