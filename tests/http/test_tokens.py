"""Authentication by static tokens: requests, and the token file."""

import json
import logging
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from placement_svc.domain.errors import SetupError
from placement_svc.http import token_file, tokens
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


def test_token_is_accepted(ask: Ask, service: str) -> None:
    assert ask(service).status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_bearer_token_is_accepted(ask: Ask, service: str, scheme: str) -> None:
    assert ask(Authorization=f"{scheme} {service}").status_code == 200


def test_token_has_roles_and_project(ask: Ask, reader: str) -> None:
    assert ask(reader).status_code == 403
    assert ask(reader, "/usages?project_id=own").status_code == 200
    assert ask(reader, "/usages?project_id=other").status_code == 403


@pytest.mark.parametrize(
    "header", ["X-Roles", "X-Role", "X-Service-Roles", "X-Is-Admin-Project", "X-Identity-Status", "X-User-Id"]
)
def test_identity_headers_are_ignored(ask: Ask, reader: str, header: str) -> None:
    assert ask(reader, **{header: "admin"}).status_code == 403
    assert ask(**{header: "admin"}).status_code == 401


def test_scope_headers_are_ignored(ask: Ask, service: str, reader: str) -> None:
    assert ask(reader, "/usages?project_id=other", **{"X-Project-Id": "other"}).status_code == 403
    assert ask(service, **{"OpenStack-System-Scope": "all", "X-Domain-Id": "default"}).status_code == 200


def assert_unauthorized(response: TestResponse, challenge: str) -> None:
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == challenge
    assert response.headers["x-openstack-request-id"].startswith("req-")
    assert "openstack-api-version" not in response.headers
    assert response.json["code"] == "401 Unauthorized"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Auth-Token": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Authorization": "nonsense"},
        {"Authorization": "Basic \xe4"},
        {"Authorization": "\xe4"},
    ],
)
def test_request_without_token_gets_401(ask: Ask, headers: dict[str, str]) -> None:
    assert_unauthorized(ask(**headers), 'Bearer realm="placement"')


@pytest.mark.parametrize("token", ["admin", "admin:admin", ".", "..", "\xe4", UNKNOWN, " "])
def test_unknown_token_gets_401(ask: Ask, token: str) -> None:
    challenge = 'Bearer realm="placement", error="invalid_token"'
    assert_unauthorized(ask(token), challenge)
    assert_unauthorized(ask(Authorization=f"Bearer {token}."), challenge)
    assert "wrong, or has been revoked" in ask(token).json["message"]


def test_part_of_a_token_gets_401(ask: Ask, service: str, reader: str) -> None:
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


def test_hash_and_salt_are_not_accepted_as_secret(ask: Ask, service: str, file: Path) -> None:
    token_id = service.split(".")[0]
    record = json.loads(file.read_text())[token_id]
    for known in (record["hash"], record["salt"]):
        assert ask(f"{token_id}.{known}").status_code == 401


@pytest.mark.parametrize("path", ["/", ""])
def test_root_document_needs_no_token(app: Flask, path: str) -> None:
    response = app.test_client().get("/", environ_overrides={"PATH_INFO": path, "SCRIPT_NAME": "/placement"})
    assert response.status_code == 200


# Expiry


