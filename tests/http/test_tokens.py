"""Callers known by static tokens: the file of them, and the requests that bear one."""

import json
import logging
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from placement_svc.domain.errors import SetupError
from placement_svc.http import token_file
from tests.conftest import NewApp

UNKNOWN = "00000000.secret"

Ask = Callable[..., TestResponse]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture
def service(file: Path) -> str:
    """A token of the role service."""
    return token_file.add(file, "scheduler", "services", ["service"])


@pytest.fixture
def reader(file: Path) -> str:
    """A token of the role reader, in the project `own`."""
    return token_file.add(file, "someone", "own", ["member", "Reader"])


@pytest.fixture
def app(new_app: NewApp, file: Path, service: str, reader: str) -> Flask:
    return new_app(auth="token", token_file=file)


@pytest.fixture
def ask(app: Flask) -> Ask:
    def ask(token: str | None = None, path: str = "/resource_classes", **headers: str) -> TestResponse:
        sent = {"OpenStack-API-Version": "placement 1.39"} | ({"X-Auth-Token": token} if token else {})
        return app.test_client().get(path, headers=sent | headers)

    return ask


# Requests


def test_a_token_lets_in(ask: Ask, service: str) -> None:
    assert ask(service).status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_token_lets_in_as_bearer(ask: Ask, service: str, scheme: str) -> None:
    assert ask(Authorization=f"{scheme} {service}").status_code == 200


def test_a_token_has_its_roles_and_its_project(ask: Ask, reader: str) -> None:
    assert ask(reader).status_code == 403
    assert ask(reader, "/usages?project_id=own").status_code == 200
    assert ask(reader, "/usages?project_id=other").status_code == 403


@pytest.mark.parametrize(
    "header", ["X-Roles", "X-Role", "X-Service-Roles", "X-Is-Admin-Project", "X-Identity-Status", "X-User-Id"]
)
def test_a_caller_cannot_say_who_they_are(ask: Ask, reader: str, header: str) -> None:
    assert ask(reader, **{header: "admin"}).status_code == 403
    assert ask(**{header: "admin"}).status_code == 401


def test_a_caller_cannot_say_what_their_token_is_for(ask: Ask, service: str, reader: str) -> None:
    assert ask(reader, "/usages?project_id=other", **{"X-Project-Id": "other"}).status_code == 403
    assert ask(service, **{"OpenStack-System-Scope": "all", "X-Domain-Id": "default"}).status_code == 200


def assert_refused(answer: TestResponse, challenge: str) -> None:
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == challenge
    assert answer.headers["x-openstack-request-id"].startswith("req-")
    assert "openstack-api-version" not in answer.headers
    assert answer.json["code"] == "401 Unauthorized"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Auth-Token": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Authorization": "nonsense"},
    ],
)
def test_without_a_token_nothing_is_answered(ask: Ask, headers: dict[str, str]) -> None:
    assert_refused(ask(**headers), 'Bearer realm="placement"')


@pytest.mark.parametrize("token", ["admin", "admin:admin", ".", "..", "\xe4", UNKNOWN, " "])
def test_an_unknown_token_is_refused(ask: Ask, token: str) -> None:
    challenge = 'Bearer realm="placement", error="invalid_token"'
    assert_refused(ask(token), challenge)
    assert_refused(ask(Authorization=f"Bearer {token}."), challenge)


def test_part_of_a_token_is_refused(ask: Ask, service: str, reader: str) -> None:
    token_id, secret = service.split(".")
    for token in (
        token_id,
        f"{token_id}.",
        secret,
        f".{secret}",
        service[:-1],
        f"{service}x",
        service.swapcase(),
    ):
        assert ask(token).status_code == 401
    assert ask(f"{token_id}.{reader.split('.')[1]}").status_code == 401


def test_what_the_file_has_lets_nobody_in(ask: Ask, service: str, file: Path) -> None:
    token_id = service.split(".")[0]
    record = json.loads(file.read_text())[token_id]
    for known in (record["hash"], record["salt"]):
        assert ask(f"{token_id}.{known}").status_code == 401


