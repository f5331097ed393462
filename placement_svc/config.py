"""The settings: environment variables, read once, checked at once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import platformdirs
from psycopg2 import ProgrammingError  # type: ignore[import-untyped]
from psycopg2.extensions import make_dsn  # type: ignore[import-untyped]
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

DATA_DIR = platformdirs.user_data_path("placement-svc")


class SettingsError(Exception):
    """An environment variable has a value that it cannot have; the message says which and why."""


def _setting(default: Any, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Settings:
    """Everything that can be set; the variable of `data_dir` is ``PLACEMENT_DATA_DIR``, and so on."""

    database_url: str | None = _setting(
        None, "SQLAlchemy URL of a PostgreSQL, postgresql+psycopg2://...; unset: the embedded one"
    )
    data_dir: Path = _setting(  # noqa: RUF009
        DATA_DIR, "where the embedded PostgreSQL keeps its data"
    )
    auth: str = _setting("noauth", "how callers are known: noauth (a token is user[:project])")
    allow_insecure: bool = _setting(False, "1 lets noauth listen on more than loopback")
    policy_profile: str = _setting("secure", "secure, or legacy (the role admin may do everything)")
    cors_allowed_origins: tuple[str, ...] = _setting(
        (), "origins, comma-separated, whose pages may call from a browser; *: all; unset: none"
    )
    cors_allowed_headers: tuple[str, ...] = _setting(
        (), "headers, comma-separated, that those pages may send; unset: those that OpenStack uses"
    )
    pool_size: int = _setting(10, "database connections that one worker keeps open at most")
    lock_timeout: int = _setting(
        10, "seconds that a request waits for what another one has locked, before it is told 503"
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work, before anything is started with it."""
        if self.database_url is not None:
            _check_database_url(self.database_url)
        _check_choice("auth", self.auth, ("noauth",))
        _check_choice("policy_profile", self.policy_profile, ("secure", "legacy"))
        if self.pool_size < 1:
            raise SettingsError("PLACEMENT_POOL_SIZE must be 1 or more")
        if self.lock_timeout < 1:
            raise SettingsError("PLACEMENT_LOCK_TIMEOUT must be 1 or more")


def variable(setting: str) -> str:
    """Return the environment variable of a setting."""
    return f"PLACEMENT_{setting.upper()}"


def _check_database_url(url: str) -> None:
    if not _is_of_postgresql(url):
        raise SettingsError(
            "PLACEMENT_DATABASE_URL must be the URL of a PostgreSQL, such as"
            " postgresql+psycopg2://user:password@host/placement, with no options but those of libpq"
        )


def _is_of_postgresql(url: str) -> bool:
    try:
        parsed = make_url(url)
        if parsed.drivername not in ("postgresql", "postgresql+psycopg2"):
            return False
        dialect = parsed.set(drivername="postgresql+psycopg2").get_dialect()()
        _, arguments = dialect.create_connect_args(parsed)
        make_dsn(**arguments)
    except (ArgumentError, ValueError, ProgrammingError):
        return False
    return True


def _check_choice(setting: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SettingsError(f"{variable(setting)} must be one of {', '.join(choices)}, not {value!r}")


def _read(setting: str, kind: Any, text: str) -> Any:
    if kind is bool:
        _check_choice(setting, text, ("0", "1"))
        return text == "1"
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise SettingsError(f"{variable(setting)} must be a whole number, not {text!r}") from None
    if kind is Path:
        return Path(text).expanduser()
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def from_environ(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings that `environ` holds; an empty variable counts as unset.

    Raises `SettingsError` for a value that cannot be.
    """
    return Settings(
        **{
            f.name: _read(f.name, f.type, environ[variable(f.name)])
            for f in fields(Settings)
            if environ.get(variable(f.name))
        }
    )
