"""Settings are read from environment variables, and invalid ones are rejected."""

import os
from dataclasses import fields
from pathlib import Path

import pytest

from placement_svc.app import create_app
from placement_svc.config import DATA_DIR, Settings, SettingsError, from_environ, variable

URL = "postgresql+psycopg2://user:secret@host/placement"


def test_empty_environment_gives_the_defaults() -> None:
    settings = from_environ({})
    assert settings == Settings()
    assert settings.database_url is None
    assert settings.data_dir == DATA_DIR
    assert settings.auth == "noauth"
    assert not settings.allow_insecure
    assert settings.policy_profile == "secure"


def test_application_reads_the_environment_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACEMENT_DATABASE_URL", URL)
    monkeypatch.setenv("PLACEMENT_MAX_BODY", "12345")
    app = create_app()
    assert app.config["MAX_CONTENT_LENGTH"] == 12345


@pytest.mark.parametrize(
    ("variable", "text", "setting", "value"),
    [
        ("PLACEMENT_DATABASE_URL", URL, "database_url", URL),
        (
            "PLACEMENT_DATABASE_URL",
            "postgresql://host/placement",
            "database_url",
            "postgresql://host/placement",
        ),
        (
            "PLACEMENT_DATABASE_URL",
            f"{URL}?host=/run/postgresql",
            "database_url",
            f"{URL}?host=/run/postgresql",
        ),
        (
            "PLACEMENT_DATABASE_URL",
            "postgresql+psycopg2://user@/placement?host=one:5432&host=two:5432&target_session_attrs=read-write",
            "database_url",
            "postgresql+psycopg2://user@/placement?host=one:5432&host=two:5432&target_session_attrs=read-write",
        ),
        ("PLACEMENT_DATABASE_URL", "", "database_url", None),
        ("PLACEMENT_DATA_DIR", "/srv/placement", "data_dir", Path("/srv/placement")),
        ("PLACEMENT_DATA_DIR", "~/placement", "data_dir", Path.home() / "placement"),
        ("PLACEMENT_DATA_DIR", "", "data_dir", DATA_DIR),
        ("PLACEMENT_AUTH", "noauth", "auth", "noauth"),
        ("PLACEMENT_ALLOW_INSECURE", "1", "allow_insecure", True),
        ("PLACEMENT_ALLOW_INSECURE", "0", "allow_insecure", False),
        ("PLACEMENT_ALLOW_INSECURE", "", "allow_insecure", False),
        ("PLACEMENT_AUTH", "keystone", "auth", "keystone"),
        ("PLACEMENT_TOKEN_FILE", "~/tokens.json", "token_file", Path.home() / "tokens.json"),
        ("PLACEMENT_TOKEN_FILE", "", "token_file", None),
        ("PLACEMENT_KEYSTONE_FILE", "/etc/keystone.conf", "keystone_file", Path("/etc/keystone.conf")),
        ("PLACEMENT_POLICY_PROFILE", "legacy", "policy_profile", "legacy"),
        ("PLACEMENT_POLICY_FILE", "policy.yaml", "policy_file", Path("policy.yaml")),
        (
            "PLACEMENT_CORS_ALLOWED_ORIGINS",
            "https://a, https://b,",
            "cors_allowed_origins",
            ("https://a", "https://b"),
        ),
        ("PLACEMENT_CORS_ALLOWED_ORIGINS", "", "cors_allowed_origins", ()),
        ("PLACEMENT_PROXY_HEADERS", "1", "proxy_headers", True),
        ("PLACEMENT_INCOMPLETE_CONSUMER_PROJECT_ID", "old", "incomplete_consumer_project_id", "old"),
        ("PLACEMENT_INCOMPLETE_CONSUMER_USER_ID", "u" * 255, "incomplete_consumer_user_id", "u" * 255),
        ("PLACEMENT_POOL_SIZE", "1", "pool_size", 1),
        ("PLACEMENT_POOL_SIZE", "50", "pool_size", 50),
        ("PLACEMENT_METRICS", "0", "metrics", False),
        ("PLACEMENT_WATCHED_REQUESTS", "watched.yaml", "watched_requests", Path("watched.yaml")),
        ("PLACEMENT_WATCHED_AGGREGATES", "zones.yaml", "watched_aggregates", Path("zones.yaml")),
        ("PLACEMENT_LOG_FORMAT", "json", "log_format", "json"),
        ("PLACEMENT_LOG_LEVEL", "warning", "log_level", "warning"),
        ("PLACEMENT_SLOW_REQUEST", "0.5", "slow_request", 0.5),
        ("PLACEMENT_MAX_BODY", "1000", "max_body", 1000),
        ("PLACEMENT_CLIENT_TIMEOUT", "10", "client_timeout", 10.0),
        ("PLACEMENT_DRAIN", "0", "drain", 0.0),
        ("PLACEMENT_LOCK_TIMEOUT", "30", "lock_timeout", 30),
        ("PLACEMENT_STATEMENT_TIMEOUT", "90", "statement_timeout", 90),
        (
            "PLACEMENT_ALLOWED_HOSTS",
            "api, .example.org,192.0.2.1,[2001:db8::1],a_b.,*",
            "allowed_hosts",
            ("api", ".example.org", "192.0.2.1", "[2001:db8::1]", "a_b.", "*"),
        ),
    ],
)
def test_variable_sets_its_setting(variable: str, text: str, setting: str, value: object) -> None:
    assert getattr(from_environ({variable: text}), setting) == value


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("PLACEMENT_DATABASE_URL", "placement", "is not a URL"),
        ("PLACEMENT_DATABASE_URL", "sqlite:///placement.db", "begins with sqlite://"),
        ("PLACEMENT_DATABASE_URL", "mysql+pymysql://host/placement", "begins with mysql+pymysql://"),
        (
            "PLACEMENT_DATABASE_URL",
            "postgresql+asyncpg://host/placement",
            "begins with postgresql+asyncpg://",
        ),
        (
            "PLACEMENT_DATABASE_URL",
            "postgresql+nonsense://host/placement",
            "begins with postgresql+nonsense://",
        ),
        ("PLACEMENT_DATABASE_URL", "postgres://host/placement", "begins with postgres://"),
        ("PLACEMENT_DATABASE_URL", "postgresql://host:port/placement", "is malformed: its port must be"),
        ("PLACEMENT_DATABASE_URL", "postgresql://host:70000/placement", "has the port 70000: write"),
        ("PLACEMENT_DATABASE_URL", "postgresql://host:0/placement", "has the port 0: write one from 1"),
        ("PLACEMENT_DATABASE_URL", f"{URL}?nonsense=1", "has the option nonsense, which libpq does not know"),
        ("PLACEMENT_DATABASE_URL", f"{URL}?host=a,b,c&port=1,2", "does not name one port for each host"),
        ("PLACEMENT_DATABASE_URL", "postgresql://a:1,b:port/placement", "is malformed: its port must be"),
        ("PLACEMENT_DATABASE_URL", "postgresql://a:1,,b/placement", "is malformed: its port must be"),
        ("PLACEMENT_DATABASE_URL", "postgresql://a:1,b:70000/placement", "has the port 70000: write"),
        ("PLACEMENT_DATABASE_URL", "postgresql:///placement?host=a,b&port=1,2,3", "does not name one port"),
        (
            "PLACEMENT_DATABASE_URL",
            f"{URL}?target_session_attrs=nonsense",
            "has target_session_attrs=nonsense: write one of any, read-write,",
        ),
        ("PLACEMENT_DATABASE_URL", f"{URL}?sslmode=on", "has sslmode=on: write one of disable, allow,"),
        ("PLACEMENT_DATABASE_URL", f"{URL}?connect_timeout=2s", "has connect_timeout=2s: write a whole"),
        ("PLACEMENT_AUTH", "nobody", "must be one of noauth, token, keystone"),
        ("PLACEMENT_AUTH", "NOAUTH", "must be one of noauth, token, keystone"),
        ("PLACEMENT_AUTH", "token", "is token, which requires PLACEMENT_TOKEN_FILE"),
        ("PLACEMENT_ALLOW_INSECURE", "yes", "must be one of 0, 1, not 'yes'"),
        *(
            ("PLACEMENT_ALLOWED_HOSTS", f"a, {host}", "must be names or IP addresses without scheme and port")
            for host in ("http://a", "a:80", "a/", "a b", "u@a", "..", ".", "a..b", "*.a", "::1", "\xe4")
        ),
        *(
            ("PLACEMENT_CORS_ALLOWED_ORIGINS", f"https://a, {origin}", "must be origins in lower case and")
            for origin in (
                "foo",
                "x.example",
                "//x.example",
                "http://",
                "http://a b",
                "http://u@x",
                "http://x/path",
                "http://x.example/",
                "http://ex:99999",
                "http://ex:0",
                "http://ex:",
                "http://*.x",
                "http://[x]",
                "HTTPS://X.example",
            )
        ),
        (
            "PLACEMENT_TOKEN_FILE",
            "~nosuchuser/x",
            "must be a path whose home directory exists, not '~nosuchuser/x'",
        ),
        (
            "PLACEMENT_DATA_DIR",
            "~nosuchuser",
            "must be a path whose home directory exists, not '~nosuchuser'",
        ),
        ("PLACEMENT_POLICY_PROFILE", "lax", "must be one of secure, legacy, not 'lax'"),
        ("PLACEMENT_INCOMPLETE_CONSUMER_PROJECT_ID", "p" * 256, "must have no more than 255 characters"),
        ("PLACEMENT_INCOMPLETE_CONSUMER_USER_ID", "u" * 256, "must have no more than 255 characters"),
        ("PLACEMENT_POOL_SIZE", "many", "must be a whole number, not 'many'"),
        ("PLACEMENT_POOL_SIZE", "1.5", "must be a whole number, not '1.5'"),
        ("PLACEMENT_POOL_SIZE", "0", "must be 1 or more"),
        ("PLACEMENT_POOL_SIZE", "-1", "must be 1 or more"),
        ("PLACEMENT_MAX_GROUPS", "0", "must be 1 or more"),
        ("PLACEMENT_MAX_ITEMS", "0", "must be 1 or more"),
        ("PLACEMENT_MAX_BODY", "0", "must be 1 or more"),
        ("PLACEMENT_MAX_BODY", "16M", "must be a whole number, not '16M'"),
        ("PLACEMENT_SLOW_REQUEST", "soon", "must be a number, not 'soon'"),
        ("PLACEMENT_SLOW_REQUEST", "-1", "must be 0 or more"),
        ("PLACEMENT_CLIENT_TIMEOUT", "0", "must be 1 or more"),
        ("PLACEMENT_DRAIN", "nan", "must be a finite number, 0 or more"),
        ("PLACEMENT_DRAIN", "inf", "must be a finite number, 0 or more"),
        ("PLACEMENT_LOG_FORMAT", "xml", "must be one of json, console, not 'xml'"),
        ("PLACEMENT_LOG_LEVEL", "loud", "must be one of debug, info, warning, error, not 'loud'"),
        ("PLACEMENT_LOCK_TIMEOUT", "0", "must be 1 or more"),
        ("PLACEMENT_LOCK_TIMEOUT", "2147484", "must be 2147483 or less"),
        ("PLACEMENT_STATEMENT_TIMEOUT", "99999999999", "must be 2147483 or less"),
        ("PLACEMENT_CLIENT_TIMEOUT", "9300000000", "must be 2147483 or less"),
        ("PLACEMENT_DRAIN", "1e12", "must be 2147483 or less"),
        ("PLACEMENT_MAX_CANDIDATES", "2147483648", "must be 2147483647 or less"),
        ("PLACEMENT_EXPLANATION_ROOTS", "9223372036854775807", "must be 2147483647 or less"),
        ("PLACEMENT_POOL_SIZE", "9" * 400, "must be 2147483647 or less"),
        ("PLACEMENT_MAX_BODY", "2147483648", "must be 2147483647 or less"),
        ("PLACEMENT_READ_MAX_LAG", "0", "must be a finite number above 0"),
        ("PLACEMENT_READ_MAX_LAG", "inf", "must be a finite number above 0"),
        ("PLACEMENT_REQUEST_DEADLINE", "1e10", "must be 2147483 or less"),
        ("PLACEMENT_REQUIRE_SYNC", "yes", "must be one of 0, 1, not 'yes'"),
    ],
)
def test_invalid_value_is_rejected(variable: str, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        from_environ({variable: text})
    assert str(raised.value).startswith(f"{variable} {message}")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("db2", "is not a URL"),
        ("postgresql://db2:port/placement", "is malformed: its port must be"),
        ("postgresql://db2/placement?nonsense=1", "has the option nonsense, which libpq does not know"),
        ("postgresql://db2,db3/placement?target_session_attrs=primary", "names standbys"),
    ],
)
def test_invalid_url_of_standbys_is_rejected(url: str, message: str) -> None:
    with pytest.raises(SettingsError, match=f"^PLACEMENT_READ_URL {message}"):
        from_environ({"PLACEMENT_DATABASE_URL": URL, "PLACEMENT_READ_URL": url})


