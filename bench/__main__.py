"""The command `python -m bench`."""

import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.status import Status

from bench import clouds, fixed, reads, report, schedule
from bench.checking import ServicesDiffer, check_candidates
from bench.claims import MAX_HOSTS, ClaimsResult, measure_claims
from bench.environment import Environment, serve_cloud
from bench.fixed import FIXED, FixedResult, measure_fixed
from bench.in_process import InProcessService, in_process_service
from bench.measuring import Result, candidates_path, measure
from bench.reads import ReadResult
from bench.scenarios import LIMITS, NESTED, SCENARIOS, Request, Scenario
from bench.schedule import CLOUDS, SCHEDULE, ScheduleResult, measure_batches, measure_schedule
from bench.services import ServiceError
from bench.storm import STORM, StormResult, measure_storm
from placement_svc.provisioning import embedded

CLAIMS = "claims"
NAMES = [*(scenario.name for scenario in SCENARIOS), *reads.NAMES, CLAIMS, STORM, FIXED, SCHEDULE]
FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@dataclass(frozen=True)
class Benchmark:
    """The settings of a run, and the console for its progress.

    If `reference_python` is None, only this service is measured. `timeout` is in seconds.
    """

    server_url: str
    reference_python: Path | None
    timeout: float
    console: Console
    status: Status

    def requests(self, scenarios: Sequence[Scenario], hosts: int) -> Iterator[Result]:
        """Yield the result of each request of the scenarios, for clouds with this number of hosts.

        Consecutive scenarios with the same cloud share it, so that it is loaded once.
        """
        for (cloud, count, with_reference), group in groupby(
            scenarios, key=lambda s: (s.cloud, s.hosts(hosts), s.with_reference)
        ):
            self.status.update(f"{cloud.__name__}: loading {count:,} hosts")
            python = self.reference_python if with_reference else None
            with (
                serve_cloud(self.server_url, cloud(count), python) as environment,
                in_process_service(environment.url) as in_process,
            ):
                for scenario in group:
                    yield from self._requests(scenario, count, environment, in_process)

    def _requests(
        self, scenario: Scenario, hosts: int, environment: Environment, in_process: InProcessService
    ) -> Iterator[Result]:
        if environment.reference is not None:
            self.status.update(f"{scenario.name}: comparing responses")
            first_and_last = clouds.host_names(hosts)[:: max(1, hosts - 1)]
            check_candidates(
                environment.ours.service,
                environment.reference.service,
                scenario.requests[0].query,
                first_and_last,
            )
        for request in scenario.requests:
            for limit in LIMITS:
                self.status.update(f"{scenario.name}: {request.name}, limit {limit}, {hosts:,} hosts")
                path = candidates_path(request.query, limit)
                measurements = measure(environment.servers, path, self.timeout, scenario.version)
                result = Result(
                    scenario=scenario.name,
                    request=request.name,
                    limit=limit,
                    hosts=hosts,
                    statements=in_process.statements(path, scenario.version),
                    ours=measurements[0],
                    reference=measurements[1] if len(measurements) > 1 else None,
                    floor=in_process.floor(path) if _has_floor(request, limit) else None,
                    compared_with=request.compared_with,
                )
                self.print_line(report.line(result))
                yield result

    def reads(self, names: Sequence[str], hosts: int) -> Iterator[ReadResult]:
        """Yield the results of those reads by extensions that have one of these names."""
        if reads.BULK in names:
            self.status.update(f"{reads.BULK}: loading {hosts:,} hosts")
            with serve_cloud(
                self.server_url, clouds.flat_with_instances(hosts), self.reference_python
            ) as environment:
                self.status.update(reads.BULK)
                reference = environment.reference.service if environment.reference else None
                yield from self._printed(reads.measure_bulk(environment.ours.service, reference, hosts))
        for comparison in reads.COMPARISONS:
            if comparison.name in names:
                self.status.update(f"{comparison.name}: loading {hosts:,} hosts")
                with serve_cloud(self.server_url, comparison.cloud(hosts), None) as environment:
                    self.status.update(comparison.name)
                    service = environment.ours.service
                    yield from self._printed(reads.measure_comparison(comparison, service, hosts))

    def _printed(self, results: Iterable[ReadResult]) -> Iterator[ReadResult]:
        for result in results:
            self.print_line(report.read_line(result))
            yield result

    def claims(self, hosts: int) -> Iterator[ClaimsResult]:
        """Yield the results of claims by concurrent clients, on all hosts and on one host."""
        count = min(hosts, MAX_HOSTS)
        self.status.update(f"{CLAIMS}: loading {count:,} hosts")
        with serve_cloud(self.server_url, clouds.unlimited(count), self.reference_python) as environment:
            self.status.update(CLAIMS)
            for result in measure_claims(environment.servers, count):
                self.print_line(report.claims_line(result))
                yield result

    def storm(self, hosts: int) -> Iterator[StormResult]:
        """Yield the times of searches before, during and after many claims."""
        self.status.update(f"{STORM}: loading {hosts:,} hosts")
        with serve_cloud(self.server_url, clouds.unlimited(hosts), self.reference_python) as environment:
            self.status.update(STORM)
            for result in measure_storm(environment.servers, hosts):
                self.print_line(report.storm_line(result))
                yield result

    def fixed(self, hosts: int) -> Iterator[FixedResult]:
        """Yield what a search of limit 10 takes, and what a request without any search takes."""
        for name, cloud in fixed.CLOUDS.items():
            self.status.update(f"{FIXED}: loading {hosts:,} hosts, {name}")
            with serve_cloud(self.server_url, cloud(hosts), self.reference_python) as environment:
                self.status.update(f"{FIXED}, {name}")
                for result in measure_fixed(environment, name, hosts):
                    self.print_line(report.fixed_line(result))
                    yield result

    def schedule(self, hosts: int) -> Iterator[ScheduleResult]:
        """Yield the results of schedulers that place servers in each of `CLOUDS`."""
        count = min(hosts, schedule.MAX_HOSTS)
        for name, cloud in CLOUDS.items():
            self.status.update(f"{SCHEDULE}: loading {count:,} hosts, {name}")
            with serve_cloud(self.server_url, cloud(count), self.reference_python) as environment:
                self.status.update(f"{SCHEDULE}, {name}")
                for result in measure_schedule(environment.servers, name):
                    self.print_line(report.schedule_line(result))
                    yield result
                for servers, milliseconds in measure_batches(environment.ours.service, name):
                    self.print_line(
                        f"{SCHEDULE}, {name}: {servers} servers in one call {milliseconds:.1f} ms"
                    )

    def print_line(self, line: str) -> None:
        """Print a line above the status line."""
        self.console.print(line, highlight=False, soft_wrap=True)


