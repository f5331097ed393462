"""A refused request body is freed at the end of its request, without the garbage collector."""

import gc
import json
import tracemalloc
from typing import Any

import pytest
from flask import Flask

from tests.conftest import ADMIN

UUID = "%08x-0000-4000-8000-000000000000"
INVENTORIES = {
    UUID % number: {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1}}}
    for number in range(10_000)
}
TRAITS = [f"CUSTOM_{number}" for number in range(50_000)]


def claim(provider: str, **changes: Any) -> dict[str, Any]:
    """Return the body of a claim of one VCPU at a provider."""
    body = {
        "allocations": {provider: {"resources": {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "C",
        "consumer_generation": None,
    }
    return body | changes


def claims(number: int, **changes: Any) -> dict[str, Any]:
    """Return the body of so many claims at a provider that does not exist."""
    return {UUID % n: claim(UUID % 1, **changes) for n in range(number)}


REFUSED = {
    "malformed": ("POST", "/reshaper", b"a" * 2_000_000, 400),
    "too deep": ("POST", "/reshaper", b"[" * 1_000_000, 400),
    "too many values": ("POST", "/reshaper", b"[" + b"[]," * 600_000 + b"[]]", 400),
    "list": ("POST", "/reshaper", json.dumps([f"{n}{'x' * 1000}" for n in range(2000)]).encode(), 400),
    "keys": (
        "POST",
        "/reshaper",
        json.dumps({"inventories": {f"{n}{'x' * 1000}": 1 for n in range(2000)}}).encode(),
        400,
    ),
    "values": (
        "POST",
        "/reshaper",
        json.dumps({"inventories": dict.fromkeys(INVENTORIES, "x" * 100), "allocations": {}}).encode(),
        400,
    ),
    "unknown providers": (
        "POST",
        "/reshaper",
        json.dumps({"inventories": INVENTORIES, "allocations": {}}).encode(),
        400,
    ),
    "claims of an unknown provider": ("POST", "/allocations", json.dumps(claims(5000)).encode(), 400),
    "wrong generations": (
        "POST",
        "/allocations",
        json.dumps(claims(5000, consumer_generation=1)).encode(),
        409,
    ),
    "one claim": (
        "PUT",
        f"/allocations/{UUID % 1}",
        json.dumps(
            claim(UUID % 1, allocations={key: {"resources": {"VCPU": 1}} for key in INVENTORIES})
        ).encode(),
        400,
    ),
    "traits": (
        "PUT",
        f"/resource_providers/{UUID % 1}/traits",
        json.dumps(
            {"resource_provider_generation": 0, "traits": [f"CUSTOM_{n}" for n in range(50_000)]}
        ).encode(),
        404,
    ),
}
"""Method, path, body and status of refused requests."""

REPETITIONS = 5


@pytest.mark.parametrize("name", REFUSED)
def test_refused_body_is_freed_without_the_garbage_collector(app: Flask, name: str) -> None:
    method, path, body, status = REFUSED[name]
    client = app.test_client()

    def send() -> None:
        headers = ADMIN | {"Content-Type": "application/json"}
        with client.open(path, method=method, data=body, headers=headers) as response:
            assert response.status_code == status, response.text

    send()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(REPETITIONS):
            send()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    # Caches and statistics may grow a little.
    assert after - before < REPETITIONS * len(body) / 4