def test_standbys_need_a_primary() -> None:
    with pytest.raises(SettingsError, match=r"^PLACEMENT_READ_URL has no effect without"):
        from_environ({"PLACEMENT_READ_URL": URL})


@pytest.mark.parametrize("text", ["-1", "many"])
@pytest.mark.parametrize("setting", [field.name for field in fields(Settings) if field.type in (int, float)])
def test_number_rejects_negative_values_and_other_text(setting: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable(setting)} must be "):
        from_environ({variable(setting): text})


@pytest.mark.parametrize(
    "setting",
    [field.name for field in fields(Settings) if field.type in (str, str | None, tuple[str, ...])],
)
def test_text_that_is_not_utf8_is_rejected(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACEMENT_DATABASE_URL", URL)
    monkeypatch.setenv("PLACEMENT_CORS_ALLOWED_ORIGINS", "https://a")
    monkeypatch.setitem(os.environb, variable(setting).encode(), b"\xff" * 40)
    with pytest.raises(SettingsError) as raised:
        from_environ()
    assert str(raised.value) == f"{variable(setting)} must be valid UTF-8"


def test_path_that_is_not_utf8_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"PLACEMENT_TOKEN_FILE", b"/\xff")
    assert os.fsencode(from_environ().token_file or "") == b"/\xff"


