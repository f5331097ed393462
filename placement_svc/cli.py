"""The command `placement-svc`."""

import ipaddress
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from alembic.util import CommandError
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine

from placement_svc import config, demo
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

FORESEEN = (
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
"""Failures that are told by their message alone."""


class _Commands(click.Group):
    """Commands whose foreseen failures are one line on standard error and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FORESEEN as error:
            raise click.ClickException(str(error)) from error


def _settings_help() -> str:
    lines = (f"  {config.variable(f.name)}\n      {f.metadata['about']}" for f in fields(config.Settings))
    return "\b\nSettings, as environment variables:\n" + "\n".join(lines)


@click.group(cls=_Commands, epilog=_settings_help())
def main() -> None:
    """Answer which providers can supply which resources, over the OpenStack Placement API."""


@main.command(epilog=_settings_help())
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on."
)
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1), help="Worker processes.")
@click.option("--threads", default=4, show_default=True, type=click.IntRange(1), help="Threads in each.")
def serve(host: str, port: int, workers: int, threads: int) -> None:
    """Serve the API with gunicorn, until Ctrl-C or SIGTERM.

    Without PLACEMENT_DATABASE_URL an embedded PostgreSQL is started and its schema brought up to
    date. The schema of a database named by that variable is only ever changed by `db upgrade`.
    """
    settings = config.from_environ()
    _check_host(settings, host)
    # Each worker does so again. What cannot be used is told here, before there are any.
    access(settings)
    server.serve(create_app, settings, host, port, workers, threads)


def _check_host(settings: config.Settings, host: str) -> None:
    """Refuse to let anybody in from outside who is believed whatever they say they are."""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if settings.auth == "noauth" and not loopback and not settings.allow_insecure:
        raise config.SettingsError(
            f"PLACEMENT_AUTH=noauth believes every caller, so it listens on loopback only, not on {host}:"
            " set PLACEMENT_ALLOW_INSECURE=1 if everybody who can reach this address may do everything"
        )


@main.command("demo")
@click.option("--once", is_flag=True, help="Exit when the answer is shown.")
@click.option(
    "--hosts", default=demo.HOSTS, show_default=True, type=click.IntRange(1), help="Hosts of the cloud."
)
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0: any free one.",
)
def show_demo(once: bool, hosts: int, port: int) -> None:
    """Serve a small cloud and show who can supply a request to it.

    It has a database of its own, which is gone at the end: Ctrl-C. The settings do not matter to it.
    """
    demo.run(hosts, port, once)


@main.group()
def token() -> None:
    """Look after the tokens of PLACEMENT_AUTH=token, in the file PLACEMENT_TOKEN_FILE.

    A running service knows of a change with the next request.
    """


def _token_file() -> Path:
    file = config.from_environ().token_file
    if file is None:
        raise config.SettingsError("PLACEMENT_TOKEN_FILE must say where tokens are kept")
    return file


@token.command("create")
@click.option("--user", required=True, help="Id of the user who will use it.")
@click.option("--project", required=True, help="Id of the project that it is for.")
@click.option("--role", "roles", required=True, multiple=True, help="A role that it gives; may be repeated.")
def create_token(user: str, project: str, roles: tuple[str, ...]) -> None:
    """Make a token and show it, once: only its hash is kept."""
    click.echo(token_file.add(_token_file(), user, project, roles))


@token.command("list")
def list_tokens() -> None:
    """Show the tokens: id, user, project, roles, and when it was created."""
    for token_id, known in token_file.read(_token_file()).items():
        shown = (token_id, known.user_id, known.project_id, ",".join(known.roles), known.created_at)
        click.echo("  ".join(shown))


@token.command("revoke")
@click.argument("token_id", metavar="ID")
def revoke_token(token_id: str) -> None:
    """Let the token ID count no more."""
    token_file.remove(_token_file(), token_id)


@main.group()
def db() -> None:
    """Look after the schema of the database."""


@contextmanager
def _engine() -> Iterator[Engine]:
    """Give an engine of the database that the settings name, the embedded one included."""
    with database_url(config.from_environ()) as url:
        # Moving a cloud takes longer than a request may.
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
    help="Seconds to wait for a lock on a table. Requests wait behind it.",
)
@click.option(
    "--statement-timeout",
    default=schema.STATEMENT_TIMEOUT,
    show_default=True,
    type=click.IntRange(1),
    help="Seconds that one statement may take.",
)
def upgrade(revision: str, lock_timeout: int, statement_timeout: int) -> None:
    """Bring the schema up to REVISION (the newest one if none is named).

    It happens as a whole or not at all. If another `db upgrade` is at it, this one waits. A schema
    that is newer than this version knows stays as it is.
    """
    with _engine() as engine:
        schema.upgrade(engine, revision, lock_timeout, statement_timeout)
        found = schema.current(engine)
        newer = "" if schema.knows(found) else f", which is newer than {schema.newest()}"
        click.echo(f"{redact_url(engine.url)} is at revision {found}{newer}")


@db.command()
@click.argument("revision")
def downgrade(revision: str) -> None:
    """Take the schema back to REVISION; `base` leaves nothing, and all data with it is gone."""
    with _engine() as engine:
        schema.downgrade(engine, revision)
        click.echo(f"{redact_url(engine.url)} is at revision {schema.current(engine) or 'base'}")


@db.command()
def current() -> None:
    """Show the revision of the schema, and the newest one."""
    with _engine() as engine:
        click.echo(
            f"{redact_url(engine.url)} is at revision {schema.current(engine) or 'base'} of {schema.newest()}"
        )


@contextmanager
def _database() -> Iterator[Database]:
    """Give the database that the settings name; the embedded one gets its schema, as `serve` does it."""
    with _engine() as engine:
        if config.from_environ().database_url is None:
            schema.upgrade(engine)
        yield Database(engine)


@main.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
def export_data(file: str) -> None:
    """Write all resource providers and all that consumers hold to FILE, one record a line.

    FILE is - for standard output; a name that ends in .gz is compressed.
    """
    with _database() as database:
        lines = transfer.export_file(database, file)
    click.echo(f"Exported {lines:,} records", err=True)


@main.command("import")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), required=False)
@click.option("--from", "url", help="URL of a running Placement service, which is read instead of a file.")
@click.option("--token", envvar="OS_TOKEN", show_envvar=True, help="Token for that service.")
@click.option(
    "--allow-overcommitted",
    is_flag=True,
    help="Let consumers hold more than inventories grant by now, as a service does whose inventories shrank.",
)
def import_data(file: str | None, url: str | None, token: str | None, allow_overcommitted: bool) -> None:
    """Bring in what FILE says, as `export` writes it, or what another Placement service has.

    It adds to what is there: all of it, or nothing if anything is wrong. FILE is - for standard
    input; what has a name that ends in .gz is uncompressed.
    """
    if (file is None) == (url is None):
        raise click.UsageError("Name either a FILE or a service, by --from.")
    if url is not None and not token:
        raise click.UsageError("A service wants a token: give one by --token or OS_TOKEN.")
    with _database() as database:
        if url is not None:
            imported = transfer.import_service(database, url, str(token))
        else:
            imported = transfer.import_file(database, str(file), allow_overcommitted)
    for problem in imported.overcommitted:
        click.echo(f"Overcommitted: {problem.message}", err=True)
    click.echo(f"Imported {imported.providers:,} resource providers and {imported.consumers:,} consumers")


@main.command("audit")
@click.option("--fix", is_flag=True, help="Put right what can be put right without loss.")
@click.pass_context
def audit_data(context: click.Context, fix: bool) -> None:
    """Look for what the database should not hold.

    The exit status is 1 if there is such a thing; with --fix, if one is left.
    """
    with _database() as database:
        findings = database.write(audit.fix) if fix else database.read(audit.find)
    console = Console(highlight=False, markup=False)
    for finding in findings:
        console.print(f"{finding}:", _drawn(finding), sep="\n")
    fixed = [str(finding) for finding in findings if finding.fixed]
    left = [str(finding) for finding in findings if not finding.fixed]
    if fixed:
        click.echo(f"Fixed: {', '.join(fixed)}")
    if left:
        click.echo(f"{'Left' if fix else 'Wrong'}: {', '.join(left)}")
        context.exit(1)
    if not findings:
        click.echo("Nothing is wrong")


def _drawn(finding: audit.AuditFinding) -> Table:
    table = Table("what", "is", "should be")
    for row in finding.examples:
        table.add_row(row.subject, row.stored, row.expected)
    more = finding.count - len(finding.examples)
    if more:
        table.add_row(f"and {more:,} more", "", "")
    return table


if __name__ == "__main__":
    sys.exit(main())
