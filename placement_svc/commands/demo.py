"""The command `demo`."""

import click

from placement_svc import demo
from placement_svc.commands.serve import PORT


@click.command("demo")
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
