"""The settings that an environment means, or why it means none."""

from pathlib import Path

import pytest

from placement_svc.config import DATA_DIR, Settings, SettingsError, from_environ

URL = "postgresql+psycopg2://user:secret@host/placement"


def test_nothing_set_means_the_defaults() -> None:
    settings = from_environ({})
    assert settings == Settings()
    assert settings.database_url is None
    assert settings.data_dir == DATA_DIR
    assert settings.auth == "noauth"
    assert not settings.allow_insecure
    assert settings.policy_profile == "secure"


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
        ("PLACEMENT_POLICY_PROFILE", "legacy", "policy_profile", "legacy"),
        (
            "PLACEMENT_CORS_ALLOWED_ORIGINS",
            "https://a, https://b,",
            "cors_allowed_origins",
            ("https://a", "https://b"),
        ),
        ("PLACEMENT_CORS_ALLOWED_ORIGINS", "", "cors_allowed_origins", ()),
        ("PLACEMENT_CORS_ALLOWED_HEADERS", "X-Mine", "cors_allowed_headers", ("X-Mine",)),
        ("PLACEMENT_POOL_SIZE", "1", "pool_size", 1),
        ("PLACEMENT_POOL_SIZE", "50", "pool_size", 50),
        ("PLACEMENT_LOCK_TIMEOUT", "30", "lock_timeout", 30),
    ],
)
def test_variable_sets(variable: str, text: str, setting: str, value: object) -> None:
    assert getattr(from_environ({variable: text}), setting) == value


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("PLACEMENT_DATABASE_URL", "placement", "must be the URL of a PostgreSQL"),
        ("PLACEMENT_DATABASE_URL", "sqlite:///placement.db", "must be the URL of a PostgreSQL"),
        ("PLACEMENT_DATABASE_URL", "mysql+pymysql://host/placement", "must be the URL of a PostgreSQL"),
        ("PLACEMENT_DATABASE_URL", "postgresql+asyncpg://host/placement", "must be the URL of a PostgreSQL"),
        ("PLACEMENT_DATABASE_URL", "postgresql+nonsense://host/placement", "must be the URL of a PostgreSQL"),
        ("PLACEMENT_DATABASE_URL", "postgresql://host:port/placement", "must be the URL of a PostgreSQL"),
        ("PLACEMENT_DATABASE_URL", f"{URL}?nonsense=1", "must be the URL of a PostgreSQL"),
        ("PLACEMENT_AUTH", "nobody", "must be one of noauth"),
        ("PLACEMENT_AUTH", "NOAUTH", "must be one of noauth"),
        ("PLACEMENT_ALLOW_INSECURE", "yes", "must be one of 0, 1, not 'yes'"),
        ("PLACEMENT_POLICY_PROFILE", "lax", "must be one of secure, legacy, not 'lax'"),
        ("PLACEMENT_POOL_SIZE", "many", "must be a whole number, not 'many'"),
        ("PLACEMENT_POOL_SIZE", "1.5", "must be a whole number, not '1.5'"),
        ("PLACEMENT_POOL_SIZE", "0", "must be 1 or more"),
        ("PLACEMENT_POOL_SIZE", "-1", "must be 1 or more"),
        ("PLACEMENT_LOCK_TIMEOUT", "0", "must be 1 or more"),
    ],
)
def test_variable_cannot_be(variable: str, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        from_environ({variable: text})
    assert str(refused.value).startswith(f"{variable} {message}")


def test_refusal_keeps_the_password_to_itself() -> None:
    with pytest.raises(SettingsError) as refused:
        from_environ({"PLACEMENT_DATABASE_URL": URL.replace("psycopg2", "asyncpg")})
    assert "secret" not in str(refused.value)


def test_other_variables_do_not_matter() -> None:
    assert from_environ({"PLACEMENT_NONSENSE": "1", "DATABASE_URL": URL}) == Settings()
