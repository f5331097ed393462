"""Access to the console: log-in, sessions, policy, and the headers of its responses."""

import re
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from flask import Flask, Response
from werkzeug.http import parse_cookie
from werkzeug.test import Client

from placement_svc.config import SettingsError, from_environ
from placement_svc.console import sessions
from placement_svc.console.login import FORM_COOKIE
from placement_svc.http import token_file
from tests.conftest import ADMIN, NewApp
from tests.console.conftest import Get
from tests.support.cloud import uuid_of
from tests.support.identity import PASSWORD, USERNAME, Identity
from tests.support.identity import serving as serving_identity
from tests.support.identity import token as keystone_token
from tests.support.service import serving, wait_until

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
SECRET = "0123456789abcdef0123456789abcdef"

READER = {"X-Auth-Token": "someone:project", "X-Roles": "reader"}
"""A caller who may read its own project only."""


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture
def admin(tokens: Path) -> str:
    return token_file.add(tokens, "operator", "admin", ["admin"])


@pytest.fixture
def token_app(new_app: NewApp, tokens: Path, admin: str, clean_database: object) -> Flask:
    return new_app(auth="token", token_file=tokens, console_secret=SECRET)


def log_in(client: Client, token: str, next: str = "/console/hosts", **headers: str) -> object:
    page = client.get("/console/login")
    [form] = re.findall(r'name="form" value="([^"]+)"', page.text)
    return client.post("/console/login", data={"form": form, "token": token, "next": next}, headers=headers)


def test_noauth_needs_no_log_in(get: Get) -> None:
    assert get().status_code == 200
    assert get("/login").location == "/console"


def test_page_without_session_leads_to_the_form_and_back(token_app: Flask, admin: str) -> None:
    client = token_app.test_client()
    response = client.get("/console/hosts?text=a%20b&sort_by=name")
    assert response.status_code == 303
    assert response.location == "/console/login?next=/console/hosts%3Ftext%3Da%2520b%26sort_by%3Dname"
    form = client.get(response.location)
    [path] = re.findall(r'name="next" value="([^"]+)"', form.text)
    logged_in = log_in(client, admin, path.replace("&amp;", "&"))
    assert logged_in.status_code == 303
    assert logged_in.location == "/console/hosts?text=a%20b&sort_by=name"
    assert client.get(logged_in.location).status_code == 200


def test_log_in_leads_back_to_a_query_with_a_backslash(token_app: Flask, admin: str) -> None:
    client = token_app.test_client()
    form = client.get(client.get("/console/hosts", query_string="text=a\\b").location)
    [path] = re.findall(r'name="next" value="([^"]+)"', form.text)
    logged_in = log_in(client, admin, path)
    assert urlsplit(logged_in.location).path == "/console/hosts"
    assert parse_qs(urlsplit(logged_in.location).query) == {"text": ["a\\b"]}


