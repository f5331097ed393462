"""The command `demo`."""

import click

from placement_svc.commands import PORT
from placement_svc.demo.cloud import HOSTS
from placement_svc.demo.run import run

MAX_HOSTS = 1_000_000
"""With 2,147,464 hosts, the shared storage would exceed the largest amount that an inventory can have."""


@click.command("demo")
@click.option("--once", is_flag=True, help="Exit after printing the candidates.")
@click.option(
    "--hosts",
    default=HOSTS,
    show_default=True,
    type=click.IntRange(0, MAX_HOSTS),
    help="Hosts in racks, besides the two hosts of the candidates.",
)
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 chooses a free one.",
)
def show_demo(once: bool, hosts: int, port: int) -> None:
    """Serve a cloud, and print candidates and commands to try.

    The demo uses a temporary database, which it removes when Ctrl-C stops it. It ignores all settings.
    """
    run(hosts, port, once)
