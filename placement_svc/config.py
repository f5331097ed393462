"""The settings: environment variables that are read and validated once, at startup."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import platformdirs

from placement_svc.db.connections.urls import UrlError, check_url, parse_url
from placement_svc.domain.inventory import MAX_INTEGER
from placement_svc.domain.limits import MAX_ID_LENGTH

DATA_DIR = platformdirs.user_data_path("placement-svc")

NOBODY = "00000000-0000-0000-0000-000000000000"
"""The project and the user of a consumer whose client sent none."""


MIN_SECRET_LENGTH = 32
"""The least number of characters of `Settings.console_secret`."""

MAX_SECONDS = MAX_INTEGER // 1000
"""The longest timeout of PostgreSQL, which counts milliseconds: 24 days."""

_HOST = re.compile(r"\*|\.?[\w-]+(\.[\w-]+)*\.?|\[[0-9a-f:.]+\]", re.IGNORECASE | re.ASCII)
"""A host in `Settings.allowed_hosts`."""


MAX_PORT = 65535

_ORIGIN = re.compile(
    r"\*|null|[a-z][a-z0-9+.-]*://([a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\])(:(?P<port>[1-9][0-9]{0,4}))?"
)
"""An origin in `Settings.cors_allowed_origins`: browsers send it in lower case."""

_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header in `Settings.cors_allowed_headers` (RFC 9110, section 5.1)."""


class SettingsError(Exception):
    """An environment variable is unknown or has an invalid value; the message names it and the reason."""


def _setting(default: Any, about: str, default_text: str | None = None) -> Any:
    """Return a dataclass field with its documentation.

    `about` is the meaning that `placement-svc settings` and the README give. `default_text` describes a
    default that depends on the environment or on another module.
    """
    return field(default=default, metadata={"about": about, "default_text": default_text})


