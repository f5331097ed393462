"""The project of a caller without authentication (`docs/spec/http.md 14`)."""

import pytest
from flask import Flask

VERSION = {"OpenStack-API-Version": "placement 1.39", "X-Roles": "reader"}


@pytest.mark.parametrize(
    ("token", "headers", "project"),
    [
        ("foo:p", {}, "p"),
        ("foo", {}, "foo"),
        ("foo:", {}, "foo"),
        ("foo:p", {"X-Project-Id": "q"}, "q"),
        ("foo:p", {"X-Tenant-Id": "q"}, "p"),
        ("foo:", {"X-Tenant-Id": "q"}, "foo"),
        ("foo:p", {"X-Project-Id": ""}, None),
        ("foo:p", {"X-Project-Id": "", "X-Tenant-Id": "q"}, None),
    ],
)
def test_project_is_that_of_the_header_or_of_the_token(
    app: Flask, token: str, headers: dict[str, str], project: str | None
) -> None:
    client = app.test_client()
    sent = VERSION | {"X-Auth-Token": token} | headers
    allowed = [
        name
        for name in ("p", "q", "foo")
        if client.get(f"/usages?project_id={name}", headers=sent).status_code == 200
    ]
    assert allowed == ([] if project is None else [project])