@pytest.mark.parametrize("path", ["/", ""])
def test_the_root_document_needs_no_token(app: Flask, path: str) -> None:
    answer = app.test_client().get("/", environ_overrides={"PATH_INFO": path, "SCRIPT_NAME": "/placement"})
    assert answer.status_code == 200


# A file that changes


def test_a_new_token_counts_with_the_next_request(ask: Ask, file: Path) -> None:
    assert ask(token_file.add(file, "another", "services", ["admin"])).status_code == 200


def test_a_revoked_token_counts_no_more(ask: Ask, file: Path, service: str, reader: str) -> None:
    assert ask(service).status_code == 200
    token_file.remove(file, service.split(".")[0])
    assert ask(service).status_code == 401
    assert ask(reader).status_code == 403


def test_a_file_changed_in_place_counts(ask: Ask, file: Path, service: str) -> None:
    assert ask(service).status_code == 200
    file.write_text(file.read_text().replace("service", "nothing"))
    assert ask(service).status_code == 403


def test_a_broken_file_does_not_count(
    ask: Ask, file: Path, service: str, caplog: pytest.LogCaptureFixture
) -> None:
    for content in ("{", "[]"):
        file.write_text(content)
        assert [ask(token).status_code for token in (service, service, UNKNOWN)] == [200, 200, 401]
    file.unlink()
    assert ask(service).status_code == 200
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert all(str(file) in record.getMessage() for record in caplog.records)
    file.write_text("{}")
    assert ask(service).status_code == 401


# The file


def test_a_new_file_is_its_owners_alone(file: Path, service: str) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_keeps_its_mode(file: Path, service: str) -> None:
    file.chmod(0o640)
    token_file.remove(file, service.split(".")[0])
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_link_to_the_file_stays_one(file: Path, service: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    token_file.add(link, "another", "services", ["admin"])
    assert link.is_symlink()
    assert len(token_file.read(file)) == 2


def test_the_file_does_not_have_the_secret(file: Path, service: str) -> None:
    token_id, secret = service.split(".")
    assert token_id in file.read_text()
    assert secret not in file.read_text()


def test_nothing_else_stays_beside_the_file(file: Path, service: str, reader: str) -> None:
    assert list(file.parent.iterdir()) == [file]


def test_tokens_that_are_made_at_once_are_all_kept(file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: token_file.add(file, f"user{n}", "services", ["service"]), range(40)))
    known = token_file.read(file)
    assert {token.split(".")[0]: f"user{n}" for n, token in enumerate(made)} == {
        token_id: token.user_id for token_id, token in known.items()
    }


def test_a_token_that_is_not_there_cannot_be_removed(file: Path, service: str) -> None:
    with pytest.raises(SetupError, match="has no token 00000000"):
        token_file.remove(file, "00000000")


RECORD = {
    "user_id": "u",
    "project_id": "p",
    "roles": ["service"],
    "created_at": "2026-01-01T00:00:00+00:00",
    "salt": "s",
    "hash": "h",
}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"a": 1}',
        '{"a": {}}',
        '{"a": null}',
        *(json.dumps({"a": {k: v for k, v in RECORD.items() if k != gone}}) for gone in RECORD),
        *(json.dumps({"a": RECORD | {name: 5}}) for name in RECORD),
        json.dumps({"a": RECORD | {"roles": [5]}}),
        json.dumps({"a": RECORD | {"roles": "service"}}),
        json.dumps({"a": RECORD | {"other": "x"}}),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_a_line(file: Path, content: str) -> None:
    file.write_text(content)
    for use in (token_file.read, lambda path: token_file.add(path, "u", "p", [])):
        with pytest.raises(SetupError) as refused:
            use(file)
        assert str(refused.value).startswith(f"The token file {file} is not one that this command wrote: ")
        assert "\n" not in str(refused.value)
    assert file.read_text() == content


def test_a_file_that_cannot_be_reached_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be read: No such file or directory"):
        token_file.read(tmp_path / "missing")
    with pytest.raises(SetupError, match="cannot be written: No such file or directory"):
        token_file.add(tmp_path / "missing" / "tokens.json", "u", "p", [])
