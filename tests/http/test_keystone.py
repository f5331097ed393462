"""Authentication by Keystone, with a small identity service over HTTP."""

import gzip
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import pytest
from flask import Response
from werkzeug.test import TestResponse

from placement_svc.domain.errors import SetupError
from placement_svc.domain.execution.deadline import Slot
from placement_svc.http import keystone, keystone_transport
from placement_svc.http.environ import SLOT
from placement_svc.http.keystone import GROUP, keystone_strategy, read_settings
from tests.conftest import NewApp
from tests.support.identity import PASSWORD, USERNAME, Identity, serving, token
from tests.support.service import wait_until
from tests.support.slots import RecordedSlot

PUBLIC = "https://identity.example.org"

Ask = Callable[..., TestResponse]


@pytest.fixture
def identity() -> Iterator[Identity]:
    identity = Identity()
    with serving(identity):
        yield identity


def write(file: Path, **options: object) -> Path:
    """Write an oslo.config file with `options` in the section of keystonemiddleware, and return its path."""
    file.write_text("\n".join(["[keystone_authtoken]", *(f"{k} = {v}" for k, v in options.items())]))
    return file


@pytest.fixture
def options(identity: Identity) -> dict[str, object]:
    """Settings of keystonemiddleware for `identity`, without cache and without retries."""
    return {
        "auth_type": "password",
        "auth_url": identity.url,
        "username": USERNAME,
        "password": PASSWORD,
        "user_domain_id": "default",
        "project_name": "services",
        "project_domain_id": "default",
        "www_authenticate_uri": PUBLIC,
        "token_cache_time": -1,
        "http_request_max_retries": 0,
    }


@pytest.fixture
def configured(new_app: NewApp, tmp_path: Path) -> Callable[..., Ask]:
    """A function that takes settings of keystonemiddleware and returns a function that sends requests."""

    def configure(**options: object) -> Ask:
        app = new_app(auth="keystone", keystone_file=write(tmp_path / "keystone.conf", **options))

        def ask(
            token: str | None = None,
            path: str = "/resource_classes",
            json: object = None,
            slot: Slot | None = None,
            **headers: str,
        ) -> TestResponse:
            sent = {"OpenStack-API-Version": "placement 1.39"} | ({"X-Auth-Token": token} if token else {})
            method = "GET" if json is None else "POST"
            environ = {SLOT: slot} if slot else {}
            return app.test_client().open(
                path, method=method, json=json, headers=sent | headers, environ_overrides=environ
            )

        return ask

    return configure


@pytest.fixture
def ask(configured: Callable[..., Ask], options: dict[str, object]) -> Ask:
    return configured(**options)


def test_valid_token_is_accepted(ask: Ask, identity: Identity) -> None:
    identity.tokens["good"] = token("service")
    assert ask("good").status_code == 200


def test_body_reaches_the_view(ask: Ask, identity: Identity) -> None:
    identity.tokens["good"] = token("service")
    response = ask("good", "/resource_classes", {"name": "CUSTOM_nonsense"})
    assert response.status_code == 400
    assert "'CUSTOM_nonsense' does not match" in response.json["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("roles", "status"),
    [(["service"], 200), (["admin"], 200), (["Admin"], 200), (["member", "reader"], 403), ([], 403)],
)
def test_roles_come_from_the_token(ask: Ask, identity: Identity, roles: list[str], status: int) -> None:
    identity.tokens["good"] = token(*roles)
    assert ask("good").status_code == status
    assert ask("good", **{"X-Roles": "admin,service", "X-Service-Roles": "service"}).status_code == status


def test_project_comes_from_the_token(ask: Ask, identity: Identity) -> None:
    identity.tokens["good"] = token("reader")
    for sent in ({}, {"X-Project-Id": "other", "X-Tenant-Id": "other"}):
        assert ask("good", "/usages?project_id=own", **sent).status_code == 200
        assert ask("good", "/usages?project_id=other", **sent).status_code == 403


