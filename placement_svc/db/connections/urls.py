"""URLs of the database: their forms, their secrets, and the connection options that they imply."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from psycopg2 import ProgrammingError  # type: ignore[import-untyped]
from psycopg2.extensions import make_dsn  # type: ignore[import-untyped]
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

DRIVER = "postgresql+psycopg2"
"""SQLAlchemy's default driver for a URL without one differs between releases."""

SECRET_OPTIONS = ("password", "sslpassword")
"""libpq options of a URL that must not appear in logs or output."""

APPLICATION_NAME = "placement-svc"
"""The `application_name` of every session, unless the URL sets another one."""

DEFAULTS: Mapping[str, Any] = {"application_name": APPLICATION_NAME, "connect_timeout": 5}
"""The libpq options of a URL with one host."""

SEVERAL_HOSTS_DEFAULTS: Mapping[str, Any] = {
    **DEFAULTS,
    # Only the primary accepts writes; the standbys of a failover cluster are the other hosts.
    "target_session_attrs": "read-write",
    # libpq tries one host after the other, and a host that is down may not answer at all.
    "connect_timeout": 2,
    # A host that has vanished acknowledges nothing: its connections fail after some seconds, not after the
    # 15 minutes that Linux takes by default.
    "tcp_user_timeout": 5000,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}
"""The libpq options of a URL with several hosts."""

STANDBY_DEFAULTS: Mapping[str, Any] = {
    name: value for name, value in SEVERAL_HOSTS_DEFAULTS.items() if name != "target_session_attrs"
}
"""The libpq options of a URL for reads on standbys: a standby that has vanished must not delay reads."""

_CHOICES = {
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "load_balance_hosts": ("disable", "random"),
}
"""The values of libpq options that libpq itself would reject only at the first connection."""

_NUMBERS = (
    "connect_timeout",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "tcp_user_timeout",
)

DEFAULT_PORT = "5432"
"""The port of PostgreSQL, as libpq takes it."""

_EXAMPLE = "postgresql://user:password@host:5432/placement"

_SEVERAL_HOSTS = re.compile(
    r"(?P<scheme>[A-Za-z][\w+.-]*://)(?P<user>[^@/?]*@)?(?P<hosts>[^/?@]*,[^/?@]*)"
    r"(?P<database>/[^?]*)?(?:\?(?P<query>.*))?"
)
"""A URL in the form of libpq, such as postgresql://user@host1:5432,host2:5433/placement."""

_UNKNOWN_OPTION = re.compile(r'invalid connection option "([^"]*)"')
"""The part of a message of libpq that names an option."""

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(?::(?P<port>\d+))?")


class UrlError(ValueError):
    """A database URL cannot be used; the message says what would be right, without the password."""


def parse_url(url: str | URL) -> URL:
    """Return a database URL; a text may have several hosts in the form of libpq, `host1:5432,host2:5433`.

    Raises `ValueError` or SQLAlchemy's `ArgumentError` for a malformed text.
    """
    if isinstance(url, str) and (found := _SEVERAL_HOSTS.fullmatch(url)):
        url = _with_host_option(found)
    return make_url(url)


def _with_host_option(found: re.Match[str]) -> str:
    """Return a URL of libpq's form for several hosts with the options `host` and `port` instead."""
    hosts, ports = [], []
    for text in found["hosts"].split(","):
        host = _HOST.fullmatch(text)
        if host is None or not host["host"]:
            raise ValueError(f"{text!r} is not a host with a port")
        hosts.append(host["host"].strip("[]"))
        ports.append(host["port"] or DEFAULT_PORT)
    options = f"host={quote(','.join(hosts))}&port={','.join(ports)}"
    query = f"&{found['query']}" if found["query"] else ""
    return f"{found['scheme']}{found['user'] or ''}{found['database'] or '/'}?{options}{query}"


def host_count(url: URL) -> int:
    """Return the number of hosts of a database URL."""
    host = url.query.get("host", "")
    return len(host) if isinstance(host, tuple) else host.count(",") + 1


