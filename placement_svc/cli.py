"""The command line interface, `placement-svc`."""

import ipaddress
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click
from alembic.util import CommandError
from sqlalchemy import Engine

from placement_svc import __version__, audit_report, config, demo
from placement_svc.app import access, create_app
from placement_svc.db import audit, schema
from placement_svc.db.engine import Database, connect, redact_url
from placement_svc.domain.errors import PlacementError, SetupError
from placement_svc.http import token_file
from placement_svc.import_export import transfer
from placement_svc.import_export.placement_client import PlacementClientError
from placement_svc.provisioning.database import database_url
from placement_svc.provisioning.embedded import EmbeddedError
from placement_svc.server import serve as server

PORT = 8778

HELP_WIDTH = 80
"""Columns of the text that `placement-svc settings` prints."""

EXPECTED_ERRORS = (
    CommandError,
    config.SettingsError,
    demo.DemoError,
    EmbeddedError,
    PlacementError,
    server.ServerError,
    SetupError,
    PlacementClientError,
    transfer.TransferError,
)
"""Errors that are reported by their message, without a traceback."""


class _Commands(click.Group):
    """A command group that reports an expected error as one line on standard error, with exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EXPECTED_ERRORS as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="placement-svc", message="%(prog)s %(version)s")
def main() -> None:
    """Run and maintain a service that implements the OpenStack Placement API.

    Environment variables configure it: `placement-svc settings` lists them.
    """


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on."
)
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1), help="Worker processes.")
@click.option("--threads", default=4, show_default=True, type=click.IntRange(1), help="Threads in each.")
def serve(host: str, port: int, workers: int, threads: int) -> None:
    """Serve the API with gunicorn until Ctrl-C or SIGTERM.

    Without PLACEMENT_DATABASE_URL, an embedded PostgreSQL is started and its schema is upgraded.
    The schema of a database that this variable names is changed only by `placement-svc db upgrade`.
    `placement-svc settings` lists all settings.
    """
    settings = config.from_environ()
    _check_host(settings, host)
    # Each worker repeats this. Doing it here reports an unusable file before any worker starts.
    access(settings)
    server.serve(create_app, settings, host=host, port=port, workers=workers, threads=threads)


def _check_host(settings: config.Settings, host: str) -> None:
    """Raise `SettingsError` if `noauth` would listen on an address that other machines can reach."""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if settings.auth == "noauth" and not loopback and not settings.allow_insecure:
        raise config.SettingsError(
            f"PLACEMENT_AUTH=noauth trusts every caller, so it listens on loopback only, not on {host}:"
            " set PLACEMENT_ALLOW_INSECURE=1 if every client that can reach this address may do everything"
        )


@main.command("settings")
def show_settings() -> None:
    """List all settings with their defaults.

    A setting is an environment variable. It is read once, when a command starts.
    """
    paragraphs = [
        "Environment variables, read once at startup. An empty variable counts as unset.",
        *(_described(field) for field in fields(config.Settings)),
    ]
    click.echo("\n\n".join(paragraphs))


def _described(field: Field[Any]) -> str:
    """Return the variable, the meaning and the default of a setting, wrapped and indented."""
    about = textwrap.wrap(field.metadata["about"], HELP_WIDTH - 4, break_on_hyphens=False)
    details = [*about, f"Default: {config.default_text(field)}"]
    return "\n".join([config.variable(field.name), *(f"    {line}" for line in details)])


@main.command("demo")
@click.option("--once", is_flag=True, help="Exit after printing the candidates.")
@click.option(
    "--hosts",
    default=demo.HOSTS,
    show_default=True,
    type=click.IntRange(1),
    help="Hosts in the cloud.",
)
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 chooses a free one.",
)
def show_demo(once: bool, hosts: int, port: int) -> None:
    """Serve a small cloud and print some allocation candidates.

    The demo uses a temporary database, which it removes when Ctrl-C stops it. It ignores all settings.
    """
    demo.run(hosts, port, once)


@main.group()
def token() -> None:
    """Manage the tokens of PLACEMENT_AUTH=token.

    The tokens are in the file PLACEMENT_TOKEN_FILE. A running service applies a change to the next request.
    """


def _token_file() -> Path:
    file = config.from_environ().token_file
    if file is None:
        raise config.SettingsError("PLACEMENT_TOKEN_FILE must name the token file")
    return file


@token.command("create")
@click.option("--user", required=True, help="Id of the user that the token authenticates.")
@click.option("--project", required=True, help="Id of the project that the token is for.")
@click.option("--role", "roles", required=True, multiple=True, help="Role of the user; may be repeated.")
def create_token(user: str, project: str, roles: tuple[str, ...]) -> None:
    """Create a token and print it.

    The token is printed only once: the file stores a hash of it.
    """
    click.echo(token_file.add(_token_file(), user, project, roles))


@token.command("list")
def list_tokens() -> None:
    """List id, user, project, roles and creation time of each token."""
    for token_id, record in token_file.read(_token_file()).items():
        columns = (token_id, record.user_id, record.project_id, ",".join(record.roles), record.created_at)
        click.echo("  ".join(columns))


@token.command("revoke")
@click.argument("token_id", metavar="ID")
def revoke_token(token_id: str) -> None:
    """Revoke the token with this ID."""
    token_file.remove(_token_file(), token_id)


@main.group()
def db() -> None:
    """Show or change the database schema revision."""


@contextmanager
def _engine() -> Iterator[Engine]:
    """Yield an engine for the configured database, which may be the embedded one."""
    with database_url(config.from_environ()) as url:
        # An import or a migration may take longer than the statement timeout of requests.
        engine = connect(url, statement_timeout=0)
        try:
            yield engine
        finally:
            engine.dispose()


@db.command()
@click.argument("revision", default="head")
@click.option(
    "--lock-timeout",
    default=schema.LOCK_TIMEOUT,
    show_default=True,
    type=click.IntRange(1),
    help="Seconds to wait for a table lock. Requests queue behind the waiting migration.",
)
@click.option(
    "--statement-timeout",
    default=schema.STATEMENT_TIMEOUT,
    show_default=True,
    type=click.IntRange(1),
    help="Seconds that a single statement may run.",
)
def upgrade(revision: str, lock_timeout: int, statement_timeout: int) -> None:
    """Upgrade the schema to REVISION, by default to the newest one.

    All migrations run in one transaction. A concurrent `db upgrade` waits for this one. A schema that is
    newer than this version of placement-svc is left unchanged.
    """
    with _engine() as engine:
        schema.upgrade(engine, revision, lock_timeout=lock_timeout, statement_timeout=statement_timeout)
        reached = schema.current(engine)
        newer = f", which is newer than {schema.newest()}" if schema.is_newer(reached) else ""
        click.echo(f"{redact_url(engine.url)} is at revision {reached}{newer}")


@db.command()
@click.argument("revision")
def downgrade(revision: str) -> None:
    """Downgrade the schema to REVISION.

    Data that only the newer schema can store is lost. `base` drops all tables and all data.
    """
    with _engine() as engine:
        schema.downgrade(engine, revision)
        click.echo(f"{redact_url(engine.url)} is at revision {schema.current(engine) or 'base'}")


@db.command()
def current() -> None:
    """Show the schema's revision and the newest revision."""
    with _engine() as engine:
        click.echo(
            f"{redact_url(engine.url)} is at revision {schema.current(engine) or 'base'} of {schema.newest()}"
        )


