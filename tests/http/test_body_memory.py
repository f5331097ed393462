"""The memory and the processor time that the largest accepted bodies take, and those that are refused."""

import ctypes
import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from placement_svc.domain.errors import Invalid
from placement_svc.http.body import MIN_MEMORY, estimate_memory, read_json
from placement_svc.schemas.allocations import parse_claim, parse_claims
from placement_svc.schemas.reshaper import parse_reshape
from tests.support.processor_time import reference_seconds

MAX_BODY = 16 * 1024 * 1024

VERSION = (1, 39)

MAX_COST = 15
"""A generous bound, as a multiple of `reference_seconds()`: a body costs less than 4."""

TOLERANCE = 8 * 1024 * 1024
"""Memory that does not depend on the body: free lists, caches, and the granularity of the allocator."""

UUID = "%08x-0000-4000-8000-000000000000"

CLAIM = '{"project_id":"p","user_id":"u","consumer_type":"C","consumer_generation":null,"allocations":{%s}}'

RECORD = '{"total":1000,"reserved":0,"min_unit":1,"max_unit":1000,"step_size":1,"allocation_ratio":1.5}'

ITEMS = {
    "small numbers": "1",
    "numbers": "%d",
    "floats": "1.5",
    "empty lists": "[]",
    "empty objects": "{}",
    "lists of one": "[1]",
    "objects of one": '{"":1}',
    "nested objects": '{"a":{"b":{"c":{}}}}',
    "nested lists": "[[[[]]]]",
    "empty strings": '""',
    "short strings": '"a"',
    "different strings": '"%x"',
    "wide strings": '"☃☃☃☃ \U0001f600"',
    "escaped wide strings": r'"aaaaaaaaaaaa\ud83d\ude00"',
    "traits": '"CUSTOM_%d"',
    "brackets in strings": '"[{,:[{,:"',
}

BODIES: dict[str, tuple[str, str, str]] = {
    **{name: ("[", item, "]") for name, item in ITEMS.items()},
    "keys": ("{", '"%x":1', "}"),
    "duplicate keys": ("{", '"a":1', "}"),
    "duplicate fields": ("{", '"total":1000', "}"),
    "objects of one field": ("[", '{"total":%d}', "]"),
    "objects of six fields": ("[", RECORD, "]"),
    "fields with objects": ("[", '{"resources":{"total":{"reserved":{}}}}', "]"),
    "huge numbers": ("[", "1e300", "]"),
    "providers of a claim": (
        CLAIM.partition("%s")[0],
        f'"{UUID}":{{"resources":{{"VCPU":1}}}}',
        CLAIM.partition("%s")[2],
    ),
    "providers of a claim, the last one wrong": (
        CLAIM.partition("%s")[0],
        f'"{UUID}":{{"resources":{{"VCPU":1}}}}',
        f',"{"f" * 8}{UUID[4:]}":1' + CLAIM.partition("%s")[2],
    ),
    "classes of a claim": (
        CLAIM.replace("%s", f'"{UUID % 1}":{{"resources":{{').removesuffix("}}"),
        '"CUSTOM_%d":1',
        "}}}}",
    ),
    "claims": ("{", f'"{UUID}":' + CLAIM % f'"{UUID % 1}":{{"resources":{{"VCPU":1}}}}', "}"),
    "reshape": (
        '{"allocations":{},"inventories":{',
        f'"{UUID}":{{"resource_provider_generation":1,"inventories":{{"VCPU":{{"total":1}}}}}}',
        "}}",
    ),
    "reshape of whole inventories": (
        '{"allocations":{},"inventories":{',
        f'"{UUID}":{{"resource_provider_generation":1,"inventories":{{"VCPU":{RECORD},"DISK_GB":{RECORD}}}}}',
        "}}",
    ),
}
"""The beginning, the repeated item, and the end of bodies by name; the item may have a number in it."""


def drawn_item(draw: random.Random, depth: int = 3) -> str:
    """Return a random JSON value."""
    kind = draw.choice(["number", "string", "list", "object"] if depth else ["number", "string"])
    if kind == "number":
        return draw.choice(["0", "%d", "1e9", "-1.25", "null", "true"])
    if kind == "string":
        return json.dumps(draw.choice(["", "a", "é", "☃", "\U0001f600", "x" * draw.randrange(300)]))
    members = [drawn_item(draw, depth - 1) for _ in range(draw.randrange(4))]
    if kind == "list":
        return f"[{','.join(members)}]"
    return f"{{{','.join(f'{json.dumps(chr(97 + n))}:{member}' for n, member in enumerate(members))}}}"


BODIES |= {f"drawn {seed}": ("[", drawn_item(random.Random(seed)), "]") for seed in range(12)}