@pytest.mark.parametrize("header", ["X Mine", "X-Mine:", "X-M\xe4rz", "(X)", "X-Mine\r\nX-Other"])
def test_name_that_no_header_can_have_is_rejected(header: str) -> None:
    with pytest.raises(
        SettingsError, match=r"^PLACEMENT_CORS_ALLOWED_HEADERS must be names of headers"
    ) as raised:
        from_environ(
            {
                "PLACEMENT_CORS_ALLOWED_ORIGINS": "https://a",
                "PLACEMENT_CORS_ALLOWED_HEADERS": f"X-A, {header}",
            }
        )
    assert str(raised.value).endswith(f"not {header!r}")


def test_error_message_does_not_contain_the_password() -> None:
    with pytest.raises(SettingsError) as raised:
        from_environ({"PLACEMENT_DATABASE_URL": URL.replace("psycopg2", "asyncpg")})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "variable",
    [
        "DATABASE_URL",
        "MY_PLACEMENT_AUTH",
        "PLACEMENT_SERVICE_HOST",
        "PLACEMENT_SERVICE_PORT",
        "PLACEMENT_SERVICE_PORT_HTTP",
        "PLACEMENT_API_SERVICE_HOST",
        "PLACEMENT_PORT",
        "PLACEMENT_PORT_8778_TCP",
        "PLACEMENT_API_PORT_8778_TCP_ADDR",
        "PLACEMENT_DB_PORT_5432_UDP_PROTO",
    ],
)
def test_foreign_variables_are_ignored(variable: str) -> None:
    assert from_environ({variable: "tcp://10.0.0.1:8778"}) == Settings()


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("PLACEMENT_DATABSE_URL", ": did you mean PLACEMENT_DATABASE_URL?"),
        ("PLACEMENT_LOGLEVEL", ": did you mean PLACEMENT_LOG_LEVEL?"),
        ("PLACEMENT_auth", ": did you mean PLACEMENT_AUTH?"),
        ("PLACEMENT_", ""),
        ("PLACEMENT_QQQQQQQQQQQQQ", ""),
    ],
)
def test_unknown_variable_is_rejected(variable: str, hint: str) -> None:
    with pytest.raises(SettingsError) as raised:
        from_environ({variable: "1"})
    assert str(raised.value) == f"{variable} is not a setting{hint}"