@contextmanager
def _database() -> Iterator[Database]:
    """Yield the configured database; like `serve`, upgrade the schema of the embedded one first."""
    with _engine() as engine:
        if config.from_environ().database_url is None:
            schema.upgrade(engine)
        yield Database(engine)


@main.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
def export_data(file: str) -> None:
    """Export all data to FILE, one JSON record per line.

    A FILE of - is standard output. A FILE whose name ends in .gz is compressed.
    """
    with _database() as database:
        lines = transfer.export_file(database, file)
    click.echo(f"Exported {lines:,} records", err=True)


@main.command("import")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), required=False)
@click.option("--from", "url", help="URL of a Placement service to import from.")
@click.option("--token", envvar="OS_TOKEN", show_envvar=True, help="Token for that service.")
@click.option(
    "--allow-overcommitted",
    is_flag=True,
    help="Accept allocations that exceed the capacity or violate the units of their inventory.",
)
def import_data(file: str | None, url: str | None, token: str | None, allow_overcommitted: bool) -> None:
    """Import data from FILE or another Placement service.

    The import adds all records to the database, or none if any record is invalid. FILE has the format that
    `placement-svc export` writes. A FILE of - is standard input. A FILE whose name ends in .gz is
    decompressed.
    """
    if (file is None) == (url is None):
        raise click.UsageError("Name either a FILE or a service (--from).")
    if url is not None and not token:
        raise click.UsageError("A service needs a token: give one by --token or OS_TOKEN.")
    with _database() as database:
        if url is not None:
            imported = transfer.import_service(database, url, str(token))
        else:
            imported = transfer.import_file(database, str(file), allow_overcommitted)
    for problem in imported.overcommitted:
        click.echo(f"Overcommitted: {problem.message}", err=True)
    click.echo(f"Imported {imported.providers:,} resource providers and {imported.consumers:,} consumers")


@main.command("audit")
@click.option("--fix", is_flag=True, help="Repair what can be repaired without loss of data.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def audit_data(context: click.Context, fix: bool, as_json: bool) -> None:
    """Check the database for inconsistent data.

    The exit status is 1 if any is found. With --fix, it is 1 if any is left. Harmless rows that nothing
    refers to are a notice, and do not count.
    """
    with _database() as database:
        findings = database.write(audit.fix) if fix else database.read(audit.find)
    click.echo(audit_report.as_json(findings) if as_json else audit_report.as_text(findings, fix=fix))
    if any(map(audit_report.is_wrong, findings)):
        context.exit(1)


if __name__ == "__main__":
    sys.exit(main())
