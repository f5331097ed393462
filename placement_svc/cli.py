"""The command `placement-svc`."""

import ipaddress
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import click
from alembic.util import CommandError
from sqlalchemy import Engine

from placement_svc import config, demo, server
from placement_svc.app import create_app
from placement_svc.db import schema
from placement_svc.db.engine import connect, shown
from placement_svc.domain.errors import PlacementError
from placement_svc.embedded import EmbeddedError

PORT = 8778


class _Commands(click.Group):
    """Commands whose foreseen failures are one line on standard error and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (
            CommandError,
            config.SettingsError,
            demo.DemoError,
            EmbeddedError,
            PlacementError,
            server.ServerError,
        ) as error:
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
def upgrade(revision: str) -> None:
    """Bring the schema up to REVISION (the newest one if none is named)."""
    with _engine() as engine:
        schema.upgrade(engine, revision)
        click.echo(f"{shown(engine.url)} is at revision {schema.current(engine)}")


@db.command()
@click.argument("revision")
def downgrade(revision: str) -> None:
    """Take the schema back to REVISION; `base` leaves nothing, and all data with it is gone."""
    with _engine() as engine:
        schema.downgrade(engine, revision)
        click.echo(f"{shown(engine.url)} is at revision {schema.current(engine) or 'base'}")


@db.command()
def current() -> None:
    """Show the revision of the schema, and the newest one."""
    with _engine() as engine:
        click.echo(
            f"{shown(engine.url)} is at revision {schema.current(engine) or 'base'} of {schema.newest()}"
        )


if __name__ == "__main__":
    sys.exit(main())
