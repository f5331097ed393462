"""Bytes that are a request, hardly one, or none at all: no worker of a real `serve` minds them.

Many clients talk at once, each conversation drawn with a seed of its own: in pieces, slowly, with half of the
connection closed, or leaving in the middle. Half an hour of it with
`pytest -m long --hypothesis-profile=deep tests/server/test_server_fuzz.py`.
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
from tests.differential.drawing import DRAWS, World
from tests.support.service import PATIENCE, Service, serving, wait_until

pytestmark = pytest.mark.long

CLIENTS = 24
DURATION = 20
"""Seconds that they talk."""

CLIENT_TIMEOUT = 3
"""Seconds that the service waits for a client."""

QUIET = 1
"""Seconds after which a client thinks that nothing more will come."""

STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
REFUSALS = {501, 505}
"""What is answered to encodings and versions of HTTP that the server does not know."""

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
NO_HTTP = [
    *(b"\0" * 100, b"\r\n" * 100, b"\n", b" ", b"GET /\r\n\r\n", b"\xff" * 70_000, b"x" * 70_000, b"quit\n"),
    *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PROXY TCP4 1.1.1.1 2.2.2.2 3 4\r\n", b"\r\n\r\n\0\r\nQUIT\n"),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 50,
    *(b"GET / HTTP/1.1", b"GET / HTTP/1.1\r\n" + b"x" * 200_000),
]


@dataclass(frozen=True)
class Message:
    """A request as bytes; a fair one has to be answered, however it is sent."""

    line: bytes
    headers: tuple[bytes, ...]
    body: bytes
    is_fair: bool = True

    def __bytes__(self) -> bytes:
        return b"\r\n".join([self.line, *self.headers, b"", self.body])


class Drawn:
    """What is drawn with one seed; the world is what good requests are about."""

    def __init__(self, seed: str, world: World) -> None:
        self.random = Random(seed)
        self.world = world

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def conversation(self) -> tuple[bytes, int | None]:
        """Draw what a client sends, and how many answers it has to get, if that is known."""
        if self.chance(5):
            return self.random.choice(NO_HTTP), None
        messages = [self.message() for _ in range(self.random.choice([1, 1, 1, 2, 4]))]
        sent = b"".join(map(bytes, messages))
        if self.chance(25):
            return self.torn(sent), None
        return sent, len(messages) if all(message.is_fair for message in messages) else None

    def message(self) -> Message:
        """Draw a request with JSON that may be odd, mostly in an odd form too."""
        request = self.random.choice(DRAWS)(self.world)
        headers = [b"Host: x", *(f"{name}: {value}".encode() for name, value in request.headers)]
        body = request.body or b""
        if self.chance(40):
            headers, body = [*headers, b"Transfer-Encoding: chunked"], self.chunks(body)
        elif body:
            headers.append(b"Content-Length: %d" % len(body))
        message = Message(f"{request.method} {request.target} HTTP/1.1".encode(), tuple(headers), body)
        return message if self.chance(40) else self.bent(message)

    def chunks(self, body: bytes) -> bytes:
        """Cut a body into chunks."""
        pieces = []
        while body:
            size = self.random.randint(1, len(body))
            pieces.append(b"%x\r\n%b\r\n" % (size, body[:size]))
            body = body[size:]
        return b"".join([*pieces, b"0\r\n\r\n"])

    def bent(self, message: Message) -> Message:
        """Make a request one that is wrong in one way or another, or still just odd."""
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
        return Message(b" ".join([method, target, version]), tuple(headers), body, is_fair=False)

    def torn(self, sent: bytes) -> bytes:
        """Change some bytes, wherever they are."""
        for _ in range(self.random.choice([1, 2, 5, 20])):
            at = self.random.randrange(len(sent) + 1)
            to = min(len(sent), at + self.random.choice([0, 1, 1, 2, 10, 100]))
            others = [b"", b"\r\n", b"\n", b"\0", b":", self.random.randbytes(2), sent[at:to] * 3]
            sent = sent[:at] + self.random.choice(others) + sent[to:]
        return sent

    def pieces(self, sent: bytes) -> Iterator[bytes]:
        """Cut what is sent: not at all, anywhere, or at first into single bytes."""
        if self.chance(50):
            yield sent
            return
        steps = [1] * 60 if self.chance(30) else []
        while sent:
            step = steps.pop() if steps else self.random.randint(1, max(1, len(sent)))
            yield sent[:step]
            sent = sent[step:]


@dataclass(frozen=True)
class Heard:
    """What a client heard: the status of each answer; and what was wrong with them."""

    statuses: list[int]
    problem: str = ""


def converse(service: Service, drawn: Drawn) -> Heard:
    """Have a conversation."""
    sent, wanted = drawn.conversation()
    end = drawn.random.choice(["wait", "wait", "wait", "stay", "half", "half", "close", "reset"])
    answer, is_closed = b"", False
    with service.connect() as connection:
        try:
            for piece in drawn.pieces(sent):
                connection.sendall(piece)
                time.sleep(drawn.random.choice([0, 0, 0, 0.001, 0.01]))
            if end == "half":
                connection.shutdown(socket.SHUT_WR)
            while end not in ("close", "reset") and not is_closed:
                has_all = len(STATUS.findall(answer)) >= (wanted or 0)
                connection.settimeout(QUIET if has_all and end != "stay" else PATIENCE)
                piece = connection.recv(65536)
                answer, is_closed = answer + piece, not piece
        except ConnectionError:
            is_closed = True
        except TimeoutError:
            pass
        if end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    statuses = [int(status) for status in STATUS.findall(answer)]
    is_right = (
        (STATUS.match(answer) or not answer)
        and all(status < 500 or status in REFUSALS for status in statuses)
        and (end in ("close", "reset") or wanted in (None, len(statuses)))
        and (end != "stay" or is_closed)
    )
    told = f"{end}, closed: {is_closed}, answers: {wanted}: {sent[:1500]!r} -> {statuses} {answer[:500]!r}"
    return Heard(statuses, "" if is_right else told)


def open_files(service: Service) -> list[int]:
    """Return how many files each worker has open."""
    return [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in service.workers()]


@pytest.fixture
def service(database_url: str, clean_database: Callable[[], None]) -> Iterator[Service]:
    """A service that is impatient."""
    with serving(2, 2, database_url=database_url, client_timeout=CLIENT_TIMEOUT) as service:
        yield service


def test_no_worker_minds_what_it_is_sent(service: Service) -> None:
    workers, files = service.workers(), open_files(service)
    asked = services.Service(service.url)
    until = time.monotonic() + examples(DURATION, 90 * DURATION)

    def client(number: int) -> list[Heard]:
        world, heard = World(Random(number), asked), []
        while time.monotonic() < until:
            heard.append(converse(service, Drawn(f"{number}/{len(heard)}", world)))
        return heard

    with ThreadPoolExecutor(CLIENTS) as threads:
        heard = [each for found in threads.map(client, range(CLIENTS)) for each in found]
    problems = [each.problem for each in heard if each.problem]
    assert not problems, "\n\n".join([f"{len(problems)} problems", *problems[:20]])
    statuses = Counter(status for each in heard for status in each.statuses)
    print(f"{len(heard)} conversations, answers by status: {sorted(statuses.items())}")
    assert {200, 400, 404} <= statuses.keys()
    assert service.workers() == workers
    assert service.get("/readyz")[0] == 200
    assert "Traceback" not in service.log.read_text()
    assert [line for line in service.lines() if line["level"] in ("error", "critical")] == []
    wait_until(lambda: sum(open_files(service)) <= sum(files) + CLIENTS)
    # No turn of any worker has been lost.
    with ThreadPoolExecutor(CLIENTS) as threads:
        paths = ["/allocation_candidates?resources=VCPU:1&limit=10"] * 10 * CLIENTS
        assert {status for status, _ in threads.map(service.get, paths)} == {200}