def hosts_and_ports(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the host and the port of each server that the arguments of a connection name."""
    hosts = str(arguments.get("host", "")).split(",")
    ports = str(arguments.get("port", "")).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    yield from zip(hosts, (port or DEFAULT_PORT for port in ports), strict=True)


def each_host(url: str | URL) -> list[URL]:
    """Return a URL with `STANDBY_DEFAULTS` for each host of a valid database URL."""
    parsed = parse_url(url)
    _, arguments = parsed.set(drivername=DRIVER).get_dialect()().create_connect_args(parsed)
    options = {name: str(value) for name, value in STANDBY_DEFAULTS.items() if name not in parsed.query}
    # `URL.set` ignores None.
    common = parsed._replace(host=None, port=None).difference_update_query(("host", "port"))
    return [
        common.update_query_dict({**options, **({"host": host} if host else {}), "port": port})
        for host, port in hosts_and_ports(arguments)
    ]


def server_name(url: URL) -> str:
    """Return the host and the port of a URL of `each_host`, for metrics and messages."""
    return f"{url.query.get('host', 'localhost')}:{url.query['port']}"


def default_options(url: URL) -> dict[str, Any]:
    """Return the libpq options that a database URL implies and does not set itself."""
    defaults = SEVERAL_HOSTS_DEFAULTS if host_count(url) > 1 else DEFAULTS
    return {name: value for name, value in defaults.items() if name not in url.query}


def may_be_read_only(url: URL) -> bool:
    """Return whether a database URL asks for a server that need not accept writes."""
    return url.query.get("target_session_attrs") in ("read-only", "standby", "prefer-standby")


def redact_url(url: str | URL) -> str:
    """Return a URL without passwords, for logs and output."""
    return parse_url(url).difference_update_query(SECRET_OPTIONS).render_as_string(hide_password=True)


def check_url(text: str) -> None:
    """Raise `UrlError` unless psycopg2 can use a URL."""
    found = re.match(r"([A-Za-z][\w+.-]*)://", text)
    if found is None:
        raise UrlError(f"is not a URL: write it like {_EXAMPLE}")
    scheme = found[1]
    if scheme not in ("postgresql", DRIVER):
        needed = "postgresql://" if scheme.startswith("postgres") else "a PostgreSQL database"
        raise UrlError(f"begins with {scheme}://, and this service needs {needed}: write it like {_EXAMPLE}")
    if text.partition("?")[0].count("@") > 1:
        raise UrlError("has more than one @: write %40 for each that is part of a name or of the password")
    try:
        check_options(parse_url(text))
    except UrlError:
        raise
    except (ArgumentError, ValueError):
        raise UrlError(
            f"is malformed: its port must be a number, as in {_EXAMPLE} or, with"
            " several hosts, postgresql://user:password@host1:5432,host2:5432/placement"
        ) from None


def check_options(url: URL) -> None:
    """Raise `UrlError` for an option, or the value of one, that libpq would reject."""
    try:
        _, arguments = url.set(drivername=DRIVER).get_dialect()().create_connect_args(url)
        make_dsn(**arguments)
    except ProgrammingError as error:
        option = _UNKNOWN_OPTION.search(str(error))
        named = f"the option {option[1]}, which" if option else "an option that"
        raise UrlError(
            f"has {named} libpq does not know: write only options of libpq after the ?, such as"
            " sslmode=require"
        ) from None
    except (ArgumentError, ValueError):
        raise UrlError(
            "does not name one port for each host: write as many as there are hosts, or one for all"
        ) from None
    for name, choices in _CHOICES.items():
        if (value := url.query.get(name, choices[0])) not in choices:
            raise UrlError(f"has {name}={value}: write one of {', '.join(choices)}")
    for name in _NUMBERS:
        if not str(value := url.query.get(name, "0")).isdecimal():
            raise UrlError(f"has {name}={value}: write a whole number")
    ports = str(arguments.get("port", "")).split(",") if url.port is None else [str(url.port)]
    for port in ports:
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            raise UrlError(f"has the port {port}: write one from 1 to 65535, usually 5432")
