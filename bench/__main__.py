"""The command `python -m bench`."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.status import Status

from bench import clouds, report
from bench.checking import Difference, check_candidates
from bench.claims import MOST_HOSTS, ClaimsResult, measure_claims
from bench.environment import Stage, serving
from bench.in_process import Inside, inside
from bench.measuring import Result, candidates_path, measure
from bench.scenarios import LIMITS, NESTED, SCENARIOS, Request, Scenario
from bench.services import ServiceError
from placement_svc.provisioning import embedded

CLAIMS = "claims"
NAMES = [*(scenario.name for scenario in SCENARIOS), CLAIMS]
FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@dataclass(frozen=True)
class Bench:
    """Where and how to measure, and where to show how it goes.

    Without `reference_python` this service is measured alone.
    """

    server_url: str
    reference_python: Path | None
    give_up: float
    console: Console
    status: Status

    def requests(self, scenarios: Sequence[Scenario], hosts: int) -> Iterator[Result]:
        """Yield the result of each request of some scenarios, for clouds of so many hosts.

        Scenarios that follow one another and have the same cloud share it.
        """
        for (cloud, count, with_reference), group in groupby(
            scenarios, key=lambda s: (s.cloud, s.hosts(hosts), s.with_reference)
        ):
            self.status.update(f"{cloud.__name__}: loading {count:,} hosts")
            python = self.reference_python if with_reference else None
            with serving(self.server_url, cloud(count), python) as stage, inside(stage.url) as app:
                for scenario in group:
                    yield from self._requests(scenario, count, stage, app)

    def _requests(self, scenario: Scenario, hosts: int, stage: Stage, app: Inside) -> Iterator[Result]:
        if stage.reference is not None:
            self.status.update(f"{scenario.name}: comparing answers")
            ends = clouds.host_names(hosts)[:: max(1, hosts - 1)]
            check_candidates(stage.ours.service, stage.reference.service, scenario.requests[0].query, ends)
        for request in scenario.requests:
            for limit in LIMITS:
                self.status.update(f"{scenario.name}: {request.name}, limit {limit}, {hosts:,} hosts")
                path = candidates_path(request.query, limit)
                answers = measure(stage.servers, path, self.give_up)
                result = Result(
                    scenario=scenario.name,
                    request=request.name,
                    limit=limit,
                    hosts=hosts,
                    statements=app.statements(path),
                    ours=answers[0],
                    reference=answers[1] if len(answers) > 1 else None,
                    floor=app.floor(path) if _has_floor(request, limit) else None,
                )
                self.say(report.line(result))
                yield result

    def claims(self, hosts: int) -> Iterator[ClaimsResult]:
        """Yield the result of claims by more and more clients, spread over the hosts and on one of them."""
        count = min(hosts, MOST_HOSTS)
        self.status.update(f"{CLAIMS}: loading {count:,} hosts")
        with serving(self.server_url, clouds.endless(count), self.reference_python) as stage:
            self.status.update(CLAIMS)
            for result in measure_claims(stage.servers, count):
                self.say(report.claims_line(result))
                yield result

    def say(self, line: str) -> None:
        """Show a line that stays."""
        self.console.print(line, highlight=False, soft_wrap=True)


def _has_floor(request: Request, limit: int) -> bool:
    return request is NESTED and limit == max(LIMITS)


@contextmanager
def _server(database_url: str | None) -> Iterator[str]:
    """Give the URL of a PostgreSQL: the one that is named, or one that is gone at the end."""
    if database_url is not None:
        yield database_url
        return
    with TemporaryDirectory(prefix="placement-bench-") as directory:
        # When this is root, PostgreSQL runs as another user, who has to get through.
        Path(directory).chmod(0o711)
        with embedded.start(Path(directory) / "data") as running:
            yield running.url


def _sizes(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    try:
        return sorted({int(size) for size in value.split(",")})
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers, such as 1000,3000") from None


@click.command()
@click.option("--hosts", default=1000, show_default=True, type=click.IntRange(1), help="Hosts of each cloud.")
@click.option("--scenario", "names", multiple=True, type=click.Choice(NAMES), help="Only this; repeatable.")
@click.option("--no-reference", is_flag=True, help="Measure this service alone.")
@click.option(
    "--reference-python",
    default=sys.executable,
    envvar="BENCH_REFERENCE_PYTHON",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Python of the environment that has OpenStack Placement.  [default: this one]",
)
@click.option(
    "--database-url",
    envvar="PLACEMENT_DATABASE_URL",
    show_envvar=True,
    help="PostgreSQL whose user may create databases.  [default: an embedded one]",
)
@click.option(
    "--give-up",
    default=120.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Seconds after which an answer is not waited for any longer.",
)
@click.option("--json", "json_file", type=FILE, help="Write the results there.")
@click.option("--plot", "plot_file", type=FILE, help="Draw our time over the size of the cloud, as PNG.")
@click.option(
    "--sizes",
    default="1000,3000,10000",
    show_default=True,
    callback=_sizes,
    help="Numbers of hosts to draw.",
)
def main(
    hosts: int,
    names: Sequence[str],
    no_reference: bool,
    reference_python: Path,
    database_url: str | None,
    give_up: float,
    json_file: Path | None,
    plot_file: Path | None,
    sizes: Sequence[int],
) -> None:
    """Measure this service and OpenStack Placement side by side.

    Both get the same clouds and the same requests in turn, on one PostgreSQL, with two workers each.
    """
    # What ends it ends it as Ctrl-C does, so that all it has started is stopped.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if plot_file:
        # What is not installed should not be noticed at the end. It belongs to the extra `bench`.
        from bench.plot import draw
    names = names or NAMES
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in names]
    progress = Console(stderr=True)
    claims: list[ClaimsResult] = []
    drawn: list[Result] = []
    try:
        with progress.status("Starting PostgreSQL") as status, _server(database_url) as server_url:
            python = None if no_reference else reference_python
            bench = Bench(server_url, python, give_up, progress, status)
            results = list(bench.requests(scenarios, hosts))
            if CLAIMS in names:
                claims = list(bench.claims(hosts))
            if plot_file:
                alone = Bench(server_url, None, give_up, progress, status)
                growing = [scenario for scenario in scenarios if scenario.most_hosts is None]
                drawn = [result for size in sizes for result in alone.requests(growing, size)]
    except (Difference, ServiceError) as error:
        raise click.ClickException(str(error)) from error
    _show(results, claims)
    if json_file:
        report.write_json(json_file, [*results, *claims, *drawn])
    if plot_file:
        draw(plot_file, drawn)


def _show(results: Sequence[Result], claims: Sequence[ClaimsResult]) -> None:
    out = report.console()
    if results:
        out.print(report.table(results))
    for line in report.floor_lines(results):
        out.print(line, soft_wrap=True)
    if claims:
        out.print(report.claims_table(claims))


if __name__ == "__main__":
    main()