def test_empty_unknown_variable_is_ignored() -> None:
    assert from_environ({"PLACEMENT_NONSENSE": ""}) == Settings()


def test_url_takes_precedence_over_a_data_directory() -> None:
    settings = from_environ({"PLACEMENT_DATA_DIR": "/srv", "PLACEMENT_DATABASE_URL": URL})
    assert settings.database_url == URL


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"PLACEMENT_CORS_ALLOWED_HEADERS": "X-Mine"},
            "PLACEMENT_CORS_ALLOWED_HEADERS has no effect without PLACEMENT_CORS_ALLOWED_ORIGINS",
        ),
        *(
            (
                {"PLACEMENT_CORS_ALLOWED_ORIGINS": origins} | auth,
                "PLACEMENT_CORS_ALLOWED_ORIGINS may not contain * or null with PLACEMENT_AUTH=noauth",
            )
            for origins in ("*", "https://a, *", "null")
            for auth in ({}, {"PLACEMENT_AUTH": "noauth"}, {"PLACEMENT_ALLOW_INSECURE": "1"})
        ),
        ({"PLACEMENT_AUTH": "token"}, "PLACEMENT_AUTH is token, which requires PLACEMENT_TOKEN_FILE"),
    ],
)
def test_contradictory_variables_are_rejected(variables: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        from_environ(variables)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    "origin",
    [
        "https://dashboard.example.org",
        "http://localhost:8080",
        "http://ex:65535",
        "http://192.0.2.1",
        "http://[2001:db8::1]:80",
        "chrome-extension://abcdefgh",
    ],
)
def test_origins_of_browsers_are_accepted(origin: str) -> None:
    assert from_environ({"PLACEMENT_CORS_ALLOWED_ORIGINS": origin}).cors_allowed_origins == (origin,)


@pytest.mark.parametrize(
    "variables", [{"PLACEMENT_AUTH": "keystone"}, {"PLACEMENT_AUTH": "token", "PLACEMENT_TOKEN_FILE": "t"}]
)
def test_all_origins_are_allowed_with_authentication(variables: dict[str, str]) -> None:
    settings = from_environ(variables | {"PLACEMENT_CORS_ALLOWED_ORIGINS": "*"})
    assert settings.cors_allowed_origins == ("*",)
