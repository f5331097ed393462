"""The demo from its start to its end."""

import time

from rich.console import Console

from placement_svc import standard_output
from placement_svc.client.service_client import ClientError
from placement_svc.db.connections.engine import Database, connect
from placement_svc.db.connections.interrupts import interruptible
from placement_svc.demo import cloud, output
from placement_svc.demo.service import (
    DemoError,
    DemoService,
    database,
    free_port,
    serving,
)
from placement_svc.domain.records import ImportResult
from placement_svc.domain.wording import counted
from placement_svc.provisioning.leftovers import command_directory, remove_leftovers
from placement_svc.provisioning.signals import stopped_by_signals


def run(hosts: int, port: int, once: bool) -> None:
    """Serve topology P2 and `hosts` hosts in racks on `port` (0: any free port); print candidates.

    First removes what killed commands have left. Unless `once` is set, continues to serve until Ctrl-C or
    SIGTERM. Ignores all settings, so that no existing database is read or changed. Raises `DemoError` if the
    port is in use or the service fails, and `KeyboardInterrupt` if it is stopped before it has printed the
    candidates.
    """
    remove_leftovers()
    port = free_port(port)
    out = Console(highlight=False)
    with stopped_by_signals(), command_directory("demo") as directory:
        # If this process is root, PostgreSQL runs as another user, which must be able to reach its data.
        directory.chmod(0o711)
        with database(directory / "data") as url:
            started = time.monotonic()
            loaded = _load(url, hosts)
            seconds = time.monotonic() - started
            with serving(url, port, directory) as service:
                with standard_output.reported():
                    out.print(
                        f"Loaded {loaded.providers:,} resource providers and {loaded.consumers:,} consumers"
                        f" in {seconds:.1f} s: {counted(hosts, 'host')} in racks, and these providers:\n",
                        soft_wrap=True,
                    )
                _show(out, service, hosts=hosts, once=once)


def _load(url: str, hosts: int) -> ImportResult:
    """Store the cloud in the database; an animation on a terminal shows that it takes time."""
    engine = connect(url, statement_timeout=0)
    try:
        with Console(stderr=True).status("Loading"), interruptible(engine):
            return cloud.load(Database(engine), cloud.records(hosts))
    finally:
        engine.dispose()


def _show(out: Console, service: DemoService, *, hosts: int, once: bool) -> None:
    """Print candidates and, unless `once` is set, commands to try; then wait for Ctrl-C."""
    try:
        with standard_output.reported():
            output.print_trees(out)
            output.print_candidates(out, service.client)
    except ClientError as error:
        raise DemoError(str(error)) from error
    if once:
        return
    with standard_output.reported():
        output.print_commands(out, service.client.url, hosts)
    try:
        # Inside the try block, because a caller may send the signal as soon as it reads this line.
        with standard_output.reported():
            out.print(f"\nServing at {service.client.url} until Ctrl-C.")
        service.process.wait()
    except KeyboardInterrupt:
        return
    raise service.failure()