@pytest.mark.parametrize(
    "scope",
    [{"system": {"all": True}}, {"domain": {"id": "default", "name": "Default"}}],
    ids=["system", "domain"],
)
def test_token_without_project_scope_is_denied(
    ask: Ask, identity: Identity, scope: dict[str, object]
) -> None:
    identity.tokens["good"] = token("admin", "service", **scope)
    response = ask("good")
    assert response.status_code == 403
    assert response.json["errors"][0]["detail"].endswith("\n\n placement:resource_classes:list  ")


def test_headers_do_not_change_the_scope(ask: Ask, identity: Identity) -> None:
    identity.tokens["good"] = token("service")
    identity.tokens["system"] = token("service", system={"all": True})
    assert ask("good", **{"OpenStack-System-Scope": "all", "X-Domain-Id": "default"}).status_code == 200
    assert ask("system", **{"OpenStack-System-Scope": "", "X-Project-Id": "own"}).status_code == 403


def test_service_token_does_not_change_the_scope(ask: Ask, identity: Identity) -> None:
    identity.tokens |= {"system": token("service", system={"all": True}), "project": token("service")}
    assert ask("system", **{"X-Service-Token": "project"}).status_code == 403
    assert ask("project", **{"X-Service-Token": "system"}).status_code == 200


def test_service_token_does_not_add_roles(ask: Ask, identity: Identity) -> None:
    identity.tokens |= {"user": token("member"), "service": token("service")}
    assert ask("user", **{"X-Service-Token": "service"}).status_code == 403


def assert_unauthorized(response: TestResponse) -> None:
    assert response.status_code == 401
    assert response.content_type.startswith("application/json")
    assert response.json.keys() == {"error"}
    assert response.json["error"].keys() == {"code", "title", "message"}
    assert (response.json["error"]["code"], response.json["error"]["title"]) == (401, "Unauthorized")
    assert response.headers["WWW-Authenticate"] == f'Keystone uri="{PUBLIC}"'
    assert response.headers["x-openstack-request-id"].startswith("req-")
    assert "openstack-api-version" not in response.headers


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Accept": "text/html"},
        {"X-Identity-Status": "Confirmed", "X-User-Id": "admin", "X-Roles": "admin"},
        {"Authorization": "Bearer good"},
        {"Content-Length": "many"},
        {"OpenStack-API-Version": "placement nonsense"},
    ],
)
def test_request_without_token_gets_401(ask: Ask, identity: Identity, headers: dict[str, str]) -> None:
    identity.tokens["good"] = token("service")
    assert_unauthorized(ask(**headers))
    assert_unauthorized(ask(path="/house", **headers))


@pytest.mark.parametrize("sent", ["unknown", "admin", "\xe4", "a b", "../../users"])
def test_unknown_token_gets_401(ask: Ask, sent: str) -> None:
    assert_unauthorized(ask(sent))


def test_expired_token_gets_401(ask: Ask, identity: Identity) -> None:
    identity.tokens["old"] = token("service", hours=-1)
    assert_unauthorized(ask("old"))


def test_expired_token_is_accepted_with_a_service_token(ask: Ask, identity: Identity) -> None:
    identity.tokens |= {
        "old": token("service", hours=-1),
        "service": token("service"),
        "user": token("admin"),
    }
    assert ask("old", **{"X-Service-Token": "service"}).status_code == 200
    assert_unauthorized(ask("old", **{"X-Service-Token": "user"}))


def test_revoked_token_gets_401(ask: Ask, identity: Identity) -> None:
    identity.tokens["good"] = token("service")
    assert ask("good").status_code == 200
    del identity.tokens["good"]
    assert_unauthorized(ask("good"))


def test_cached_token_is_validated_once(
    configured: Callable[..., Ask], options: dict[str, object], identity: Identity
) -> None:
    identity.tokens["good"] = token("service")
    ask = configured(**options | {"token_cache_time": 3600})
    assert [ask("good").status_code for _ in range(3)] == [200] * 3
    assert identity.asked == ["good"]


