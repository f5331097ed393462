"""Pages of other origins: what their browsers are told (`docs/spec/http.md 10`)."""

from collections.abc import Callable

import pytest
from werkzeug.test import TestResponse

from placement_svc.http.cors import EXPOSED_HEADERS
from tests.conftest import NewApp

ORIGIN = "https://dashboard.example.org"
TOKEN = {"X-Auth-Token": "admin"}
ASK = {"Origin": ORIGIN, "Access-Control-Request-Method": "PUT"}

Send = Callable[..., TestResponse]


@pytest.fixture
def configured(new_app: NewApp) -> Callable[..., Send]:
    """A function that takes CORS settings and returns one that sends requests."""

    def configure(**settings: tuple[str, ...]) -> Send:
        app = new_app(**settings)
        return lambda method, path, **headers: app.test_client().open(path, method=method, **headers)

    return configure


@pytest.fixture
def send(configured: Callable[..., Send]) -> Send:
    return configured(cors_allowed_origins=(ORIGIN,))


def allowed(response: TestResponse) -> dict[str, str]:
    return {k.lower(): v for k, v in response.headers if k.lower().startswith("access-control-")}


def test_nothing_is_said_of_origins_unless_some_are_allowed(configured: Callable[..., Send]) -> None:
    send = configured()
    response = send("GET", "/", headers={"Origin": ORIGIN})
    assert not allowed(response)
    assert send("OPTIONS", "/", headers=ASK | TOKEN).status_code == 405


def test_preflight_gives_leave(send: Send) -> None:
    headers = ASK | {"Access-Control-Request-Headers": "x-auth-token, content-type"}
    response = send("OPTIONS", "/resource_providers", headers=headers)
    assert (response.status_code, response.data) == (200, b"")
    assert response.headers["Vary"] == "Origin"
    assert allowed(response) == {
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
        ASK | {"Origin": "https://elsewhere.example.org"},
        ASK | {"Access-Control-Request-Method": "TRACE"},
        ASK | {"Access-Control-Request-Headers": "X-Auth-Token, X-Other"},
        ASK | {"OpenStack-API-Version": "placement nonsense", "Origin": ""},
    ],
)
@pytest.mark.parametrize("path", ["/", "/resource_providers", "/nowhere"])
def test_every_other_options_is_empty(send: Send, path: str, headers: dict[str, str]) -> None:
    response = send("OPTIONS", path, headers=headers)
    assert (response.status_code, response.data) == (200, b"")
    assert not allowed(response)


@pytest.mark.parametrize(
    ("path", "headers", "status", "vary"),
    [
        ("/", {}, 200, "openstack-api-version,Origin"),
        ("/nowhere", TOKEN, 404, "openstack-api-version,Origin"),
        ("/resource_providers", {}, 401, "Origin"),
        ("/", {"OpenStack-API-Version": "placement 9.9"}, 406, "Origin"),
    ],
)
def test_answers_and_errors_may_be_read(
    send: Send, path: str, headers: dict[str, str], status: int, vary: str
) -> None:
    response = send("GET", path, headers={"Origin": ORIGIN} | headers)
    assert response.status_code == status
    assert response.headers["Vary"] == vary
    assert allowed(response) == {
        "access-control-allow-origin": ORIGIN,
        "access-control-allow-credentials": "true",
        "access-control-expose-headers": ",".join(EXPOSED_HEADERS),
    }


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://elsewhere.example.org"}])
def test_other_origins_are_told_nothing(send: Send, headers: dict[str, str]) -> None:
    response = send("GET", "/", headers=headers)
    assert not allowed(response)
    assert response.headers["Vary"] == "openstack-api-version"


def test_any_origin_may_be_allowed(configured: Callable[..., Send]) -> None:
    send = configured(cors_allowed_origins=("*",))
    assert allowed(send("GET", "/", headers={"Origin": ORIGIN}))["access-control-allow-origin"] == "*"
    assert allowed(send("OPTIONS", "/", headers=ASK))["access-control-allow-origin"] == "*"


def test_the_headers_that_may_be_sent_are_a_setting(configured: Callable[..., Send]) -> None:
    send = configured(cors_allowed_origins=(ORIGIN,), cors_allowed_headers=("X-Mine",))
    mine = ASK | {"Access-Control-Request-Headers": "X-Mine"}
    theirs = ASK | {"Access-Control-Request-Headers": "X-Auth-Token"}
    assert allowed(send("OPTIONS", "/", headers=mine))
    assert not allowed(send("OPTIONS", "/", headers=theirs))
