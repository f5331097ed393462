"""Fixtures: a small cloud with hostile names, and a client that requests pages of the console."""

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from placement_svc.domain.empty_answers import EmptyAnswer
from tests.conftest import ADMIN, LoadCloud
from tests.support.cloud import read, uuid_of

CLOUD = """
    cn1{DISK_GB500 res20}#COMPUTE_NODE@rack1; numa0<cn1{VCPU8 used4 MEMORY_MB8192 used1024}#HW_NUMA_ROOT;
    numa1<cn1{VCPU8 ratio2}; cn2{VCPU4 used4 MEMORY_MB4096}@rack2,storage; bare;
    shared{DISK_GB900 used90}$@storage
"""

SCRIPT = "<script>document.title = 'broken'</script>"
RIGHT_TO_LEFT = "\u202edrawkcab\u2069"
"""Names that break a page which does not escape and isolate them."""

MARKS = "Z" + "\u0301\u0316" * 99
"""A name that is higher than a line, as its combining marks are drawn above and below each other."""

HOSTILE = (
    SCRIPT,
    RIGHT_TO_LEFT,
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "=1+1",
    " ",
    "x" * 200,
    MARKS,
)

LONG_CLASS = "CUSTOM_" + "LONG_NAME_" * 9
"""A resource class without a place for a new line."""

Get = Callable[..., TestResponse]


@pytest.fixture
def cloud(load_cloud: LoadCloud) -> None:
    """Two hosts with shared storage, a host without inventories, and one consumer."""
    load_cloud(read(" ".join(CLOUD.split())))


@pytest.fixture
def hostile_cloud(cloud: None, app: Flask) -> None:
    """The cloud with more hosts, each with a hostile name, and a consumer of a project and user like that."""
    client = app.test_client()

    def send(method: str, path: str, body: object) -> None:
        assert client.open(path, method=method, json=body, headers=ADMIN).status_code < 300

    send("POST", "/resource_classes", {"name": LONG_CLASS})
    for number, name in enumerate(HOSTILE):
        uuid = uuid_of(f"hostile {number}")
        send("POST", "/resource_providers", {"name": name, "uuid": uuid})
        amounts = {"VCPU": number + 1} | ({} if number else {LONG_CLASS: 8})
        inventories = {
            "inventories": {class_name: {"total": 8} for class_name in amounts},
            "resource_provider_generation": 0,
        }
        send("PUT", f"/resource_providers/{uuid}/inventories", inventories)
        claim = {
            "allocations": {uuid: {"resources": amounts}},
            "project_id": name,
            "user_id": name,
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        send("PUT", f"/allocations/{uuid_of(f'hostile consumer {number}')}", claim)


@pytest.fixture
def get(app: Flask) -> Get:
    """A function that requests a page below /console."""

    def get(path: str = "", headers: dict[str, str] | None = None) -> TestResponse:
        return app.test_client().get(f"/console{path}", headers=headers or {})

    return get


def empty_answer(query: str) -> EmptyAnswer:
    """Return a search without candidates, of now."""
    return EmptyAnswer(
        uuid=str(uuid4()),
        created_at=datetime.now(UTC),
        query=query,
        request_id="req-1",
        global_request_id=None,
        user_id=None,
        project_id=None,
    )