@dataclass(frozen=True)
class Settings:
    """All settings. The environment variable of `data_dir` is ``PLACEMENT_DATA_DIR``, and so on."""

    database_url: str | None = _setting(
        None,
        "SQLAlchemy URL of the PostgreSQL database, postgresql+psycopg2://...; "
        "if unset, the embedded PostgreSQL is used",
    )
    read_url: str | None = _setting(
        None,
        "URL of one or several standbys, which answer reads that may be some seconds old: the console, the"
        " metrics, and requests with stale=ok",
    )
    read_max_lag: float = _setting(
        10.0, "seconds that a standby may lag behind; while it lags more, the primary answers"
    )
    require_sync: bool = _setting(
        False, "1: /readyz returns 503 unless each commit waits for a synchronous standby"
    )
    data_dir: Path = _setting(
        DATA_DIR,
        "data directory of the embedded PostgreSQL; ignored if PLACEMENT_DATABASE_URL is set",
        "placement-svc in the user's data directory",
    )
    auth: str = _setting(
        "noauth", "authentication: noauth (trusts every caller; a token is user[:project]), token or keystone"
    )
    allow_insecure: bool = _setting(False, "1 lets noauth listen on addresses other than loopback")
    allowed_hosts: tuple[str, ...] = _setting(
        (),
        "comma-separated values of the Host header to accept besides localhost and loopback addresses: "
        "a name or address, .example.org with all its subdomains, or *; "
        "if unset, noauth accepts no others, token and keystone accept all",
    )
    token_file: Path | None = _setting(
        None, "token file for PLACEMENT_AUTH=token; placement-svc token writes it"
    )
    keystone_file: Path | None = _setting(
        None,
        "oslo.config file with a section [keystone_authtoken]; "
        "if unset, OS_KEYSTONE_AUTHTOKEN__... variables are used",
    )
    policy_profile: str = _setting(
        "secure", "default policy rules: secure, or legacy (the role admin may do everything)"
    )
    policy_file: Path | None = _setting(
        None, "policy.yaml file with rules that override those of the profile"
    )
    cors_allowed_origins: tuple[str, ...] = _setting(
        (),
        "comma-separated origins whose pages may call the API from a browser; "
        "* allows all, but not with noauth",
    )
    cors_allowed_headers: tuple[str, ...] = _setting(
        (), "comma-separated request headers that those pages may send", "the headers that OpenStack uses"
    )
    console: bool = _setting(True, "0 disables the console at /console")
    console_secret: str | None = _setting(
        None,
        "key that signs the log-in cookies of the console, at least 32 characters; all services behind one"
        " address need the same",
        "random at each start",
    )
    randomize_candidates: bool = _setting(
        False,
        "1 returns allocation candidates in random order, so that schedulers choose different hosts",
    )
    candidates_strategy: str = _setting(
        "breadth-first",
        "candidates to keep under a limit: breadth-first (one per provider tree, round robin) "
        "or depth-first (all of one tree, then the next)",
    )
    max_candidates: int = _setting(
        0, "maximum number of allocation candidates in a response; 0 means no maximum"
    )
    request_deadline: float = _setting(
        120.0, "seconds that the work for a GET or a POST /claims may take; after that, the response is 503"
    )
    max_search_memory: int = _setting(
        512,
        "maximum memory of a search for allocation candidates, in MB; if it needs more, the response is 400",
    )
    empty_answers: int = _setting(
        10_000,
        "number of searches without candidates that the database keeps, for GET /allocation_candidates/empty;"
        " 0 keeps none",
    )
    explanation_roots: int = _setting(
        20_000, "maximum number of provider trees that the counts of an explanation cover"
    )
    proxy_headers: bool = _setting(
        False, "1 trusts the proxy headers X-Forwarded-Proto, -Host and -Prefix, and Forwarded"
    )
    incomplete_consumer_project_id: str = _setting(
        NOBODY, "project id of consumers whose client cannot send one (microversions before 1.8)"
    )
    incomplete_consumer_user_id: str = _setting(NOBODY, "user id of those consumers")
    pool_size: int = _setting(
        10, "maximum number of open database connections per worker; serve needs at least 2"
    )
    lock_timeout: int = _setting(
        10, "seconds that a request waits for a database lock; after that, the response is 503"
    )
    statement_timeout: int = _setting(
        60, "seconds that a single SQL statement may run; after that, the response is 503"
    )
    prepared_statements: bool = _setting(
        True, "0 lets PostgreSQL plan each search anew, as behind a connection pooler in transaction mode"
    )
    metrics: bool = _setting(True, "0 disables /metrics")
    watched_requests: Path | None = _setting(
        None, "YAML file of requests whose capacity /metrics shows, as placement_request_fits"
    )
    watched_aggregates: Path | None = _setting(
        None, "YAML file of aggregates whose amounts /metrics shows, as placement_aggregate_capacity"
    )
    log_format: str | None = _setting(
        None, "json, or console (human-readable lines)", "console on a terminal, else json"
    )
    log_level: str = _setting("info", "lowest level that is logged: debug, info, warning or error")
    slow_request: float = _setting(
        1.0, "seconds after which a request is logged as slow, with its parameters"
    )
    max_body: int = _setting(16 * 1024 * 1024, "maximum size of a request body, in bytes")
    max_groups: int = _setting(500, "maximum number of request groups in a query for allocation candidates")
    max_items: int = _setting(
        1000, "maximum number of items of a list in a query string, such as member_of=in:A,B"
    )
    client_timeout: float = _setting(
        30.0, "seconds that a client may take to send a request, and to accept each part of the response"
    )
    drain: float = _setting(
        0.0, "seconds that the service accepts connections after SIGTERM, while /readyz returns 503"
    )

    def __post_init__(self) -> None:
        """Raise `SettingsError` for an invalid value or combination of values."""
        self._check_databases()
        self._check_access()
        self._check_choices()
        self._check_ranges()

    def _check_databases(self) -> None:
        if self.database_url is not None:
            _check_url("database_url", self.database_url)
        if self.read_url is not None:
            _check_url("read_url", self.read_url)
            if parse_url(self.read_url).query.get("target_session_attrs") in ("read-write", "primary"):
                raise SettingsError("PLACEMENT_READ_URL names standbys: leave target_session_attrs out")
        if not self.read_max_lag > 0 or not math.isfinite(self.read_max_lag):
            raise SettingsError("PLACEMENT_READ_MAX_LAG must be a finite number above 0")

    def _check_access(self) -> None:
        """Check who may send requests, and from where."""
        _check_choice("auth", self.auth, ("noauth", "token", "keystone"))
        if self.auth == "token" and self.token_file is None:
            raise SettingsError("PLACEMENT_AUTH is token, which requires PLACEMENT_TOKEN_FILE")
        if self.auth == "noauth" and not {"*", "null"}.isdisjoint(self.cors_allowed_origins):
            # Any page can have the origin null: a sandboxed frame has it.
            raise SettingsError(
                "PLACEMENT_CORS_ALLOWED_ORIGINS may not contain * or null with PLACEMENT_AUTH=noauth:"
                " any web page could change the data from a user's browser"
            )
        for origin in self.cors_allowed_origins:
            if not is_origin(origin):
                raise SettingsError(
                    "PLACEMENT_CORS_ALLOWED_ORIGINS must be origins in lower case and without a path, such as"
                    f" https://dashboard.example.org or http://192.0.2.1:8080, not {origin!r}"
                )
        for header in self.cors_allowed_headers:
            if not _FIELD_NAME.fullmatch(header):
                raise SettingsError(
                    "PLACEMENT_CORS_ALLOWED_HEADERS must be names of headers, such as X-Auth-Token,"
                    f" not {header!r}"
                )
        for host in self.allowed_hosts:
            if not is_host(host):
                raise SettingsError(
                    "PLACEMENT_ALLOWED_HOSTS must be names or IP addresses without scheme and port, such as"
                    f" placement.example.org, .example.org, 192.0.2.1, [2001:db8::1] or *, not {host!r}"
                )
        if self.console_secret is not None and len(self.console_secret) < MIN_SECRET_LENGTH:
            raise SettingsError(f"PLACEMENT_CONSOLE_SECRET must have at least {MIN_SECRET_LENGTH} characters")

    def _check_choices(self) -> None:
        """Check the settings with a few possible values."""
        _check_choice("policy_profile", self.policy_profile, ("secure", "legacy"))
        _check_choice("candidates_strategy", self.candidates_strategy, ("breadth-first", "depth-first"))
        if self.log_format is not None:
            _check_choice("log_format", self.log_format, ("json", "console"))
        _check_choice("log_level", self.log_level, ("debug", "info", "warning", "error"))

    def _check_ranges(self) -> None:
        """Check the lengths of texts, and the least and largest numbers."""
        for setting in ("incomplete_consumer_project_id", "incomplete_consumer_user_id"):
            if len(getattr(self, setting)) > MAX_ID_LENGTH:
                raise SettingsError(f"{variable(setting)} must have no more than {MAX_ID_LENGTH} characters")
        if not self.request_deadline > 0:
            raise SettingsError("PLACEMENT_REQUEST_DEADLINE must be more than 0")
        for setting in (
            "pool_size",
            "lock_timeout",
            "statement_timeout",
            "max_body",
            "max_groups",
            "max_items",
            "max_search_memory",
            "explanation_roots",
            "client_timeout",
        ):
            _check_minimum(setting, getattr(self, setting), 1)
        for setting in ("max_candidates", "empty_answers", "slow_request", "drain"):
            _check_minimum(setting, getattr(self, setting), 0)
        for setting in ("lock_timeout", "statement_timeout", "client_timeout", "drain", "request_deadline"):
            _check_maximum(setting, getattr(self, setting), MAX_SECONDS)
        for each in fields(self):
            if each.type is int:
                _check_maximum(each.name, getattr(self, each.name), MAX_INTEGER)


