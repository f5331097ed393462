"""The settings: environment variables, read once, checked at once."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import platformdirs
from psycopg2 import ProgrammingError  # type: ignore[import-untyped]
from psycopg2.extensions import make_dsn  # type: ignore[import-untyped]
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from placement_svc.domain.limits import MAX_ID_LENGTH

DATA_DIR = platformdirs.user_data_path("placement-svc")

NOBODY = "00000000-0000-0000-0000-000000000000"


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
        DATA_DIR, "where the embedded PostgreSQL keeps its data; of no effect beside a URL"
    )
    auth: str = _setting(
        "noauth", "how callers are known: noauth (a token is user[:project]), token or keystone"
    )
    allow_insecure: bool = _setting(False, "1 lets noauth listen on more than loopback")
    token_file: Path | None = _setting(  # noqa: RUF009
        None, "file of the tokens of PLACEMENT_AUTH=token, which placement-svc token writes"
    )
    keystone_file: Path | None = _setting(  # noqa: RUF009
        None, "oslo.config file with [keystone_authtoken]; unset: OS_KEYSTONE_AUTHTOKEN__... variables"
    )
    policy_profile: str = _setting("secure", "secure, or legacy (the role admin may do everything)")
    policy_file: Path | None = _setting(  # noqa: RUF009
        None, "policy.yaml, with the rules that are not as in the profile; unset: none"
    )
    cors_allowed_origins: tuple[str, ...] = _setting(
        (), "origins, comma-separated, whose pages may call from a browser; *: all; unset: none"
    )
    cors_allowed_headers: tuple[str, ...] = _setting(
        (), "headers, comma-separated, that those pages may send; unset: those that OpenStack uses"
    )
    randomize_candidates: bool = _setting(
        False, "1 gives allocation candidates in random order, so that schedulers do not meet at one host"
    )
    candidates_strategy: str = _setting(
        "breadth-first",
        "which candidates a limit leaves: breadth-first (the trees take turns) or depth-first",
    )
    max_candidates: int = _setting(0, "allocation candidates in one answer at most; 0: as many as there are")
    request_deadline: float = _setting(
        120.0, "seconds that generating allocation candidates may take; then the answer is 503"
    )
    proxy_headers: bool = _setting(
        False, "1 believes a proxy's X-Forwarded-Proto, -Host and -Prefix, and Forwarded"
    )
    incomplete_consumer_project_id: str = _setting(
        NOBODY, "the project of consumers whose client is too old to name one (before 1.8)"
    )
    incomplete_consumer_user_id: str = _setting(NOBODY, "and their user")
    pool_size: int = _setting(10, "database connections that one worker keeps open at most")
    lock_timeout: int = _setting(
        10, "seconds that a request waits for what another one has locked, before it is told 503"
    )
    statement_timeout: int = _setting(
        60, "seconds that one statement may take in the database, before its request is told 503"
    )
    metrics: bool = _setting(True, "0 turns /metrics off")
    log_format: str | None = _setting(
        None, "json, or console (lines for people); unset: console on a terminal, else json"
    )
    log_level: str = _setting("info", "the least that is logged: debug, info, warning or error")
    slow_request: float = _setting(1.0, "seconds after which a request is logged with its parameters")
    max_body: int = _setting(16 * 1024 * 1024, "bytes that the body of a request may have")
    max_groups: int = _setting(500, "request groups that a query for candidates may have")
    max_items: int = _setting(1000, "items that a list in a query string may have, such as member_of=in:A,B")
    client_timeout: float = _setting(
        30.0, "seconds that a client has to send a request, and to take each piece of its answer"
    )
    drain: float = _setting(
        0.0, "seconds between SIGTERM, when /readyz turns 503, and the last new connection"
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work, before anything is started with it."""
        if self.database_url is not None:
            _check_database_url(self.database_url)
        _check_choice("auth", self.auth, ("noauth", "token", "keystone"))
        if self.auth == "token" and self.token_file is None:
            raise SettingsError("PLACEMENT_AUTH may be token only with PLACEMENT_TOKEN_FILE")
        _check_choice("policy_profile", self.policy_profile, ("secure", "legacy"))
        _check_choice("candidates_strategy", self.candidates_strategy, ("breadth-first", "depth-first"))
        for setting in ("incomplete_consumer_project_id", "incomplete_consumer_user_id"):
            if len(getattr(self, setting)) > MAX_ID_LENGTH:
                raise SettingsError(f"{variable(setting)} must have no more than {MAX_ID_LENGTH} characters")
        if not self.request_deadline > 0:
            raise SettingsError("PLACEMENT_REQUEST_DEADLINE must be more than 0")
        if self.log_format is not None:
            _check_choice("log_format", self.log_format, ("json", "console"))
        _check_choice("log_level", self.log_level, ("debug", "info", "warning", "error"))
        for setting in (
            "pool_size",
            "lock_timeout",
            "statement_timeout",
            "max_body",
            "max_groups",
            "max_items",
            "client_timeout",
        ):
            _check_least(setting, getattr(self, setting), 1)
        for setting in ("max_candidates", "slow_request", "drain"):
            _check_least(setting, getattr(self, setting), 0)


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


def _check_least(setting: str, value: float, least: int) -> None:
    if value < least or not math.isfinite(value):
        raise SettingsError(f"{variable(setting)} must be {least} or more")


def _read(setting: str, kind: Any, text: str) -> Any:
    if kind is bool:
        _check_choice(setting, text, ("0", "1"))
        return text == "1"
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise SettingsError(f"{variable(setting)} must be a {what}, not {text!r}") from None
    if kind in (Path, Path | None):
        return Path(text).expanduser()
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


_OF_KUBERNETES = re.compile(
    r"PLACEMENT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes puts into the environment of every pod beside a service called placement."""

_NEEDS = {"cors_allowed_headers": "cors_allowed_origins"}
"""Settings that mean nothing without another one."""


def _check_names(names: set[str]) -> None:
    """Refuse variables that set nothing: most likely the one that was meant is not set."""
    known = {f.name for f in fields(Settings)}
    for name in sorted(names - {variable(setting) for setting in known}):
        if name.startswith("PLACEMENT_") and not _OF_KUBERNETES.fullmatch(name):
            closest = get_close_matches(name.removeprefix("PLACEMENT_").lower(), known, n=1)
            hint = f": did you mean {variable(closest[0])}?" if closest else ""
            raise SettingsError(f"{name} is no setting{hint}")
    for one, other in _NEEDS.items():
        if variable(one) in names and variable(other) not in names:
            raise SettingsError(f"{variable(one)} means nothing without {variable(other)}")


def from_environ(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings that `environ` holds; an empty variable counts as unset.

    Raises `SettingsError` for a value that cannot be, for a variable ``PLACEMENT_...`` that is no
    setting, and for settings that contradict each other.
    """
    _check_names({name for name, value in environ.items() if value})
    return Settings(
        **{
            f.name: _read(f.name, f.type, environ[variable(f.name)])
            for f in fields(Settings)
            if environ.get(variable(f.name))
        }
    )
