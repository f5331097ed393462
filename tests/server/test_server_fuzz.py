"""Valid, malformed and random input does no harm to the workers of a real service.

Many clients send at once. A seed determines each conversation: the bytes, their division into pieces, the
delays, and how the client closes the connection. This runs for half an hour: `pytest -m long
--hypothesis-profile=deep tests/server/test_server_fuzz.py`.
"""

import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.conftest import examples
from tests.differential import services
from tests.differential.drawing import DRAW_FUNCTIONS
from tests.differential.values import RandomValues
from tests.support.service import TIMEOUT, Service, serving, wait_until

pytestmark = pytest.mark.long

CLIENTS = 24
DURATION = 20
"""Seconds that the clients send."""

CLIENT_TIMEOUT = 10
"""The client timeout of the service, in seconds; no client needs so long to send, even on a busy machine."""

QUIET = 1
"""Seconds without data after which a client that has all responses stops reading."""

STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
REFUSALS = {505}
"""The status for unknown versions of HTTP."""

LENGTHS = [b"-1", b"+5", b"0x10", b"5, 5", b"", b" ", b"9" * 30, b"1_0", b"1e3", b"\xb2", b"0", b"3"]
ENCODINGS = [
    *(b"chunked, chunked", b"gzip", b"identity", b"Chunked", b"chunked;q=1", b"xchunked", b"gzip, chunked"),
    *(b"\x0bchunked", b"", b"chunked, identity", b"chunked\r\nTransfer-Encoding: chunked"),
]
SIZES = [
    *(b"-1", b"0x5", b"f" * 16, b"f" * 300, b'5;a="', b"5 ", b"", b"g", b"1_0", b"5\n", b"+2", b"\0", b"00"),
]
VERSIONS = [b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.1 x", b"http/1.1", b"ICY", b"", b"HTTP/1.10"]
METHODS = [b"get", b"", b"A" * 10_000, b"G\0T", b"OPTIONS", b"CONNECT", b"PRI", b"TRACE", b"\xff", b"G T"]
TARGETS = [
    *(b"*", b"//", b"http://x/traits", b"http://", b"x:443", b"/\0", b"/%00", b"/%", b"/%zz", b"/\xff\xfe"),
    *(b"/../../etc/passwd", b"/traits#x", b"/traits?\xff=%ff", b"", b"?", b"/resource_providers?name=%00"),
    *(b"/" + b"a/" * 5_000, b"/?" + b"x" * 66_000, b"/traits?" + b"name=in:A&" * 5_000),
    b"/allocation_candidates?" + b"&".join(b"resources%d=VCPU:1" % n for n in range(2_000)),
    b"/allocation_candidates?group_policy=none&resources=" + b",".join([b"VCPU:1"] * 8_000),
    b"/resource_providers?required=" + b"!" * 30_000 + b"HW_NUMA_ROOT",
    b"/resource_providers?resources=VCPU:" + b"9" * 60_000,
    b"/traits?name=startswith:" + b"%25_" * 10_000,
]
HEADERS = [
    *(b"Expect: 100-continue", b"Expect: nonsense", b"Connection: close", b"Connection: upgrade", b": x"),
    *(b"Upgrade: h2c", b"Host: y", b"Host:", b"X-Long: " + b"x" * 9_000, b"no colon", b"X-Blank : x"),
    *(b" folded", b"X-Nul: \0", b"X-Return: a\rb", b"X-Latin: \xe9", b"Accept: \xff;q=\xff"),
    *(b"Accept: " + b"a/b," * 2_000, b"X-Auth-Token: ", b"X-Auth-Token: \xff", b"X-Roles: " + b"a," * 4_000),
    *(b"SCRIPT_NAME: /x", b"SCRIPT-NAME: /x", b"PATH_INFO: /x", b"Content-Type: \xff", b"Range: bytes=0-"),
    *(b"OpenStack-API-Version: placement " + b"9" * 8_000, b"OpenStack-API-Version: placement 1.\xb2"),
    *(b"X-Openstack-Request-Id: req-\x1b[31m", b"X-Forwarded-For: \xff", b"Forwarded: for=;;"),
    *(b"If-Modified-Since: x", b"Proxy-Connection: keep-alive", b"Trailer: Content-Length", b"Origin: null"),
    b"Keep-Alive: -1",
    b"\r\n".join(b"X-%d: x" % n for n in range(120)),
]
NOT_HTTP = [
    *(b"\0" * 100, b"\r\n" * 100, b"\n", b" ", b"GET /\r\n\r\n", b"\xff" * 70_000, b"x" * 70_000, b"quit\n"),
    *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PROXY TCP4 1.1.1.1 2.2.2.2 3 4\r\n", b"\r\n\r\n\0\r\nQUIT\n"),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 50,
    *(b"GET / HTTP/1.1", b"GET / HTTP/1.1\r\n" + b"x" * 200_000),
]


@dataclass(frozen=True)
class Message:
    """A request as bytes; a valid one must get a response, however it is sent."""

    line: bytes
    headers: tuple[bytes, ...]
    body: bytes
    is_valid: bool = True

    def __bytes__(self) -> bytes:
        return b"\r\n".join([self.line, *self.headers, b"", self.body])


class Generator:
    """Generates conversations from one seed; valid requests refer to the objects of `values`."""

    def __init__(self, seed: str, values: RandomValues) -> None:
        self.random = Random(seed)
        self.values = values

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def conversation(self) -> tuple[bytes, int | None]:
        """Return the bytes that a client sends, and the number of responses it must get, None if unknown."""
        if self.chance(5):
            return self.random.choice(NOT_HTTP), None
        messages = [self.message() for _ in range(self.random.choice([1, 1, 1, 2, 4]))]
        sent = b"".join(map(bytes, messages))
        if self.chance(25):
            return self.corrupted(sent), None
        return sent, len(messages) if all(message.is_valid for message in messages) else None

    def message(self) -> Message:
        """Return a request with valid or invalid JSON, mostly malformed as HTTP too."""
        request = self.random.choice(DRAW_FUNCTIONS)(self.values)
        headers = [b"Host: localhost", *(f"{name}: {value}".encode() for name, value in request.headers)]
        body = request.body or b""
        if self.chance(40):
            headers, body = [*headers, b"Transfer-Encoding: chunked"], self.chunks(body)
        elif body:
            headers.append(b"Content-Length: %d" % len(body))
        message = Message(f"{request.method} {request.target} HTTP/1.1".encode(), tuple(headers), body)
        return message if self.chance(40) else self.malformed(message)

    def chunks(self, body: bytes) -> bytes:
        """Return a body in chunked transfer encoding."""
        pieces = []
        while body:
            size = self.random.randint(1, len(body))
            pieces.append(b"%x\r\n%b\r\n" % (size, body[:size]))
            body = body[size:]
        return b"".join([*pieces, b"0\r\n\r\n"])

    def malformed(self, message: Message) -> Message:
        """Return a request with one to three parts replaced by unusual or invalid ones."""
        method, target, version = message.line.split(b" ")
        headers, body = list(message.headers), message.body
        for _ in range(self.random.choice([1, 1, 2, 3])):
            match self.random.randrange(8):
                case 0:
                    method = self.random.choice(METHODS)
                case 1:
                    target = self.random.choice(TARGETS)
                case 2:
                    version = self.random.choice(VERSIONS)
                case 3:
                    headers.append(b"Content-Length: " + self.random.choice(LENGTHS))
                case 4:
                    headers.append(b"Transfer-Encoding: " + self.random.choice(ENCODINGS))
                case 5:
                    size = self.random.choice(SIZES) + b"\r\n"
                    body = body.replace(b"\r\n", size, 1) if self.chance(50) else size + body
                case 6:
                    end = self.random.choice([b"", b"X: y\r\n\r\n", b"\r\n"])
                    body = body[: -self.random.randint(1, 8)] + end
                case _:
                    headers.insert(self.random.randrange(len(headers) + 1), self.random.choice(HEADERS))
        return Message(b" ".join([method, target, version]), tuple(headers), body, is_valid=False)

    def corrupted(self, sent: bytes) -> bytes:
        """Replace some bytes at random positions."""
        for _ in range(self.random.choice([1, 2, 5, 20])):
            at = self.random.randrange(len(sent) + 1)
            to = min(len(sent), at + self.random.choice([0, 1, 1, 2, 10, 100]))
            others = [b"", b"\r\n", b"\n", b"\0", b":", self.random.randbytes(2), sent[at:to] * 3]
            sent = sent[:at] + self.random.choice(others) + sent[to:]
        return sent

    def pieces(self, sent: bytes) -> Iterator[bytes]:
        """Yield the bytes in one piece, in random pieces, or the first ones one by one."""
        if self.chance(50):
            yield sent
            return
        steps = [1] * 60 if self.chance(30) else []
        while sent:
            step = steps.pop() if steps else self.random.randint(1, max(1, len(sent)))
            yield sent[:step]
            sent = sent[step:]


@dataclass(frozen=True)
class Result:
    """The statuses of a conversation's responses, and a description of what was wrong, if anything."""

    statuses: list[int]
    problem: str = ""


def converse(service: Service, generator: Generator) -> Result:
    """Send the bytes of a conversation, and check the responses."""
    sent, expected = generator.conversation()
    end = generator.random.choice(["wait", "wait", "wait", "stay", "half", "half", "close", "reset"])
    received, is_closed = b"", False
    with service.connect() as connection:
        try:
            for piece in generator.pieces(sent):
                connection.sendall(piece)
                time.sleep(generator.random.choice([0, 0, 0, 0.001, 0.01]))
            if end == "half":
                connection.shutdown(socket.SHUT_WR)
            while end not in ("close", "reset") and not is_closed:
                has_all = len(STATUS.findall(received)) >= (expected or 0)
                connection.settimeout(QUIET if has_all and end != "stay" else TIMEOUT)
                piece = connection.recv(65536)
                received, is_closed = received + piece, not piece
        except ConnectionError:
            is_closed = True
        except TimeoutError:
            pass
        if end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    statuses = [int(status) for status in STATUS.findall(received)]
    is_right = (
        (STATUS.match(received) or not received)
        and all(status < 500 or status in REFUSALS for status in statuses)
        and (end in ("close", "reset") or expected in (None, len(statuses)))
        and (end != "stay" or is_closed)
    )
    description = (
        f"{end}, closed: {is_closed}, responses: {expected}: {sent[:1500]!r} -> {statuses} {received[:500]!r}"
    )
    return Result(statuses, "" if is_right else description)


def open_files(service: Service) -> list[int]:
    """Return the number of open files of each worker."""
    return [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in service.workers()]


@pytest.fixture
def service(database_url: str, clean_database: Callable[[], None]) -> Iterator[Service]:
    """A service with a short client timeout."""
    with serving(2, 2, database_url=database_url, client_timeout=CLIENT_TIMEOUT) as service:
        yield service


def test_workers_survive_any_input(service: Service) -> None:
    workers, files = service.workers(), open_files(service)
    target = services.Service(service.url)
    until = time.monotonic() + examples(DURATION, 90 * DURATION)

    def client(number: int) -> list[Result]:
        values, results = RandomValues(Random(number), target), []
        while time.monotonic() < until:
            results.append(converse(service, Generator(f"{number}/{len(results)}", values)))
        return results

    with ThreadPoolExecutor(CLIENTS) as threads:
        results = [result for batch in threads.map(client, range(CLIENTS)) for result in batch]
    problems = [result.problem for result in results if result.problem]
    assert not problems, "\n\n".join([f"{len(problems)} problems", *problems[:20]])
    statuses = Counter(status for result in results for status in result.statuses)
    print(f"{len(results)} conversations, responses by status: {sorted(statuses.items())}")
    assert {200, 400, 404} <= statuses.keys()
    assert service.workers() == workers
    assert service.get("/readyz")[0] == 200
    assert "Traceback" not in service.log.read_text()
    assert [line for line in service.log_records() if line["level"] in ("error", "critical")] == []
    wait_until(lambda: sum(open_files(service)) <= sum(files) + CLIENTS)
    # Every worker still processes as many requests at the same time as before.
    with ThreadPoolExecutor(CLIENTS) as threads:
        paths = ["/allocation_candidates?resources=VCPU:1&limit=10"] * 10 * CLIENTS
        assert {status for status, _ in threads.map(service.get, paths)} == {200}
