"""Rules that all authentication strategies share: identity headers of callers are removed."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from flask import Flask, request

from placement_svc.http import token_file
from tests.conftest import NewApp
from tests.support.identity import PASSWORD, USERNAME, Identity, serving, token

IDENTITY_HEADERS = [
    "OpenStack-System-Scope",
    "X-Domain-Id",
    "X-Domain-Name",
    "X-Identity-Status",
    "X-Is-Admin-Project",
    "X-Project-Domain-Id",
    "X-Project-Domain-Name",
    "X-Project-Id",
    "X-Project-Name",
    "X-Role",
    "X-Roles",
    "X-Service-Catalog",
    "X-Service-Domain-Id",
    "X-Service-Identity-Status",
    "X-Service-Project-Id",
    "X-Service-Roles",
    "X-Service-User-Id",
    "X-System-Scope",
    "X-Tenant",
    "X-Tenant-Id",
    "X-Tenant-Name",
    "X-User",
    "X-User-Domain-Id",
    "X-User-Domain-Name",
    "X-User-Id",
    "X-User-Name",
]


TokenAndSettings = tuple[str, dict[str, object]]
"""A valid token, and the settings of the authentication method that accepts it."""


@contextmanager
def noauth(directory: Path) -> Iterator[TokenAndSettings]:
    yield "admin", {}


@contextmanager
def static_token(directory: Path) -> Iterator[TokenAndSettings]:
    file = directory / "tokens.json"
    yield token_file.add(file, "user", "own", ["service"]), {"token_file": file}


@contextmanager
def keystone(directory: Path) -> Iterator[TokenAndSettings]:
    file = directory / "keystone.conf"
    identity = Identity()
    identity.tokens["good"] = token("service")
    with serving(identity):
        file.write_text(
            f"[keystone_authtoken]\nauth_type = password\nauth_url = {identity.url}\nusername = {USERNAME}\n"
            f"password = {PASSWORD}\nuser_domain_id = default\nwww_authenticate_uri = {identity.url}\n"
        )
        yield "good", {"keystone_file": file}


@pytest.fixture(
    params=[("noauth", noauth), ("token", static_token), ("keystone", keystone)], ids=lambda p: p[0]
)
def authenticated(
    request: pytest.FixtureRequest, new_app: NewApp, tmp_path: Path
) -> Iterator[tuple[Flask, str]]:
    """The application with one authentication method, and a token that it accepts."""
    auth: str
    strategy: Callable[[Path], AbstractContextManager[TokenAndSettings]]
    auth, strategy = request.param
    with strategy(tmp_path) as (good, settings):
        yield new_app(auth=auth, **settings), good


@pytest.mark.parametrize("path", ["/", "/resource_providers"])
def test_identity_headers_are_removed_at_authentication(authenticated: tuple[Flask, str], path: str) -> None:
    app, good = authenticated
    seen: dict[str, str] = {}

    @app.before_request
    def record_headers() -> None:
        seen.update(request.headers)

    sent = dict.fromkeys(IDENTITY_HEADERS, "admin") | {"X-Auth-Token": good, "X-Request-Id": "kept"}
    app.test_client().get(path, headers=sent)
    assert "X-Request-Id" in seen
    assert {name.lower() for name in seen} & {name.lower() for name in IDENTITY_HEADERS} == set()
