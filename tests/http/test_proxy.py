"""Links and `Location` of a service behind a reverse proxy (`docs/spec/http.md 11`)."""

import urllib.request
from collections.abc import Callable, Iterator

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from placement_svc.config import Settings
from tests.conftest import ADMIN, application
from tests.support.service import serving

Urls = tuple[str, str]
"""The `Location` of a created trait, and the self link of a resource class."""

OWN = ("http://localhost/traits/CUSTOM_A", "/resource_classes/VCPU")
"""The URLs without a proxy."""

HEADERS = {
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "cloud.example:8080",
    "X-Forwarded-Prefix": "/placement",
    "Forwarded": "proto=https;host=cloud.example",
}


@pytest.fixture(scope="module")
def behind_proxy(database_url: str) -> Iterator[Flask]:
    """An application that uses the headers of proxies, on this worker's database."""
    with application(Settings(database_url=database_url, proxy_headers=True, allowed_hosts=("*",))) as app:
        yield app


def urls(app: Flask, headers: dict[str, str], mount: str = "") -> Urls:
    def send(method: str, path: str) -> TestResponse:
        environ = {"SCRIPT_NAME": mount}
        return app.test_client().open(path, method=method, headers=ADMIN | headers, environ_overrides=environ)

    trait, resource_class = send("PUT", "/traits/CUSTOM_A"), send("GET", "/resource_classes/VCPU")
    assert (trait.status_code, resource_class.status_code) == (201, 200)
    return trait.headers["Location"], resource_class.json["links"][0]["href"]  # type: ignore[index]


@pytest.mark.parametrize("header", HEADERS)
def test_proxy_headers_are_ignored_by_default(app: Flask, header: str) -> None:
    assert urls(app, {header: HEADERS[header]}) == OWN


@pytest.mark.parametrize(
    ("headers", "base", "prefix"),
    [
        ({}, "http://localhost", ""),
        ({"X-Forwarded-Proto": "https"}, "https://localhost", ""),
        ({"X-Forwarded-Proto": "HTTPS"}, "https://localhost", ""),
        ({"X-Forwarded-Host": "cloud.example"}, "http://cloud.example", ""),
        ({"X-Forwarded-Host": "cloud.example:8080"}, "http://cloud.example:8080", ""),
        ({"X-Forwarded-Host": "[2001:db8::1]:8080"}, "http://[2001:db8::1]:8080", ""),
        ({"X-Forwarded-Prefix": "/placement"}, "http://localhost", "/placement"),
        ({"X-Forwarded-Prefix": "/region-1/placement/"}, "http://localhost", "/region-1/placement"),
        (
            {key: HEADERS[key] for key in ("X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix")},
            "https://cloud.example:8080",
            "/placement",
        ),
        ({"Forwarded": "proto=https"}, "https://localhost", ""),
        ({"Forwarded": "for=192.0.2.1;Proto=HTTPS; Host=cloud.example"}, "https://cloud.example", ""),
        ({"Forwarded": "host=cloud.example:8080;proto=https"}, "https://cloud.example:8080", ""),
        ({"Forwarded": 'for="[2001:db8::1]:9";host="cloud.example:8080"'}, "http://cloud.example:8080", ""),
    ],
)
def test_proxy_headers_are_used(
    behind_proxy: Flask,
    clean_database: Callable[[], None],
    headers: dict[str, str],
    base: str,
    prefix: str,
) -> None:
    link = f"{prefix}/resource_classes/VCPU"
    assert urls(behind_proxy, headers) == (f"{base}{prefix}/traits/CUSTOM_A", link)


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-Proto": "http, https", "X-Forwarded-Host": "other.example, cloud.example"},
        {"Forwarded": "proto=http;host=other.example, proto=https;host=cloud.example"},
        {"Forwarded": 'for="_a,b";host=other.example,proto=https;host=cloud.example'},
    ],
)
def test_nearest_proxy_takes_precedence(
    behind_proxy: Flask, clean_database: Callable[[], None], headers: dict[str, str]
) -> None:
    assert urls(behind_proxy, headers)[0] == "https://cloud.example/traits/CUSTOM_A"


def test_forwarded_takes_precedence(behind_proxy: Flask, clean_database: Callable[[], None]) -> None:
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "other.example", "X-Forwarded-Prefix": "/p"}
    location, _ = urls(behind_proxy, headers | {"Forwarded": "host=cloud.example"})
    assert location == "https://cloud.example/p/traits/CUSTOM_A"


def test_prefix_precedes_the_mount_point(behind_proxy: Flask, clean_database: Callable[[], None]) -> None:
    _, link = urls(behind_proxy, {"X-Forwarded-Prefix": "/cloud"}, mount="/placement")
    assert link == "/cloud/placement/resource_classes/VCPU"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Forwarded-Proto", ""),
        ("X-Forwarded-Proto", ","),
        ("X-Forwarded-Proto", "javascript"),
        ("X-Forwarded-Proto", "https, gopher"),
        ("X-Forwarded-Host", ""),
        ("X-Forwarded-Host", "a b"),
        ("X-Forwarded-Host", "user@cloud.example"),
        ("X-Forwarded-Host", "cloud.example/path"),
        ("X-Forwarded-Host", "cloud.example:port"),
        ("X-Forwarded-Host", '"cloud.example'),
        ("X-Forwarded-Host", "ö.example"),
        ("X-Forwarded-Prefix", "placement"),
        ("X-Forwarded-Prefix", "/"),
        ("X-Forwarded-Prefix", "//other.example"),
        ("X-Forwarded-Prefix", "/../up"),
        ("X-Forwarded-Prefix", "/a?b"),
        ("X-Forwarded-Prefix", "http://other.example/a"),
        ("Forwarded", ""),
        ("Forwarded", ",;="),
        ("Forwarded", "nonsense"),
        ("Forwarded", "proto=gopher;host=a/b"),
        ("Forwarded", 'host="cloud.example'),
        ("Forwarded", "host="),
        ("Forwarded", "host=%00"),
        ("Forwarded", "proto*=utf-8''%ff"),
    ],
)
def test_invalid_values_are_ignored(
    behind_proxy: Flask, clean_database: Callable[[], None], header: str, value: str
) -> None:
    assert urls(behind_proxy, {header: value}) == OWN


@pytest.mark.parametrize(("proxy_headers", "scheme"), [("0", "http"), ("1", "https")])
def test_serve_applies_the_setting(
    database_url: str, clean_database: Callable[[], None], proxy_headers: str, scheme: str
) -> None:
    with serving(database_url=database_url, proxy_headers=proxy_headers) as service:
        url = f"127.0.0.1:{service.port}/traits/CUSTOM_A"
        headers = ADMIN | {"X-Forwarded-Proto": "https"}
        with urllib.request.urlopen(
            urllib.request.Request(f"http://{url}", headers=headers, method="PUT"), timeout=30
        ) as response:
            assert response.headers["Location"] == f"{scheme}://{url}"
