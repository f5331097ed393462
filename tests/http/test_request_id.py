import logging
import re

import pytest
from flask import Flask, Response, g

from placement_svc.http import request_id

OWN = re.compile(r"req-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
SENT = "req-0ae00000-0000-4000-8000-000000000009"


@pytest.fixture
def record():
    return logging.LogRecord("name", logging.INFO, "path", 1, "message", (), None)


def test_every_request_has_its_own_id():
    ids = set()
    for _ in range(3):
        with Flask(__name__).test_request_context():
            request_id.assign()
            ids.add(g.request_id)
    assert len(ids) == 3
    assert all(map(OWN.fullmatch, ids))


def test_response_has_the_id():
    with Flask(__name__).test_request_context():
        request_id.assign()
        assert request_id.set_header(Response()).headers["x-openstack-request-id"] == g.request_id


@pytest.mark.parametrize(
    ("sent", "accepted"),
    [
        (SENT, True),
        (SENT.upper(), False),
        (SENT.replace("req-", ""), False),
        (SENT + "0", False),
        ("x" + SENT, False),
        ("req-nonsense", False),
        ("", False),
    ],
)
def test_id_of_the_caller_is_only_logged(sent, accepted, record):
    with Flask(__name__).test_request_context(headers={"X-Openstack-Request-Id": sent}):
        request_id.assign()
        assert request_id.RequestIdFilter().filter(record)
        assert record.request_id == g.request_id != sent
        assert record.global_request_id == (sent if accepted else None)


def test_record_outside_requests_has_no_ids(record):
    assert request_id.RequestIdFilter().filter(record)
    assert not hasattr(record, "request_id")
    assert not hasattr(record, "global_request_id")