def build(name: str, count: int) -> bytes:
    """Return a body with that many items."""
    start, item, end = BODIES[name]
    has_number = any(conversion in item for conversion in ("%d", "%x", "%08x"))
    return (start + ",".join(item % n if has_number else item for n in range(count)) + end).encode()


def largest_accepted(name: str) -> bytes:
    """Return a body with nearly as many items as are accepted, of at most `MAX_BODY` bytes."""
    sample = build(name, 50_000)
    count = 47_000 * min(MIN_MEMORY / estimate_memory(sample), MAX_BODY / len(sample))
    body = build(name, int(count))
    assert estimate_memory(body) <= max(MIN_MEMORY, 4 * len(body))
    return body


LONG = {
    "string": b'["' + b"a" * (MAX_BODY - 4) + b'"]',
    "wide string": "☃".join(['["', "a" * (MAX_BODY * 5 // 8), '"]']).encode(),
    "wide string, refused": "☃".join(['["', "a" * (MAX_BODY - 10), '"]']).encode(),
    "name": b'{"name":"' + b"A" * (MAX_BODY - 20) + b'"}',
    "white space": b" " * (MAX_BODY - 2) + b"{}",
    "depth": b"[" * MAX_BODY,
    "objects": b'{"a":' * (MAX_BODY // 5),
    "commas": b"," * MAX_BODY,
    "number": b"1" * MAX_BODY,
}

PARSERS: list[Callable[[Any], Any]] = [
    lambda body: parse_claim(UUID % 1, body, VERSION, {}),
    lambda body: parse_claims(body, VERSION),
    lambda body: parse_reshape(body, VERSION),
]


def read_status(field: str) -> int:
    """Return a size in /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def measure(name: str) -> None:
    """Print the name and size of a body, and for each parser the peak memory, the cost and the result.

    The cost is the processor time as a multiple of `reference_seconds()`.
    """
    rows: list[list[Any]] = []
    body = LONG[name] if name in LONG else largest_accepted(name)
    app = Flask(__name__)
    for parse in PARSERS:
        with app.test_request_context("/", method="POST", data=body):
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")
            before, started = read_status("VmRSS"), time.process_time()
            try:
                parse(read_json())
                result = "valid"
            except Invalid as error:
                result = str(error)[:60]
            seconds = time.process_time() - started
            rows.append([name, len(body), read_status("VmHWM") - before, seconds, result])
    reference = reference_seconds()
    for name, size, peak, seconds, result in rows:
        print(json.dumps([name, size, peak, seconds / reference, result]), flush=True)


def measure_each() -> None:
    """Measure each body in a process of its own."""
    for name in (*BODIES, *LONG):
        child = os.fork()
        if not child:
            measure(name)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, name


Measurement = tuple[int, int, float, str]


@pytest.fixture(scope="module")
def measurements() -> dict[str, list[Measurement]]:
    """Size, peak memory in bytes, cost, and result of each parser, by body."""
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    output = subprocess.run([sys.executable, __file__], check=True, stdout=subprocess.PIPE, text=True).stdout
    measured: dict[str, list[Measurement]] = {}
    for name, *measurement in map(json.loads, output.splitlines()):
        measured.setdefault(name, []).append(tuple(measurement))
    return measured


@pytest.mark.parametrize("name", [*BODIES, *LONG])
def test_peak_memory_and_time_are_bounded(measurements: dict[str, list[Measurement]], name: str) -> None:
    assert len(measurements[name]) == len(PARSERS)
    for size, peak, cost, _ in measurements[name]:
        assert peak <= max(4 * size, MIN_MEMORY) + TOLERANCE
        assert cost < MAX_COST


@pytest.mark.parametrize(
    "name", ["providers of a claim", "claims", "reshape", "reshape of whole inventories"]
)
def test_large_valid_bodies_are_accepted(measurements: dict[str, list[Measurement]], name: str) -> None:
    assert "valid" in [result for _, _, _, result in measurements[name]]


def test_reshape_of_ten_thousand_providers_is_accepted() -> None:
    inventories = (
        f'{{"resource_provider_generation":1,"inventories":{{"VCPU":{RECORD},"MEMORY_MB":{RECORD}}}}}'
    )
    claim = CLAIM % f'"{UUID % 1}":{{"resources":{{"VCPU":1}}}}'
    members = [",".join(f'"{UUID % n}":{value}' for n in range(10_000)) for value in (inventories, claim)]
    body = f'{{"inventories":{{{members[0]}}},"allocations":{{{members[1]}}}}}'
    assert estimate_memory(body.encode()) < MIN_MEMORY


if __name__ == "__main__":
    measure_each()
