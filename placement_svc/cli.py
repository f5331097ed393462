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
from sqlalchemy import Engine, make_url

from placement_svc import config, demo, server
from placement_svc.app import access, create_app
from placement_svc.db import schema
from placement_svc.db.engine import connect
from placement_svc.domain.errors import PlacementError, SetupError
from placement_svc.embedded import EmbeddedError
from placement_svc.http import token_file

PORT = 8778

FORESEEN = (CommandError, config.SettingsError, demo.DemoError, EmbeddedError, PlacementError, SetupError)
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
    settings = server.with_database(settings)
    server.serve(lambda: create_app(settings), host, port, workers, threads)


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
    with server.database_url(config.from_environ()) as url:
        engine = connect(url)
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
        click.echo(f"{_name(engine)} is at revision {found}{newer}")


@db.command()
@click.argument("revision")
def downgrade(revision: str) -> None:
    """Take the schema back to REVISION; `base` leaves nothing, and all data with it is gone."""
    with _engine() as engine:
        schema.downgrade(engine, revision)
        click.echo(f"{_name(engine)} is at revision {schema.current(engine) or 'base'}")


@db.command()
def current() -> None:
    """Show the revision of the schema, and the newest one."""
    with _engine() as engine:
        click.echo(f"{_name(engine)} is at revision {schema.current(engine) or 'base'} of {schema.newest()}")


def _name(engine: Engine) -> str:
    return make_url(engine.url).set(password=None).render_as_string()


if __name__ == "__main__":
    sys.exit(main())
