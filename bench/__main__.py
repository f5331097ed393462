"""The command `python -m bench`."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from bench import report
from bench.benchmark import KINDS, REQUESTS, Benchmark
from bench.checking import ServicesDiffer
from bench.measuring import Result
from bench.scenarios import SCENARIOS
from bench.services import ServiceError
from placement_svc.provisioning import embedded

NAMES = [name for kind in KINDS for name in kind.scenarios]
FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@contextmanager
def _server(database_url: str | None) -> Iterator[str]:
    """Yield the URL of a PostgreSQL server: the given one, or a temporary embedded one."""
    if database_url is not None:
        yield database_url
        return
    with TemporaryDirectory(prefix="placement-bench-") as directory:
        # If this process is root, PostgreSQL runs as another user, which must be able to enter the directory.
        Path(directory).chmod(0o711)
        with embedded.start(Path(directory) / "data") as running:
            yield running.url


def _sizes(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    try:
        return sorted({int(size) for size in value.split(",")})
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers, such as 1000,3000") from None


@click.command()
@click.option(
    "--hosts", default=1000, show_default=True, type=click.IntRange(1), help="Number of hosts in each cloud."
)
@click.option(
    "--scenario", "names", multiple=True, type=click.Choice(NAMES), help="Run only this scenario; repeatable."
)
@click.option("--no-reference", is_flag=True, help="Measure only this service.")
@click.option(
    "--reference-python",
    default=sys.executable,
    envvar="BENCH_REFERENCE_PYTHON",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Python of the environment that has OpenStack Placement installed.  [default: this Python]",
)
@click.option(
    "--database-url",
    envvar="PLACEMENT_DATABASE_URL",
    show_envvar=True,
    help="URL of a PostgreSQL server, with a user that may create databases.  [default: an embedded server]",
)
@click.option(
    "--give-up",
    "timeout",
    default=120.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Seconds to wait for a response.",
)
@click.option("--json", "json_file", type=FILE, help="Write the results to this file.")
@click.option(
    "--plot",
    "plot_file",
    type=FILE,
    help="Plot the times of this service against the number of hosts, as PNG.",
)
@click.option(
    "--sizes",
    default="1000,3000,10000",
    show_default=True,
    callback=_sizes,
    help="Numbers of hosts to plot.",
)
def main(
    hosts: int,
    names: Sequence[str],
    no_reference: bool,
    reference_python: Path,
    database_url: str | None,
    timeout: float,
    json_file: Path | None,
    plot_file: Path | None,
    sizes: Sequence[int],
) -> None:
    """Compare the performance of this service with that of OpenStack Placement.

    Each service has two workers and a database on the same PostgreSQL server. Both have the same cloud
    and receive the same requests.
    """
    # SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that all processes and databases are removed.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if plot_file:
        # Only the extra `bench` installs matplotlib. Importing it now makes a missing one an immediate error.
        from bench.plot import draw
    names = names or NAMES
    kinds = [kind for kind in KINDS if not set(kind.scenarios).isdisjoint(names)]
    progress = Console(stderr=True)
    plotted: list[Result] = []
    try:
        with progress.status("Starting PostgreSQL") as status, _server(database_url) as server_url:
            python = None if no_reference else reference_python
            benchmark = Benchmark(server_url, python, timeout, progress, status)
            results = [list(benchmark.run(kind, names, hosts)) for kind in kinds]
            if plot_file:
                alone = Benchmark(server_url, None, timeout, progress, status)
                unbounded = {each.name for each in SCENARIOS if each.max_hosts is None}.intersection(names)
                plotted = [result for size in sizes for result in alone.run(REQUESTS, unbounded, size)]
    except (ServicesDiffer, ServiceError) as error:
        raise click.ClickException(str(error)) from error
    console = report.console()
    for kind, of_kind in zip(kinds, results, strict=True):
        console.print(kind.report(of_kind))
    if json_file:
        report.write_json(json_file, [*chain.from_iterable(results), *plotted])
    if plot_file:
        draw(plot_file, plotted)


if __name__ == "__main__":
    main()
