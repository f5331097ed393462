"""The options and the errors of the commands that query a running service over HTTP.

The exit status is 0, 1 if the answer is negative (no candidates, nothing found), 2 after an error, and 130
after Ctrl-C.
"""

import signal
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any
from urllib.parse import quote, urlencode

import click
from rich.console import Console
from rich.text import Text

from placement_svc import standard_output
from placement_svc.client.service_client import ClientError, ServiceClient, StatusError, UnreachableError
from placement_svc.commands import PORT
from placement_svc.commands.report import Format, Report
from placement_svc.domain.printable import printable
from placement_svc.domain.version_header import EXTENSION_VERSIONS, EXTENSIONS
from placement_svc.http.microversion import NEWEST

VERSION = f"{NEWEST}, {EXTENSIONS} {EXTENSION_VERSIONS[-1]}"
PAGE_SIZE = 1000

_SAFE = "%/?:@!$&'()*+,;=[]"
"""The characters besides letters, digits and `-._~` that a REQUEST may contain without being escaped."""

_OPTIONS = (
    click.option(
        "--url",
        envvar="PLACEMENT_URL",
        show_envvar=True,
        default=f"http://127.0.0.1:{PORT}",
        show_default=True,
        help="URL of the service.",
    ),
    click.option(
        "--token",
        envvar="PLACEMENT_TOKEN",
        show_envvar=True,
        default="admin",
        show_default=True,
        help="Token for the service.",
    ),
    click.option("--stale", is_flag=True, help="Allow a standby to answer with data some seconds old."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
)

limit_option = click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Largest number of rows.",
)


class QueryError(click.ClickException):
    """A query without an answer."""

    exit_code = 2


def query_command(name: str) -> Callable[[Callable[..., Report]], click.Command]:
    """Return a decorator that makes a command of a function.

    The function gets a client of the service, and the arguments and options of the command. Its docstring
    is the help text.
    """

    def decorate(function: Callable[..., Report]) -> click.Command:
        @wraps(function)
        def run(url: str, token: str, *, stale: bool, as_json: bool, as_csv: bool, **arguments: Any) -> None:
            if as_json and as_csv:
                raise click.UsageError("Choose one of --json and --csv.")
            try:
                client = ServiceClient(url, token, version=VERSION, allows_stale=stale)
                waiting = Text(f"Waiting for {printable(url)}")
                with Console(stderr=True).status(waiting, spinner_style="none"):
                    report = function(client, **arguments)
            except ClientError as error:
                raise QueryError(printable(_message(error, url))) from error
            except UnicodeEncodeError as error:
                raise click.UsageError("An argument is not valid UTF-8.") from error
            except KeyboardInterrupt as error:
                # As shells do; click would exit with the status of a negative answer.
                raise click.exceptions.Exit(128 + signal.SIGINT) from error
            _write(report, Format.JSON if as_json else Format.CSV if as_csv else None)
            click.get_current_context().exit(0 if report.is_success else 1)

        for option in reversed(_OPTIONS):
            option(run)
        return click.command(name)(run)

    return decorate


def _write(report: Report, output: Format | None) -> None:
    try:
        with standard_output.reported():
            report.write(output)
    except standard_output.OutputError as error:
        raise QueryError(error.message) from error


def _message(error: ClientError, url: str) -> str:
    if isinstance(error, UnreachableError):
        return f"{url} does not respond ({error.reason}): start it, or name another service by --url"
    if not isinstance(error, StatusError):
        return str(error)
    if error.status == 401:
        return f"{url} does not accept the token: name another one by --token or PLACEMENT_TOKEN"
    if error.status == 403:
        return f"{url} refuses this to the user of the token: {error.reason} Use a token with another role"
    return str(error)


def get(service: ServiceClient, path: str, **query: str | int) -> Any:
    """Return the JSON of the response to GET `path` with the query; raises `ClientError`."""
    return service.get(f"{path}?{urlencode(query)}" if query else path)


def get_pages(service: ServiceClient, path: str, name: str, **query: str | int) -> Iterator[dict[str, Any]]:
    """Yield the elements of a list, the member `name` of each page; raises `ClientError`."""
    marker: dict[str, str | int] = {}
    while True:
        page = get(service, path, limit=PAGE_SIZE, **query, **marker)
        yield from page[name]
        if not page["links"]:
            return
        # The link may contain the address of the service behind a proxy, so only its marker is used.
        marker = {"marker": page[name][-1]["uuid"]}


def request_path(path: str, query: str, **more: str) -> str:
    """Return a path with the query string of a REQUEST, and further keys."""
    keys = f"&{urlencode(more)}" if more else ""
    return f"{path}?{quote(query, safe=_SAFE)}{keys}"