def variable(setting: str) -> str:
    """Return the environment variable of a setting."""
    return f"PLACEMENT_{setting.upper()}"


def is_host(text: str) -> bool:
    """Return whether `text` is a host that `Settings.allowed_hosts` may contain."""
    return _HOST.fullmatch(text) is not None


def is_origin(text: str) -> bool:
    """Return whether `text` is an origin that `Settings.cors_allowed_origins` may contain."""
    found = _ORIGIN.fullmatch(text)
    return found is not None and int(found["port"] or 0) <= MAX_PORT


def default_text(setting: Field[Any]) -> str:
    """Return the default of a setting as documentation shows it: as the variable's value, or in words."""
    text: str | None = setting.metadata["default_text"]
    if text is not None:
        return text
    if setting.default in (None, ()):
        return "unset"
    if isinstance(setting.default, bool | float):
        return f"{setting.default:g}"
    return str(setting.default)


def _check_url(setting: str, url: str) -> None:
    try:
        check_url(url)
    except UrlError as error:
        raise SettingsError(f"{variable(setting)} {error}") from None


def _check_choice(setting: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SettingsError(f"{variable(setting)} must be one of {', '.join(choices)}, not {value!r}")


def _check_minimum(setting: str, value: float, minimum: int) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"{variable(setting)} must be a finite number, {minimum} or more")
    if value < minimum:
        raise SettingsError(f"{variable(setting)} must be {minimum} or more")


def _check_maximum(setting: str, value: float, maximum: int) -> None:
    if value > maximum:
        raise SettingsError(f"{variable(setting)} must be {maximum} or less")


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
        try:
            return Path(text).expanduser()
        except RuntimeError:
            raise SettingsError(
                f"{variable(setting)} must be a path whose home directory exists, not {text!r}"
            ) from None
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SettingsError(f"{variable(setting)} must be valid UTF-8") from None
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


_KUBERNETES_VARIABLE = re.compile(
    r"PLACEMENT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""The variables that Kubernetes sets in every pod of a namespace with a service named placement."""

CLIENT_VARIABLES = {"PLACEMENT_URL", "PLACEMENT_TOKEN"}
"""The variables of the commands that query a running service; they are no settings of the service."""

_REQUIRES = {"cors_allowed_headers": "cors_allowed_origins", "read_url": "database_url"}
"""Settings that have no effect without another setting."""


def _check_names(names: set[str]) -> None:
    """Raise `SettingsError` for a variable that is no setting and hence probably misspelled."""
    known = {f.name for f in fields(Settings)}
    for name in sorted(names - CLIENT_VARIABLES - {variable(setting) for setting in known}):
        if name.startswith("PLACEMENT_") and not _KUBERNETES_VARIABLE.fullmatch(name):
            closest = get_close_matches(name.removeprefix("PLACEMENT_").lower(), known, n=1)
            hint = f": did you mean {variable(closest[0])}?" if closest else ""
            raise SettingsError(f"{name} is not a setting{hint}")
    for setting, required in _REQUIRES.items():
        if variable(setting) in names and variable(required) not in names:
            raise SettingsError(f"{variable(setting)} has no effect without {variable(required)}")


def from_environ(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings in `environ`; an empty variable counts as unset.

    Raises `SettingsError` for an invalid value, for an unknown variable ``PLACEMENT_...``, and for settings
    that contradict each other.
    """
    _check_names({name for name, value in environ.items() if value})
    return Settings(
        **{
            f.name: _read(f.name, f.type, environ[variable(f.name)])
            for f in fields(Settings)
            if environ.get(variable(f.name))
        }
    )
