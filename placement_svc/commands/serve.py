"""The command `serve`."""

import ipaddress
import secrets
from dataclasses import replace
from functools import partial

import click

from placement_svc import config
from placement_svc.app import create_app
from placement_svc.commands import PORT
from placement_svc.configuration_files import ConfigurationFiles
from placement_svc.server import serve as server

MIN_POOL_SIZE = 2
"""Connections of a claim that searches while it holds locks, as each one into a placement group does."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 chooses a free one, which the startup report names.",
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
    _check_pool_size(settings)
    if settings.auth == "noauth" and config.is_host(host):
        settings = replace(settings, allowed_hosts=(*settings.allowed_hosts, host))
    if settings.console_secret is None:
        # The workers inherit it: each of them accepts the cookies of the others.
        settings = replace(settings, console_secret=secrets.token_urlsafe())
    files = ConfigurationFiles(settings)
    load = partial(create_app, files=files)
    server.serve(load, settings, files, host=host, port=port, workers=workers, threads=threads)


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


def _check_pool_size(settings: config.Settings) -> None:
    """Raise `SettingsError` if a worker would have too few connections for some requests."""
    if settings.pool_size < MIN_POOL_SIZE:
        raise config.SettingsError(
            f"PLACEMENT_POOL_SIZE must be at least {MIN_POOL_SIZE}: some claims need two database connections"
        )
