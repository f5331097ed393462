"""Log records: their fields, their formats, and the escaping of client input."""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placement_svc.db.connections.urls import redact_url
from placement_svc.http import token_file
from placement_svc.http.log_text import MAX_LENGTH
from placement_svc.server import logs
from tests.conftest import ADMIN, NewApp

GLOBAL_ID = "req-0ae00000-0000-4000-8000-000000000009"
UNUSUAL = [
    "line\nbreak",
    "carriage\rreturn",
    "\x1b[31mred\x1b[0m",
    "\x9b31mred",
    "nul\x00",
    "next\x85line",
    "separator\u2028here",
    "\u202eright to left",
    "lone \udcff surrogate",
    '"quoted" \\ {}',
]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[logging.LogRecord]]:
    """A function that returns the access log records so far."""
    caplog.set_level(logging.INFO, logger="placement_svc")
    return lambda: [
        record for record in caplog.records if record.name == "placement_svc.observability.access_log"
    ]


Lines = Callable[[], list[logging.LogRecord]]


def record(message: str, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("placement_svc.x", logging.WARNING, __file__, 1, message, (), None)
    made.__dict__.update(extra)
    return made


@pytest.mark.usefixtures("clean_database")
def test_request_is_one_record(new_app: NewApp, lines: Lines) -> None:
    headers = ADMIN | {"X-Openstack-Request-Id": GLOBAL_ID}
    response = new_app().test_client().get("/resource_providers?name=x", headers=headers, buffered=True)
    [line] = lines()
    assert (line.levelname, line.getMessage()) == ("INFO", "request")
    fields = line.__dict__
    assert fields["request_id"] == response.headers["x-openstack-request-id"]
    assert fields["global_request_id"] == GLOBAL_ID
    assert (fields["method"], fields["path"], fields["route"]) == (
        "GET",
        "/resource_providers",
        "/resource_providers",
    )
    assert (fields["status"], fields["microversion"]) == (200, "1.39")
    assert fields["statements"] >= 1
    assert fields["duration"] >= fields["statement_duration"] > 0
    assert "query" not in fields
    assert (fields["user_id"], fields["project_id"], fields["client"]) == ("admin", "admin", "127.0.0.1")


def test_request_without_a_caller_has_a_client(new_app: NewApp, lines: Lines) -> None:
    new_app().test_client().get("/traits", buffered=True)
    fields = lines()[0].__dict__
    assert (fields["user_id"], fields["project_id"], fields["client"]) == (None, None, "127.0.0.1")


def test_unverified_caller_is_not_in_the_log(new_app: NewApp, lines: Lines) -> None:
    for token in ("a-secret", "admin:a-secret", "a-secret:admin"):
        new_app().test_client().get("/traits", headers={"X-Auth-Token": token}, buffered=True)
    logged = [(line.__dict__["user_id"], line.__dict__["project_id"]) for line in lines()]
    assert logged == [(None, None), ("admin", None), (None, "admin")]


def test_verified_caller_in_the_log_is_bounded(new_app: NewApp, tmp_path: Path, lines: Lines) -> None:
    file = tmp_path / "tokens.json"
    token = token_file.add(file, "u" * 3000, "p" * 3000, ["admin"])
    client = new_app(auth="token", token_file=file).test_client()
    client.get("/traits", headers={"X-Auth-Token": token}, buffered=True)
    fields = lines()[0].__dict__
    assert (fields["user_id"], fields["project_id"]) == ("u" * 255, "p" * 255)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/openapi.json", 200),
        ("GET", "/docs", 200),
        ("HEAD", "/docs", 200),
        ("POST", "/docs", 405),
        ("GET", "/docs/swagger-ui.css", 200),
        ("HEAD", "/docs/swagger-ui.css", 200),
    ],
)
def test_request_for_the_documentation_is_logged_and_counted(
    new_app: NewApp, lines: Lines, method: str, path: str, status: int
) -> None:
    client = new_app().test_client()
    headers = {"X-Openstack-Request-Id": GLOBAL_ID}
    response = client.open(path, method=method, headers=headers)
    assert lines() == []
    response.get_data()
    response.close()
    [line] = lines()
    fields = line.__dict__
    assert (fields["method"], fields["path"], fields["route"], fields["status"]) == (
        method,
        path,
        path,
        status,
    )
    assert (fields["microversion"], fields["user_id"], fields["client"]) == (None, None, "127.0.0.1")
    assert fields["request_id"] == response.headers["x-openstack-request-id"]
    assert fields["global_request_id"] == GLOBAL_ID
    assert fields["duration"] > 0
    labels = f'method="{method}",microversion="none",route="{path}",status="{status}"'
    assert f"placement_requests_total{{{labels}}} 1.0" in client.get("/metrics").text