def in_seconds(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_token_is_accepted_until_it_expires(ask: Ask, file: Path) -> None:
    assert ask(token_file.add(file, "u", "p", ["service"], in_seconds(3600))).status_code == 200


def test_expired_token_gets_401_that_says_so(ask: Ask, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    token = token_file.add(file, "late-user", "p", ["service"], in_seconds(-1))
    response = ask(token)
    assert_unauthorized(response, 'Bearer realm="placement", error="invalid_token"')
    assert "This token has expired." in response.json["message"]
    [line] = [record.getMessage() for record in caplog.records if record.name == tokens.__name__]
    assert "late-user" in line
    for part in token.split("."):
        assert part not in caplog.text + response.text


def test_token_expires_while_the_service_runs(ask: Ask, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = token_file.add(file, "u", "p", ["service"], in_seconds(3600))
    assert ask(token).status_code == 200
    monkeypatch.setattr(
        token_file, "datetime", type("Later", (), {"now": lambda _: in_seconds(3601)}), raising=True
    )
    assert ask(token).status_code == 401


def test_only_the_holder_of_the_secret_learns_of_the_expiry(ask: Ask, file: Path) -> None:
    token = token_file.add(file, "u", "p", ["service"], in_seconds(-1))
    response = ask(f"{token.split('.')[0]}.guess")
    assert response.status_code == 401
    assert "expired" not in response.text


def test_file_without_expiry_stays_readable(ask: Ask, file: Path, service: str) -> None:
    """The file has no new key for such a token, so services of older versions can read it too."""
    assert {"expires_at"} & {
        key for record in json.loads(file.read_text()).values() for key in record
    } == set()
    expires_at = in_seconds(3600).replace(microsecond=0)
    token = token_file.add(file, "u", "p", ["service"], expires_at)
    assert token_file.read(file)[token.split(".")[0]].expires_at == expires_at
    assert [ask(t).status_code for t in (service, token)] == [200, 200]


# Changes of the file


def test_new_token_is_accepted_by_the_next_request(ask: Ask, file: Path) -> None:
    assert ask(token_file.add(file, "another", "services", ["admin"])).status_code == 200


def test_revoked_token_gets_401(ask: Ask, file: Path, service: str, reader: str) -> None:
    assert ask(service).status_code == 200
    token_file.remove(file, service.split(".")[0])
    assert ask(service).status_code == 401
    assert ask(reader).status_code == 403


def test_file_changed_in_place_is_reloaded(ask: Ask, file: Path, service: str) -> None:
    assert ask(service).status_code == 200
    file.write_text(file.read_text().replace("service", "nothing"))
    assert ask(service).status_code == 403


def test_malformed_file_keeps_the_previous_tokens(
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


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_special_file_keeps_the_previous_tokens_and_does_not_block(
    ask: Ask, file: Path, service: str, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    file.unlink()
    make_special(file, kind)
    assert [ask(token).status_code for token in (service, UNKNOWN)] == [200, 401]
    [message] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert message.startswith(f"The token file {file} cannot be read: ")
    assert message.endswith("its previous content stays in effect")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_file_that_others_can_read_is_reported_once(
    new_app: NewApp, file: Path, service: str, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    file.chmod(mode)
    app = new_app(auth="token", token_file=file)
    new_app(auth="token", token_file=file)
    token_file.add(file, "another", "services", ["admin"])
    assert app.test_client().get("/traits", headers={"X-Auth-Token": service}).status_code == 404
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        f"The token file {file} can be read by other users of this machine: set its mode to 0600"
    ]


def test_file_that_only_its_owner_can_read_is_not_reported(
    new_app: NewApp, file: Path, service: str, caplog: pytest.LogCaptureFixture
) -> None:
    new_app(auth="token", token_file=file)
    assert caplog.records == []


# The file


def make_special(path: Path, kind: str) -> None:
    """Create a named pipe without a writer, a link to a device, or a directory."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()


@pytest.mark.parametrize(
    ("kind", "why"),
    [("pipe", "Not a regular file"), ("device", "Not a regular file"), ("directory", "Is a directory")],
)
def test_special_file_is_reported_and_does_not_block(file: Path, kind: str, why: str) -> None:
    make_special(file, kind)
    for use in (token_file.read, tokens.token_strategy, lambda path: token_file.add(path, "u", "p", [])):
        with pytest.raises(SetupError, match=f"cannot be read: {why}$"):
            use(file)


def test_new_file_is_readable_only_by_its_owner(file: Path, service: str) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_file_keeps_its_mode(file: Path, service: str) -> None:
    file.chmod(0o640)
    token_file.remove(file, service.split(".")[0])
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_symbolic_link_to_the_file_is_kept(file: Path, service: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    token_file.add(link, "another", "services", ["admin"])
    assert link.is_symlink()
    assert len(token_file.read(file)) == 2


def test_file_does_not_contain_the_secret(file: Path, service: str) -> None:
    token_id, secret = service.split(".")
    assert token_id in file.read_text()
    assert secret not in file.read_text()


def test_no_temporary_file_is_left(file: Path, service: str, reader: str) -> None:
    assert list(file.parent.iterdir()) == [file]


def test_concurrently_created_tokens_are_all_kept(file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: token_file.add(file, f"user{n}", "services", ["service"]), range(40)))
    known = token_file.read(file)
    assert {token.split(".")[0]: f"user{n}" for n, token in enumerate(made)} == {
        token_id: token.user_id for token_id, token in known.items()
    }


def test_removal_of_an_unknown_token_fails(file: Path, service: str) -> None:
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
        *(json.dumps({"a": {k: v for k, v in RECORD.items() if k != missing}}) for missing in RECORD),
        *(json.dumps({"a": RECORD | {name: 5}}) for name in RECORD),
        json.dumps({"a": RECORD | {"roles": [5]}}),
        json.dumps({"a": RECORD | {"roles": "service"}}),
        json.dumps({"a": RECORD | {"other": "x"}}),
        *(json.dumps({"a": RECORD | {"expires_at": at}}) for at in (5, "", "soon", "2026-01-01", [], {})),
    ],
)
def test_malformed_file_is_reported_in_one_line(file: Path, content: str) -> None:
    file.write_text(content)
    for use in (token_file.read, lambda path: token_file.add(path, "u", "p", [])):
        with pytest.raises(SetupError) as raised:
            use(file)
        assert str(raised.value).startswith(
            f"The token file {file} was not written by `placement-svc token`: "
        )
        assert "\n" not in str(raised.value)
    assert file.read_text() == content


def test_unreachable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"does not exist: `placement-svc token create` creates it$"):
        token_file.read(tmp_path / "missing")
    with pytest.raises(SetupError, match=r"^The directory of the token file .* does not exist$"):
        token_file.add(tmp_path / "missing" / "tokens.json", "u", "p", [])