def test_session_cookie_is_confined(token_app: Flask, admin: str) -> None:
    [cookie] = [
        value
        for value in log_in(token_app.test_client(), admin).headers.getlist("Set-Cookie")
        if value.startswith(sessions.COOKIE)
    ]
    assert {"HttpOnly", "SameSite=Strict", "Path=/console", "Max-Age=28800"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    client = token_app.test_client()
    page = client.get("/console/login", base_url="https://localhost")
    [form] = re.findall(r'name="form" value="([^"]+)"', page.text)
    over_tls = client.post(
        "/console/login", data={"form": form, "token": admin}, base_url="https://localhost"
    )
    assert all("Secure" in value for value in over_tls.headers.getlist("Set-Cookie"))


def test_session_ends(token_app: Flask, admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = token_app.test_client()
    log_in(client, admin)
    assert client.get("/console").status_code == 200
    monkeypatch.setattr(sessions, "LIFETIME", timedelta(seconds=-1))
    assert client.get("/console").status_code == 303


def test_revoked_token_ends_the_session(token_app: Flask, admin: str, tokens: Path) -> None:
    client = token_app.test_client()
    log_in(client, admin)
    token_file.remove(tokens, admin.partition(".")[0])
    wait_until(lambda: client.get("/console").status_code == 303)


def reason_of(client: Client, path: str = "/console/hosts?sort_by=name") -> str | None:
    """Return the reason that the log-in form shows after a request for `path`; None if there is none."""
    redirected = client.get(path)
    assert redirected.status_code == 303
    assert redirected.location.startswith("/console/login?")
    form = client.get(redirected.location)
    assert 'name="next" value="/console/hosts?sort_by=name"' in form.text
    found = re.findall(r'<p role="status">(.*?)</p>', form.text)
    return found[0] if found else None


def test_form_says_that_the_session_has_ended(
    token_app: Flask, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = token_app.test_client()
    assert reason_of(client) is None
    log_in(client, admin)
    # The browser deletes the cookie of a session after its lifetime.
    client.delete_cookie(sessions.COOKIE, path="/console")
    assert str(reason_of(client)).startswith("Your session has ended.")
    log_in(client, admin)
    monkeypatch.setattr(sessions, "LIFETIME", timedelta(seconds=-1))
    assert str(reason_of(client)).startswith("Your session has ended.")


def test_form_says_that_the_token_is_no_longer_valid(token_app: Flask, admin: str, tokens: Path) -> None:
    client = token_app.test_client()
    log_in(client, admin)
    token_file.remove(tokens, admin.partition(".")[0])
    wait_until(lambda: client.get("/console").status_code == 303)
    assert reason_of(client) == "Your token has expired or has been revoked."


def test_form_gives_no_reason_after_a_log_out(token_app: Flask, admin: str) -> None:
    client = token_app.test_client()
    log_in(client, admin)
    [form] = re.findall(r'name="form" value="([^"]+)"', client.get("/console").text)
    client.post("/console/logout", data={"form": form})
    assert reason_of(client) is None


def test_form_shows_no_other_text_as_a_reason(token_app: Flask) -> None:
    page = token_app.test_client().get("/console/login?reason=Send+your+token+to+example.org").text
    assert "example.org" not in page
    assert 'role="status"' not in page


def test_log_out_without_session_leads_to_the_overview(token_app: Flask) -> None:
    location = token_app.test_client().post("/console/logout").location
    assert location == "/console/login?next=/console"


def test_pasted_text_after_the_session_leads_to_the_form_and_back(token_app: Flask, admin: str) -> None:
    client = token_app.test_client()
    response = client.post("/console/ask", data={"q": "curl -H 'X-Auth-Token: secret' http://h/"})
    assert (response.status_code, response.location) == (303, "/console/login?next=/console/ask")
    assert log_in(client, admin, "/console/ask").location == "/console/ask"


def test_forged_cookie_is_no_session(token_app: Flask, admin: str) -> None:
    for key in (SECRET.upper(), SECRET):
        client = token_app.test_client()
        with token_app.test_request_context():
            response = Response()
            sessions.Sessions(key).start(response, admin)
        cookie = parse_cookie(response.headers["Set-Cookie"])[sessions.COOKIE]
        client.set_cookie(sessions.COOKIE, cookie, path="/console")
        assert client.get("/console").status_code == (200 if key == SECRET else 303)


@pytest.mark.parametrize("token", ["00000000.wrong", "x", " "])
def test_wrong_token_starts_no_session(token_app: Flask, token: str) -> None:
    client = token_app.test_client()
    response = log_in(client, token)
    assert response.status_code in (400, 401)
    assert 'role="alert"' in response.text
    assert client.get("/console").status_code == 303


@pytest.mark.parametrize("token", ["x" * 3000, "\u2603", "a\x01b"])
def test_unusable_token_is_refused(token_app: Flask, token: str) -> None:
    assert log_in(token_app.test_client(), token).status_code == 400


def test_expired_form_is_shown_again(token_app: Flask, admin: str) -> None:
    client = token_app.test_client()
    page = client.get("/console/login?next=/console/hosts")
    client.delete_cookie(FORM_COOKIE, path="/console")
    client.get("/console/login?next=/console/map")
    for status in (403, 303):
        fields = dict(re.findall(r'name="(form|next)" value="([^"]+)"', page.text))
        page = client.post("/console/login", data={"token": admin, **fields})
        assert page.status_code == status
        if status == 403:
            assert 'role="alert">This form has expired, or another site has sent it. Enter' in page.text
    assert page.location == "/console/hosts"


def test_form_of_another_site_is_refused(token_app: Flask, admin: str) -> None:
    client = token_app.test_client()
    assert log_in(client, admin, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
    client.set_cookie(FORM_COOKIE, "one", path="/console")
    assert client.post("/console/login", data={"form": "another", "token": admin}).status_code == 403
    client.delete_cookie(FORM_COOKIE, path="/console")
    assert client.post("/console/login", data={"form": "", "token": admin}).status_code == 403
    assert client.get("/console").status_code == 303


@pytest.mark.parametrize(
    "target",
    [
        "https://example.org",
        "http:example.org",
        "//example.org",
        "/\\example.org",
        "\\\\example.org",
        "\t//example.org",
        "/console\\..\\\\example.org",
        "/console/..\\\\example.org",
        "/console/\n",
        "/consolex",
        "/docs",
        "/console@example.org",
        "/console/logout",
        "/console/logout/",
        "/console/%6cogout?text=a#b",
        "/console/login",
        "/console/no-such-page",
    ],
)
def test_log_in_leads_to_pages_of_the_console_only(token_app: Flask, admin: str, target: str) -> None:
    assert log_in(token_app.test_client(), admin, target).location == "/console"


def test_log_out_ends_the_session(token_app: Flask, admin: str) -> None:
    client = token_app.test_client()
    log_in(client, admin)
    [form] = re.findall(r'name="form" value="([^"]+)"', client.get("/console").text)
    assert client.post("/console/logout", data={"form": "wrong"}).status_code == 403
    assert client.get("/console").status_code == 200
    assert client.post("/console/logout", data={"form": form}).status_code == 303
    assert client.get("/console").status_code == 303


def test_token_in_a_header_needs_no_session(token_app: Flask, admin: str) -> None:
    client = token_app.test_client()
    assert client.get("/console", headers={"X-Auth-Token": admin}).status_code == 200
    assert client.get("/console", headers={"X-Auth-Token": "wrong"}).status_code == 401


def test_session_is_none_for_the_api(token_app: Flask, admin: str) -> None:
    client = token_app.test_client()
    log_in(client, admin)
    assert client.get("/resource_providers").status_code == 401


def test_data_without_session_is_401(token_app: Flask) -> None:
    for path in ("map.json", "names.json", "hosts.json", "hosts.csv"):
        assert token_app.test_client().get(f"/console/{path}").status_code == 401


def test_link_to_data_without_session_leads_to_the_form_and_back(token_app: Flask, admin: str) -> None:
    client = token_app.test_client()
    form = client.get("/console/hosts.csv?sort_by=name", headers=BROWSER)
    assert form.status_code == 303
    assert form.location == "/console/login?next=/console/hosts.csv%3Fsort_by%3Dname"
    logged_in = log_in(client, admin, "/console/hosts.csv?sort_by=name")
    assert client.get(logged_in.location, headers=BROWSER).content_type.startswith("text/csv")


def test_workers_share_the_generated_secret(tmp_path: Path, database_url: str) -> None:
    file = tmp_path / "tokens.json"
    token = token_file.add(file, "operator", "admin", ["admin"])
    with serving(workers=2, database_url=database_url, auth="token", token_file=file) as service:

        def send(method: str, body: str | None = None, cookie: str = "") -> tuple[int, str, str]:
            connection = HTTPConnection("127.0.0.1", service.port, timeout=60)
            headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
            connection.request(method, "/console/login" if body or not cookie else "/console", body, headers)
            response = connection.getresponse()
            set_cookies = "; ".join(
                value.split(";")[0] for name, value in response.getheaders() if name == "Set-Cookie"
            )
            text = response.read().decode()
            connection.close()
            return response.status, set_cookies, text

        _, form_cookie, page = send("GET")
        [form] = re.findall(r'name="form" value="([^"]+)"', page)
        status, cookie, _ = send("POST", urlencode({"form": form, "token": token}), form_cookie)
        assert status == 303
        assert {send("GET", cookie=cookie)[0] for _ in range(20)} == {200}


def test_secret_must_be_long() -> None:
    with pytest.raises(SettingsError, match="PLACEMENT_CONSOLE_SECRET must have at least 32 characters"):
        from_environ({"PLACEMENT_CONSOLE_SECRET": "short"})


def test_console_can_be_turned_off(new_app: NewApp) -> None:
    client = new_app(console=False).test_client()
    assert client.get("/console", headers=ADMIN).status_code == 404
    assert client.get("/console/hosts", headers=ADMIN).status_code == 404
    assert client.get("/", headers=BROWSER).content_type == "application/json"


def test_root_is_a_page_for_browsers_only(app: Flask) -> None:
    client = app.test_client()
    page = client.get("/", headers=BROWSER)
    assert page.content_type == "text/html; charset=utf-8"
    assert 'href="/console"' in page.text
    assert 'href="/docs"' in page.text
    for accept in (
        "application/json",
        "*/*",
        "text/html;q=0.5,application/json",
        "application/json,text/html",
        "text/*",
        "text",
    ):
        assert client.get("/", headers={"Accept": accept}).content_type == "application/json"
    assert client.get("/").content_type == "application/json"
    for version, status in (("placement 1.39", 200), ("placement 1.", 400), ("placement 9.9", 406)):
        response = client.get("/", headers={**BROWSER, "OpenStack-API-Version": version})
        assert response.status_code == status
        assert response.content_type in ("application/json", "text/html; charset=UTF-8")


@pytest.mark.parametrize("path", ["", "/hosts", "/map", "/ask", "/consumers", "/projects"])
def test_a_slash_at_the_end_is_ignored(get: Get, path: str) -> None:
    assert get(f"{path}/").status_code == get(path).status_code == 200


def test_links_contain_the_mount_point(app: Flask) -> None:
    page = app.test_client().get("/", headers=BROWSER, base_url="http://localhost/placement/")
    assert 'href="/placement/console"' in page.text
    assert 'href="/placement/docs"' in page.text


@pytest.mark.parametrize("path", ["", "/hosts", "/nothing", "/hosts?bad=1", "/static/console.css"])
def test_responses_forbid_embedding_and_inline_scripts(get: Get, path: str) -> None:
    headers = get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["x-openstack-request-id"].startswith("req-")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_views_are_read_only(app: Flask, method: str) -> None:
    for path in ("/console", "/console/hosts", "/console/map"):
        response = app.test_client().open(path, method=method)
        assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/console/logout", "POST"),
        ("PUT", "/console/login", "GET, HEAD, POST"),
        ("PUT", "/console/ask", "GET, HEAD, POST"),
    ],
)
def test_a_refused_method_names_those_of_the_page(app: Flask, method: str, path: str, allowed: str) -> None:
    response = app.test_client().open(path, method=method)
    assert (response.status_code, response.headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize("path", ["", "/hosts", "/login", "/nothing", "/static/console.css"])
@pytest.mark.parametrize("host", ["rebound.example.org", "a-" * 200])
def test_other_hosts_are_refused(get: Get, host: str, path: str) -> None:
    assert get(path, {"Host": host}).status_code == 421


def test_request_for_a_web_socket_gets_a_page(get: Get) -> None:
    response = get("/hosts", {"Connection": "upgrade", "Upgrade": "websocket"})
    assert response.status_code == 400
    assert "Bad Request" in response.text
    assert 'href="/console/map"' in response.text


PARTS = [
    ("", ["list resource providers", "list consumers of all projects", "list all projects"]),
    ("", ["see the capacity of the cloud", "list searches without candidates"]),
    ("/hosts", ["list hosts"]),
    ("/map", ["list hosts, or what groups them"]),
    ("/ask?resources=VCPU:1", ["search for allocation candidates", "explain requests"]),
    (f"/hosts/{uuid_of('cn1')}", ["list resource providers"]),
    ("/consumers?project_id=another", ["list these consumers"]),
    ("/projects?project_id=another", ["list these projects"]),
]


@pytest.mark.parametrize(("path", "refused"), PARTS)
def test_refused_parts_are_named(get: Get, cloud: None, path: str, refused: list[str]) -> None:
    response = get(path, READER)
    assert response.status_code == 200
    for part in refused:
        assert f"Your role may not {part}." in response.text


VIEWER = {"X-Auth-Token": "someone:project", "X-Roles": "viewer"}
"""A caller whose role only a policy file names."""

PROVIDER_PAGES = {
    f"/console/consumers/{uuid_of('consumer')}": ("consumers:show", "allocations:list"),
    "/console/ask?resources=DISK_GB:20": ("allocation_candidates:list",),
}
"""Pages with parts about providers, and the rules of their other parts."""


@pytest.mark.parametrize("path", PROVIDER_PAGES)
def test_parts_about_providers_need_the_rules_of_providers(
    new_app: NewApp, cloud: None, tmp_path: Path, path: str
) -> None:
    def page(*rules: str) -> str:
        file = tmp_path / f"policy{len(rules)}.yaml"
        file.write_text("\n".join(f'"placement:{rule}": "role:viewer"' for rule in rules))
        response = new_app(policy_file=file).test_client().get(path, headers=VIEWER)
        assert response.status_code == 200
        assert uuid_of("shared") in response.text
        assert "DISK_GB" in response.text
        return response.text

    rules = PROVIDER_PAGES[path]
    without = page(*rules)
    assert "Your role may not list resource providers." in without
    assert ">shared<" not in without
    assert 'class="tree"' not in without
    rules = (*rules, "resource_providers:list", "resource_providers:usages")
    only_names = page(*rules)
    assert "Your role may not list resource providers." not in only_names
    assert "Your role may not see inventories and usages." in only_names
    assert ">shared<" in only_names
    assert 'class="inventory"' not in only_names
    whole = page(*rules, "resource_providers:inventories:list")
    assert "Your role may not see inventories and usages." not in whole
    assert 'class="inventory"' in whole


def test_refused_watched_requests_are_named(new_app: NewApp, cloud: None, tmp_path: Path) -> None:
    watched = tmp_path / "watched.yaml"
    watched.write_text("secret: resources=VCPU:1")
    response = new_app(watched_requests=watched).test_client().get("/console", headers=READER)
    assert "Your role may not see how often requests fit." in response.text
    assert "secret" not in response.text


@pytest.mark.parametrize("path", ["/hosts.json", "/hosts.csv", "/map.json"])
def test_refused_data_is_403(get: Get, path: str) -> None:
    assert get(path, READER).status_code == 403


def test_reader_sees_its_own_project(get: Get, cloud: None) -> None:
    consumer = uuid_of("consumer")
    assert consumer in get("/consumers", READER).text
    assert "of other projects than" in get("/consumers", READER).text
    assert get(f"/consumers/{consumer}", READER).status_code == 200
    assert "Your role may not list allocations." in get(f"/consumers/{consumer}", READER).text
    assert 'href="/console/consumers?project_id=project"' in get("/projects", READER).text


def test_consumer_of_another_project_is_404(get: Get, cloud: None) -> None:
    other = {"X-Auth-Token": "someone:other", "X-Roles": "reader"}
    assert get(f"/consumers/{uuid_of('consumer')}", other).status_code == 404
    assert uuid_of("consumer") not in get("/consumers", other).text


@pytest.fixture
def identity() -> Iterator[Identity]:
    identity = Identity()
    with serving_identity(identity):
        yield identity


def test_keystone_token_logs_in_until_keystone_revokes_it(
    new_app: NewApp, clean_database: object, identity: Identity, tmp_path: Path
) -> None:
    options = {
        "auth_type": "password",
        "auth_url": identity.url,
        "username": USERNAME,
        "password": PASSWORD,
        "user_domain_id": "default",
        "project_name": "services",
        "project_domain_id": "default",
        "token_cache_time": -1,
    }
    file = tmp_path / "keystone.conf"
    file.write_text("\n".join(["[keystone_authtoken]", *(f"{k} = {v}" for k, v in options.items())]))
    client = new_app(auth="keystone", keystone_file=file).test_client()
    identity.tokens["good"] = keystone_token("admin")
    assert client.get("/console").status_code == 303
    assert log_in(client, "bad").status_code == 401
    assert log_in(client, "good").status_code == 303
    assert client.get("/console/hosts").status_code == 200
    del identity.tokens["good"]
    assert client.get("/console/hosts").status_code == 303


def test_unreachable_keystone_keeps_the_log_in_form(new_app: NewApp, tmp_path: Path) -> None:
    file = tmp_path / "keystone.conf"
    file.write_text(
        "[keystone_authtoken]\nauth_type = admin_token\nendpoint = http://127.0.0.1:1\ntoken = x\n"
    )
    client = new_app(auth="keystone", keystone_file=file).test_client()
    response = log_in(client, "good", "/console/hosts?sort_by=name")
    assert response.status_code == 503
    assert 'role="alert">Keystone is unavailable. Try again later.<' in response.text
    assert 'name="next" value="/console/hosts?sort_by=name"' in response.text
