"""What is the same however callers are known: nothing behind believes their headers."""

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


Known = tuple[str, dict[str, object]]
"""A token that is known, and the settings by which it is."""


@contextmanager
def noauth(directory: Path) -> Iterator[Known]:
    yield "admin", {}


@contextmanager
def static_token(directory: Path) -> Iterator[Known]:
    file = directory / "tokens.json"
    yield token_file.add(file, "user", "own", ["service"]), {"token_file": file}


@contextmanager
def keystone(directory: Path) -> Iterator[Known]:
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
def known(request: pytest.FixtureRequest, new_app: NewApp, tmp_path: Path) -> Iterator[tuple[Flask, str]]:
    """The application with one strategy, and a token that it knows."""
    auth: str
    strategy: Callable[[Path], AbstractContextManager[Known]]
    auth, strategy = request.param
    with strategy(tmp_path) as (good, settings):
        yield new_app(auth=auth, **settings), good


@pytest.mark.parametrize("path", ["/", "/resource_providers"])
def test_headers_of_identity_end_at_authentication(known: tuple[Flask, str], path: str) -> None:
    app, good = known
    seen: dict[str, str] = {}

    @app.before_request
    def look() -> None:
        seen.update(request.headers)

    sent = dict.fromkeys(IDENTITY_HEADERS, "admin") | {"X-Auth-Token": good, "X-Request-Id": "kept"}
    app.test_client().get(path, headers=sent)
    assert "X-Request-Id" in seen
    assert {name.lower() for name in seen} & {name.lower() for name in IDENTITY_HEADERS} == set()
