"""Check that a command or a service can connect to its database, and say what to correct if it cannot."""

import re

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from placement_svc.db.connections.session_options import ignored_options, session_options
from placement_svc.db.errors import map_driver_errors
from placement_svc.domain.errors import Unavailable

# Messages of libpq and PostgreSQL in English. In another language, the message itself is shown.
_PROBLEMS = (
    (
        r"unsupported startup parameter",
        "The connection pooler {server} refuses the session options of this service: add"
        " `ignore_startup_parameters = options` to pgbouncer.ini, and set the options for the role of {url}"
        " by the SQL that `placement-svc db role-settings` prints.",
    ),
    (
        r'database "(?P<name>.*)" does not exist',
        "The server {server} has no database {name}: create it (createdb {name}), or correct the name in"
        " {url}.",
    ),
    (
        r'password authentication failed for user "(?P<name>.*)"',
        "The server {server} does not accept this password of user {name}: correct the user or the"
        " password in {url}.",
    ),
    (
        r"no password supplied",
        "The server {server} requires a password: add it to {url}, as in"
        " postgresql://user:password@host/placement.",
    ),
    (
        r'role "(?P<name>.*)" does not exist',
        "The server {server} has no user {name}: create it (createuser {name}), or correct the user in"
        " {url}.",
    ),
    (
        r'could not translate host name "(?P<name>.*)" to address',
        "The host {name} is unknown: correct the host name in {url}.",
    ),
    (
        r"Connection refused|No such file or directory",
        "No PostgreSQL server accepts connections {server}: start it, or correct the host or the port"
        " (usually 5432) in {url}.",
    ),
    (
        r"timeout expired|timed out|unreachable|No route to host",
        "There is no answer {server}: check the network and the firewall, or correct the host or the port"
        " (usually 5432) in {url}.",
    ),
    (
        r"invalid response|unexpected response|closed the connection unexpectedly",
        "The server {server} does not answer like PostgreSQL: correct the port (usually 5432) in {url}.",
    ),
)


def check_connection(engine: Engine) -> None:
    """Connect to the database once; raise `Unavailable` with the cause and the correction.

    The message never contains the password.
    """
    try:
        engine.connect().close()
    except OperationalError as error:
        raise Unavailable(_problem(str(error.orig), engine.url.password)) from error


def missing_options(engine: Engine) -> list[str]:
    """Return the session options of this service that a new connection lacks: a pooler has dropped them."""
    with map_driver_errors(), engine.connect() as connection:
        return ignored_options(connection, session_options(0, 0))


def _problem(message: str, password: str | None) -> str:
    """Return what is wrong and what would be right, from the message of libpq."""
    servers = re.findall(r"connection to server (.+?) failed", message)
    for pattern, problem in _PROBLEMS:
        found = re.search(pattern, message)
        if found:
            server = servers[-1] if servers else ""
            return problem.format(server=server, url="PLACEMENT_DATABASE_URL", **found.groupdict())
    if password:
        message = message.replace(password, "***")
    return f"The database cannot be reached: {' '.join(message.split())}. Correct PLACEMENT_DATABASE_URL."
