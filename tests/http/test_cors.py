"""Cross-origin resource sharing (`docs/spec/http.md 10`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import TestResponse

from placement_svc.http.cors import EXPOSED_HEADERS
from tests.conftest import NewApp

ORIGIN = "https://dashboard.example.org"
TOKEN = {"X-Auth-Token": "admin"}
PREFLIGHT = {"Origin": ORIGIN, "Access-Control-Request-Method": "PUT"}

Send = Callable[..., TestResponse]


@pytest.fixture
def configured(new_app: NewApp) -> Callable[..., Send]:
    """A function that takes CORS settings and returns one that sends requests."""

    def configure(**settings: Any) -> Send:
        app = new_app(**settings)
        return lambda method, path, **headers: app.test_client().open(path, method=method, **headers)

    return configure


@pytest.fixture
def send(configured: Callable[..., Send]) -> Send:
    return configured(cors_allowed_origins=(ORIGIN,))


def cors_headers(response: TestResponse) -> dict[str, str]:
    return {k.lower(): v for k, v in response.headers if k.lower().startswith("access-control-")}


def test_cors_is_off_by_default(configured: Callable[..., Send]) -> None:
    send = configured()
    response = send("GET", "/", headers={"Origin": ORIGIN})
    assert not cors_headers(response)
    assert send("OPTIONS", "/", headers=PREFLIGHT | TOKEN).status_code == 405


def test_preflight_request_is_allowed(send: Send) -> None:
    headers = PREFLIGHT | {"Access-Control-Request-Headers": "x-auth-token, content-type"}
    response = send("OPTIONS", "/resource_providers", headers=headers)
    assert (response.status_code, response.data) == (200, b"")
    assert response.headers["Vary"] == "Origin"
    assert cors_headers(response) == {
        "access-control-allow-origin": ORIGIN,
        "access-control-allow-credentials": "true",
        "access-control-max-age": "3600",
        "access-control-allow-methods": "PUT",
        "access-control-allow-headers": "x-auth-token, content-type",
    }


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": ORIGIN},
        PREFLIGHT | {"Origin": "https://elsewhere.example.org"},
        PREFLIGHT | {"Access-Control-Request-Method": "TRACE"},
        PREFLIGHT | {"Access-Control-Request-Headers": "X-Auth-Token, X-Other"},
        PREFLIGHT | {"OpenStack-API-Version": "placement nonsense", "Origin": ""},
    ],
)
@pytest.mark.parametrize("path", ["/", "/resource_providers", "/nowhere"])
def test_other_options_requests_get_an_empty_response(send: Send, path: str, headers: dict[str, str]) -> None:
    response = send("OPTIONS", path, headers=headers)
    assert (response.status_code, response.data) == (200, b"")
    assert not cors_headers(response)


@pytest.mark.parametrize(
    ("path", "headers", "status", "vary"),
    [
        ("/", {}, 200, "openstack-api-version,Origin"),
        ("/nowhere", TOKEN, 404, "openstack-api-version,Origin"),
        ("/resource_providers", {}, 401, "Origin"),
        ("/", {"OpenStack-API-Version": "placement 9.9"}, 406, "Origin"),
    ],
)
def test_responses_and_errors_have_cors_headers(
    send: Send, path: str, headers: dict[str, str], status: int, vary: str
) -> None:
    response = send("GET", path, headers={"Origin": ORIGIN} | headers)
    assert response.status_code == status
    assert response.headers["Vary"] == vary
    assert cors_headers(response) == {
        "access-control-allow-origin": ORIGIN,
        "access-control-allow-credentials": "true",
        "access-control-expose-headers": ",".join(EXPOSED_HEADERS),
    }


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://elsewhere.example.org"}])
def test_other_origins_get_no_cors_headers(send: Send, headers: dict[str, str]) -> None:
    response = send("GET", "/", headers=headers)
    assert not cors_headers(response)
    assert response.headers["Vary"] == "openstack-api-version"


def test_all_origins_can_be_allowed(configured: Callable[..., Send], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text("{}")
    send = configured(cors_allowed_origins=("*",), auth="token", token_file=tokens)
    assert cors_headers(send("GET", "/", headers={"Origin": ORIGIN}))["access-control-allow-origin"] == "*"
    assert cors_headers(send("OPTIONS", "/", headers=PREFLIGHT))["access-control-allow-origin"] == "*"


def test_allowed_headers_are_a_setting(configured: Callable[..., Send]) -> None:
    send = configured(cors_allowed_origins=(ORIGIN,), cors_allowed_headers=("X-Mine",))
    mine = PREFLIGHT | {"Access-Control-Request-Headers": "X-Mine"}
    theirs = PREFLIGHT | {"Access-Control-Request-Headers": "X-Auth-Token"}
    assert cors_headers(send("OPTIONS", "/", headers=mine))
    assert not cors_headers(send("OPTIONS", "/", headers=theirs))