@pytest.mark.parametrize("sent", ["good", "unknown"])
def test_request_releases_its_slot_only_while_it_asks_keystone(
    configured: Callable[..., Ask], options: dict[str, object], identity: Identity, sent: str
) -> None:
    identity.tokens |= {"good": token("service"), "cached": token("service")}
    ask = configured(**options | {"token_cache_time": 3600})
    ask("cached")
    events: list[str] = []
    ask("cached", slot=RecordedSlot(events))
    assert events == []
    ask(sent, slot=RecordedSlot(events))
    assert events == ["pause", "resume"]


def test_too_many_requests_ask_keystone(
    configured: Callable[..., Ask],
    options: dict[str, object],
    identity: Identity,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keystone, "MAX_ASKING", 1)
    identity.tokens |= {"good": token("service"), "cached": token("service")}
    ask = configured(**options | {"token_cache_time": 3600})
    assert ask("cached").status_code == 200
    identity.is_running.clear()
    with ThreadPoolExecutor(1) as executor:
        try:
            waiting = executor.submit(ask, "good")
            wait_until(lambda: "good" in identity.asked)
            assert_unavailable(ask("good"))
            assert ask("cached").status_code == 200
            assert identity.asked == ["cached", "good"]
        finally:
            identity.is_running.set()
        assert waiting.result().status_code == 200
    assert ask("good").status_code == 200