def test_unchanged_file_of_the_documentation_is_logged(new_app: NewApp, lines: Lines) -> None:
    client = new_app().test_client()
    etag = client.get("/docs/swagger-ui.css", buffered=True).headers["ETag"]
    client.get("/docs/swagger-ui.css", headers={"If-None-Match": etag}, buffered=True)
    assert [line.__dict__["status"] for line in lines()] == [200, 304]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/nothing", ADMIN, 404), ("/traits", {}, 401), ("/traits/X", ADMIN | {"Accept": "a/b"}, 404)],
)
def test_rejected_request_is_one_record(
    new_app: NewApp, lines: Lines, path: str, headers: dict[str, str], status: int
) -> None:
    new_app().test_client().get(path, headers=headers, buffered=True)
    assert [line.__dict__["status"] for line in lines()] == [status]


def test_probes_are_not_logged(new_app: NewApp, lines: Lines) -> None:
    client = new_app().test_client()
    for path in ("/healthz", "/readyz", "/metrics"):
        client.get(path, buffered=True)
    assert lines() == []


@pytest.mark.usefixtures("clean_database")
def test_slow_request_is_logged_with_its_parameters(new_app: NewApp, lines: Lines) -> None:
    client = new_app(slow_request=0.0).test_client()
    client.get("/resource_providers?name=%0Ax", headers=ADMIN, buffered=True)
    client.post("/resource_providers", json={"name": "x"}, headers=ADMIN, buffered=True)
    read, write = lines()
    assert (read.levelname, read.getMessage()) == ("WARNING", "slow request")
    assert (read.__dict__["query"], read.__dict__["body_bytes"]) == ("name=%0Ax", None)
    assert (write.__dict__["query"], write.__dict__["body_bytes"]) == ("", len('{"name":"x"}'))


@pytest.mark.parametrize("slow_request", [0.0, 60.0])
def test_long_path_and_query_are_cut(new_app: NewApp, lines: Lines, slow_request: float) -> None:
    path = "/" + "x" * 60_000
    new_app(slow_request=slow_request).test_client().get(f"{path}?{path}", headers=ADMIN, buffered=True)
    [line] = lines()
    fields = line.__dict__
    assert fields["status"] == 404
    cut = [fields[name] for name in ("path", "query") if name in fields]
    assert len(cut) == (2 if slow_request == 0 else 1)
    for text in cut:
        assert text.startswith("/xxx")
        assert text.endswith("... (cut: 60001 characters)")
        assert len(text) <= MAX_LENGTH


def test_path_of_a_failed_request_is_cut(
    new_app: NewApp, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app()

    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("A bug.")

    monkeypatch.setitem(app.view_functions, "traits.show_trait", fail)
    name = "Y" * 60_000
    assert app.test_client().get(f"/traits/{name}", headers=ADMIN).status_code == 500
    [failed] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert failed.getMessage().startswith("GET /traits/YYY")
    assert len(failed.getMessage()) <= MAX_LENGTH + 100


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_text_of_a_record_is_unbounded(log_format: str) -> None:
    failed = record("m" * 60_000, path="p" * 60_000)
    try:
        raise ValueError("v" * 60_000)
    except ValueError:
        failed.exc_info = sys.exc_info()
    text = logs.formatter(log_format).format(failed)
    assert len(text) < 4 * MAX_LENGTH
    assert text.count("... (cut: 60000 characters)") == 2
    assert "in test_no_text_of_a_record_is_unbounded" in text


@pytest.mark.parametrize("text", UNUSUAL)
def test_json_is_one_line_that_decodes_to_the_record(text: str) -> None:
    line = logs.formatter("json").format(record(f"message {text}", path=text))
    assert line.isascii()
    assert line.isprintable()
    decoded = json.loads(line)
    assert (decoded["event"], decoded["path"]) == (f"message {text}", text)
    assert (decoded["level"], decoded["logger"]) == ("warning", "placement_svc.x")


@pytest.mark.parametrize("text", UNUSUAL)
def test_console_record_is_one_printable_line(text: str) -> None:
    assert logs.formatter("console").format(record(f"message {text}", path=text)).isprintable()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_exception_has_a_traceback_without_variables(log_format: str) -> None:
    def fail(token: str) -> None:
        raise ValueError("first\n2026-11-20 [info] second")

    failed = record("failed")
    try:
        fail("".join(["hidden", "-", "token"]))
    except ValueError:
        failed.exc_info = sys.exc_info()
    text = logs.formatter(log_format).format(failed)
    assert "in fail" in text
    assert "hidden-token" not in text
    _, *more = text.split("\n")
    assert all(line.startswith("    ") for line in more)
    assert bool(more) == (log_format == "console")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_field_without_a_value_is_omitted(log_format: str) -> None:
    text = logs.formatter(log_format).format(record("message", global_request_id=None))
    assert "global_request_id" not in text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql+psycopg2://me:secret@host/placement", "postgresql+psycopg2://me:***@host/placement"),
        ("postgresql://me@/placement?host=a&password=secret", "postgresql://me@/placement?host=a"),
        ("postgresql://host/placement?sslpassword=secret", "postgresql://host/placement"),
    ],
)
def test_url_is_shown_without_its_password(url: str, expected: str) -> None:
    assert redact_url(url) == expected