def _has_floor(request: Request, limit: int) -> bool:
    return request is NESTED and limit == max(LIMITS)


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
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in names]
    progress = Console(stderr=True)
    claims: list[ClaimsResult] = []
    storms: list[StormResult] = []
    fixed_costs: list[FixedResult] = []
    scheduled: list[ScheduleResult] = []
    plotted: list[Result] = []
    try:
        with progress.status("Starting PostgreSQL") as status, _server(database_url) as server_url:
            python = None if no_reference else reference_python
            benchmark = Benchmark(server_url, python, timeout, progress, status)
            results = list(benchmark.requests(scenarios, hosts))
            read = list(benchmark.reads(names, hosts))
            if CLAIMS in names:
                claims = list(benchmark.claims(hosts))
            if STORM in names:
                storms = list(benchmark.storm(hosts))
            if FIXED in names:
                fixed_costs = list(benchmark.fixed(hosts))
            if SCHEDULE in names:
                scheduled = list(benchmark.schedule(hosts))
            if plot_file:
                alone = Benchmark(server_url, None, timeout, progress, status)
                unbounded = [scenario for scenario in scenarios if scenario.max_hosts is None]
                plotted = [result for size in sizes for result in alone.requests(unbounded, size)]
    except (ServicesDiffer, ServiceError) as error:
        raise click.ClickException(str(error)) from error
    _print_report(results, read, claims, storms, fixed_costs, scheduled)
    if json_file:
        report.write_json(json_file, [*results, *read, *claims, *storms, *fixed_costs, *scheduled, *plotted])
    if plot_file:
        draw(plot_file, plotted)


def _print_report(
    results: Sequence[Result],
    read: Sequence[ReadResult],
    claims: Sequence[ClaimsResult],
    storms: Sequence[StormResult],
    fixed_costs: Sequence[FixedResult],
    scheduled: Sequence[ScheduleResult],
) -> None:
    console = report.console()
    if results:
        console.print(report.table(results))
    if any(result.compared_with for result in results):
        console.print(report.comparison_table(results))
    for line in report.floor_lines(results):
        console.print(line, soft_wrap=True)
    if read:
        console.print(report.reads_table(read))
    if claims:
        console.print(report.claims_table(claims))
    if storms:
        console.print(report.storm_table(storms))
    if fixed_costs:
        console.print(report.fixed_table(fixed_costs))
    if scheduled:
        console.print(report.schedule_table(scheduled))


if __name__ == "__main__":
    main()