def test_keystone_that_rejects_the_service_is_asked_again_by_the_same_request(
    configured: Callable[..., Ask],
    options: dict[str, object],
    identity: Identity,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second call needs no second place among those that ask Keystone."""
    monkeypatch.setattr(keystone, "MAX_ASKING", 1)
    identity.failure = 401
    response = configured(**options)("good")
    assert_unavailable(response)
    assert "Too many" not in response.text
    assert len(identity.asked) > 1


def assert_unavailable(response: TestResponse) -> None:
    assert response.status_code == 503
    [error] = response.json["errors"]
    assert error["title"] == "Service Unavailable"
    assert error["request_id"] == response.headers["x-openstack-request-id"]
    assert response.headers["Retry-After"] == "1"


@pytest.mark.parametrize("failure", [500, 502, 503])
def test_keystone_failure_gets_503(ask: Ask, identity: Identity, failure: int) -> None:
    identity.tokens["good"] = token("service")
    identity.failure = failure
    assert_unavailable(ask("good"))
    identity.failure = None
    assert ask("good").status_code == 200


def test_unreachable_keystone_gets_503(
    configured: Callable[..., Ask], options: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(gone := Identity()):
        ask = configured(**options | {"auth_url": gone.url})
    for path in ("/resource_classes", "/house"):
        caplog.clear()
        assert_unavailable(ask("good", path))
        [error] = [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
        assert error.getMessage().startswith("Keystone cannot be reached: ")
    assert ask("good", "/").status_code == 200


def test_keystone_that_rejects_the_service_gets_503(
    configured: Callable[..., Ask], options: dict[str, object], identity: Identity
) -> None:
    identity.tokens["good"] = token("service")
    assert_unavailable(configured(**options | {"password": "wrong"})("good"))


@pytest.mark.parametrize("path", ["/", ""])
def test_root_document_needs_no_token(
    new_app: NewApp, tmp_path: Path, options: dict[str, object], identity: Identity, path: str
) -> None:
    app = new_app(auth="keystone", keystone_file=write(tmp_path / "keystone.conf", **options))
    response = app.test_client().get("/", environ_overrides={"PATH_INFO": path, "SCRIPT_NAME": "/placement"})
    assert response.status_code == 200
    assert identity.asked == []


# Settings


def test_environment_variables_override_the_file(
    configured: Callable[..., Ask],
    options: dict[str, object],
    identity: Identity,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    identity.tokens["good"] = token("service")
    monkeypatch.setenv("OS_KEYSTONE_AUTHTOKEN__AUTH_URL", identity.url)
    assert configured(**options | {"auth_url": "http://127.0.0.1:1"})("good").status_code == 200


def test_environment_variables_are_sufficient(
    options: dict[str, object], identity: Identity, monkeypatch: pytest.MonkeyPatch, new_app: NewApp
) -> None:
    identity.tokens["good"] = token("service")
    for name, value in options.items():
        monkeypatch.setenv(f"OS_KEYSTONE_AUTHTOKEN__{name.upper()}", str(value))
    client = new_app(auth="keystone").test_client()
    response = client.get("/resource_providers", headers={"X-Auth-Token": "good"})
    assert response.status_code == 200


def test_delayed_auth_decision_is_overridden(
    configured: Callable[..., Ask], options: dict[str, object]
) -> None:
    assert_unauthorized(configured(**options | {"delay_auth_decision": "true"})("unknown"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"auth_type": None}, "needs auth_type"),
        ({"auth_type": "nonsense"}, "nonsense"),
        ({"auth_url": None}, "auth_url"),
        ({"token_cache_time": "long"}, "token_cache_time"),
    ],
)
def test_incomplete_settings_are_reported_in_one_line(
    tmp_path: Path, options: dict[str, object], change: dict[str, object], message: str
) -> None:
    left = {name: value for name, value in (options | change).items() if value is not None}
    with pytest.raises(SetupError, match=message) as raised:
        keystone_strategy(write(tmp_path / "keystone.conf", **left))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", ["auth_type = password", "[keystone_authtoken", "\xff"])
def test_malformed_file_is_reported_in_one_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keystone.conf"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(SetupError, match="The settings of Keystone cannot be used") as raised:
        keystone_strategy(file)
    assert "\n" not in str(raised.value)


def test_directory_in_place_of_the_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"The settings of Keystone cannot be used: .*Is a directory"):
        keystone_strategy(tmp_path)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="missing"):
        keystone_strategy(tmp_path / "missing")


def test_missing_extra_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keystonemiddleware.auth_token", None)
    with pytest.raises(SetupError, match=r"pip install 'placement-svc\[keystone\]'$"):
        keystone_strategy(None)


def test_missing_memcached_client_is_reported(
    tmp_path: Path, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "memcache", None)
    file = write(tmp_path / "keystone.conf", **options | {"memcached_servers": "127.0.0.1:11211"})
    with pytest.raises(SetupError, match=r"^memcached_servers .*pip install 'placement-svc\[keystone\]'$"):
        keystone_strategy(file)


def test_memcached_that_cannot_be_reached_is_not_used(
    configured: Callable[..., Ask], options: dict[str, object], identity: Identity
) -> None:
    identity.tokens["good"] = token("service")
    ask = configured(**options | {"memcached_servers": "127.0.0.1:1", "token_cache_time": 300})
    assert [ask("good").status_code for _ in range(2)] == [200, 200]
    assert identity.asked == ["good", "good"]


def test_requests_to_keystone_have_time_limits_by_default(tmp_path: Path) -> None:
    settings = read_settings(write(tmp_path / "keystone.conf"))[GROUP]
    assert 0 < settings.http_connect_timeout <= 5
    assert settings.http_request_max_retries <= 1


def test_operator_sets_the_time_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "keystone.conf", http_connect_timeout=7, http_request_max_retries=2)
    settings = read_settings(file)[GROUP]
    assert (settings.http_connect_timeout, settings.http_request_max_retries) == (7, 2)
    monkeypatch.setenv("OS_KEYSTONE_AUTHTOKEN__HTTP_CONNECT_TIMEOUT", "8")
    assert read_settings(file)[GROUP].http_connect_timeout == 8


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keystone, "CONNECT_TIMEOUT", 1)


def test_token_check_that_gets_no_response_ends(
    configured: Callable[..., Ask],
    options: dict[str, object],
    identity: Identity,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So long that a stall of the machine ends no attempt.
    monkeypatch.setattr(keystone, "CONNECT_TIMEOUT", 4)
    del options["http_request_max_retries"]
    ask = configured(**options)
    identity.tokens["known"] = token("service")
    # The service gets a token of its own.
    assert ask("known").status_code == 200
    identity.asked.clear()
    identity.is_running.clear()
    with ThreadPoolExecutor(1) as executor:
        try:
            assert executor.submit(ask, "good").result(timeout=60).status_code == 503
        finally:
            identity.is_running.set()
    wait_until(lambda: identity.asked == ["good"] * 2)


@pytest.mark.usefixtures("short_timeout")
def test_authentication_of_the_service_that_gets_no_response_ends(
    configured: Callable[..., Ask], options: dict[str, object]
) -> None:
    del options["http_request_max_retries"]
    # The executor waits for the request, which fails at the latest when the socket is closed.
    with ThreadPoolExecutor(1) as executor, socket.create_server(("127.0.0.1", 0)) as silent:
        ask = configured(**options | {"auth_url": f"http://127.0.0.1:{silent.getsockname()[1]}/v3"})
        assert executor.submit(ask, "good").result(timeout=60).status_code == 503


@contextmanager
def dripping_keystone(start: bytes) -> Iterator[str]:
    """Yield the URL of a server that sends `start`, and then a byte in each tenth of a second."""
    is_over = Event()

    def drip(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65536)
            client.sendall(start)
            while not is_over.wait(0.1):
                client.sendall(b"1")

    with ThreadPoolExecutor() as executor, socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    executor.submit(drip, server.accept()[0])

        executor.submit(accept)
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/v3"
        finally:
            is_over.set()
            server.shutdown(socket.SHUT_RDWR)


@pytest.mark.usefixtures("short_timeout")
@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nX-Long: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["header", "body", "chunk size"],
)
def test_token_check_whose_response_drips_ends(
    configured: Callable[..., Ask],
    options: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    start: bytes,
) -> None:
    """The limit is twice the timeout here, since nothing is repeated; the next request can ask Keystone.

    Without it, the response would drip for more than a minute.
    """
    monkeypatch.setattr(keystone, "MAX_ASKING", 1)
    with dripping_keystone(start) as url:
        ask = configured(**options | {"auth_url": url})
        for _ in range(2):
            begin = time.monotonic()
            response = ask("good")
            assert_unavailable(response)
            assert "Too many" not in response.text
            assert time.monotonic() - begin < 30


# Malformed responses

DEEP = "[" * 100_000 + "]" * 100_000


def changed(description: dict[str, object], change: dict[str, object]) -> str:
    """Return the body of a response with a token; None in `change` removes a key."""
    merged = description | change
    return json.dumps({"token": {key: value for key, value in merged.items() if value is not None}})


MALFORMED_BODIES = [
    *("", "<html>", '{"token": {', "null", "[]", "5", '{"token": null}', '{"token": []}', '{"token": "a"}'),
    *('{"access": {"token": {"id": "x"}}}', b"\xff\xfe{", DEEP, f'{{"token": {DEEP}}}', "{}"),
]

MALFORMED_TIMES: list[object] = [None, "never", 5, [], "9999-12-31T23:59:59-23:00"]


@pytest.mark.parametrize("body", MALFORMED_BODIES, ids=lambda body: repr(body[:30]))
def test_malformed_token_check_gets_503(
    ask: Ask, identity: Identity, body: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    identity.tokens["good"] = token("service")
    identity.check_response = Response(body)
    assert_not_understood(ask("good"))
    assert "malformed" in caplog.text
    identity.check_response = None
    assert ask("good").status_code == 200


@pytest.mark.parametrize(
    ("change", "part"),
    [
        *(({"expires_at": value}, "expires_at") for value in MALFORMED_TIMES),
        *(({"roles": value}, "roles") for value in ("service", {}, [None], ["service"], [{"id": "x"}])),
        *(({"user": value}, "user") for value in (None, "user", {}, {"id": "x", "name": "x"})),
        *(({"project": value}, "project") for value in ("own", {}, {"id": 5, "name": "x"})),
        *(({"domain": "default"}, "domain"), ({"system": "all"}, "system"), ({"catalog": "x"}, "catalog")),
        *(({"catalog": [None]}, "catalog"), ({"catalog": [{"type": 5}]}, "catalog")),
        ({"bind": 5}, "bind"),
        ({"application_credential": [5]}, "application_credential"),
    ],
    ids=str,
)
def test_malformed_description_of_a_token_gets_503(
    configured: Callable[..., Ask],
    options: dict[str, object],
    identity: Identity,
    caplog: pytest.LogCaptureFixture,
    change: dict[str, object],
    part: str,
) -> None:
    """It is not cached either."""
    ask = configured(**options | {"token_cache_time": 3600})
    identity.tokens["good"] = token("service")
    identity.check_response = Response(changed(identity.tokens["good"], change))
    assert_not_understood(ask("good"))
    assert f"Keystone's description of a token is malformed: {{'{part}'" in caplog.text
    identity.check_response = None
    assert ask("good").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        *MALFORMED_BODIES,
        *(changed(token("service"), {"expires_at": value}) for value in MALFORMED_TIMES),
        *(changed(token("service"), {"catalog": value}) for value in ("x", [5], [{"type": "identity"}])),
    ],
    ids=lambda body: repr(body[-60:]),
)
def test_malformed_authentication_of_the_service_is_not_kept(
    ask: Ask, identity: Identity, body: str | bytes
) -> None:
    identity.tokens["good"] = token("service")
    identity.login_response = Response(body, headers={"X-Subject-Token": "t"})
    assert_unavailable(ask("good"))
    identity.login_response = None
    assert ask("good").status_code == 200


@pytest.mark.parametrize("headers", [{}, {"X-Subject-Token": ""}])
def test_authentication_of_the_service_without_a_token_is_not_kept(
    ask: Ask, identity: Identity, headers: dict[str, str]
) -> None:
    identity.tokens["good"] = token("service")
    identity.login_response = Response(changed(token("service"), {}), headers=headers)
    assert_unavailable(ask("good"))
    identity.login_response = None
    assert ask("good").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        *MALFORMED_BODIES,
        *('{"versions": 5}', '{"versions": {"values": [5]}}', '{"version": 5}', '{"version": {"id": 5}}'),
        '{"versions": {"values": [{"id": "v3", "status": "stable", "links": 5}]}}',
        *('{"versions": {"values": []}}', '{"versions": []}', '{"version": {}}'),
        '{"versions": {"values": [{"id": 3, "status": 3, "links": [{"rel": "self", "href": 5}]}]}}',
    ],
    ids=lambda body: repr(body[:60]),
)
def test_malformed_versions_are_not_kept(ask: Ask, identity: Identity, body: str | bytes) -> None:
    identity.tokens["good"] = token("service")
    identity.version_response = Response(body)
    response = ask("good")
    if response.status_code != 200:
        assert_unavailable(response)
    identity.version_response = None
    assert ask("good").status_code == 200


def assert_not_understood(response: TestResponse) -> None:
    assert_unavailable(response)
    assert "The response of Keystone cannot be understood." in response.text


def test_redirect_loop_gets_503(ask: Ask, identity: Identity) -> None:
    identity.check_response = Response(status=302, headers={"Location": f"{identity.url}/v3/auth/tokens"})
    assert_not_understood(ask("good"))


def test_long_response_gets_503(ask: Ask, identity: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    identity.tokens["good"] = token("service")
    assert ask("good").status_code == 200
    monkeypatch.setattr(keystone_transport, "MAX_BODY_BYTES", 10_000)
    packed = gzip.compress(b"[" + b" " * 10_000)
    identity.check_response = Response(packed, headers={"Content-Encoding": "gzip"})
    assert_unavailable(ask("good"))
