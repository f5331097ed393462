"""The command `python -m bench`."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.status import Status

from bench import report
from bench.checking import Difference, check_candidates
from bench.inside import Floor, Inside, inside
from bench.measuring import Result, candidates_path, measure
from bench.scenarios import LIMITS, NESTED, SCENARIOS, Request, Scenario
from bench.services import ServiceError
from bench.stage import Stage, serving
from placement_svc import embedded

NAMES = [scenario.name for scenario in SCENARIOS]


@dataclass(frozen=True)
class Bench:
    """Where and how to measure, and where to show how it goes."""

    server_url: str
    reference_python: Path | None
    give_up: float
    console: Console
    status: Status

    def run(self, scenarios: Sequence[Scenario], hosts: int) -> Iterator[tuple[Result, Floor | None]]:
        """Yield the result of each request of some scenarios, with the floor where it is measured.

        Scenarios that follow one another and have the same cloud share it.
        """
        for (cloud, count, with_reference), group in groupby(
            scenarios, key=lambda s: (s.cloud, s.hosts(hosts), s.with_reference)
        ):
            members = list(group)
            self.status.update(f"{members[0].name}: loading {count:,} hosts")
            python = self.reference_python if with_reference else None
            with serving(self.server_url, cloud(count), python) as stage, inside(stage.url) as app:
                for scenario in members:
                    yield from self._measure(scenario, count, stage, app)

    def _measure(
        self, scenario: Scenario, hosts: int, stage: Stage, app: Inside
    ) -> Iterator[tuple[Result, Floor | None]]:
        if stage.reference is not None:
            check_candidates(
                stage.ours.service,
                stage.reference.service,
                scenario.requests[0].query,
                ("host0", f"host{hosts - 1}"),
            )
        for request in scenario.requests:
            for limit in LIMITS:
                self.status.update(f"{scenario.name}: {request.name}, limit {limit}")
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
                )
                self.console.print(report.line(result), highlight=False, soft_wrap=True)
                yield result, app.floor(path) if _has_floor(request, limit) else None


def _has_floor(request: Request, limit: int) -> bool:
    return request is NESTED and limit == max(LIMITS)


@click.command()
@click.option("--hosts", default=1000, show_default=True, type=click.IntRange(1), help="Hosts of each cloud.")
@click.option("--scenario", "names", multiple=True, type=click.Choice(NAMES), help="Only this; repeatable.")
@click.option("--no-reference", is_flag=True, help="Measure this service alone.")
@click.option(
    "--reference-python",
    default=sys.executable,
    show_default=True,
    envvar="BENCH_REFERENCE_PYTHON",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Python of the environment that has OpenStack Placement.",
)
@click.option(
    "--give-up",
    default=120.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Seconds after which an answer is not waited for any longer.",
)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results there."
)
def main(
    hosts: int,
    names: tuple[str, ...],
    no_reference: bool,
    reference_python: Path,
    give_up: float,
    json_file: Path | None,
) -> None:
    """Measure this service and OpenStack Placement side by side.

    Both get the same clouds and the same requests in turn, from a PostgreSQL that is started for it,
    with two workers each.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scenarios = [scenario for scenario in SCENARIOS if not names or scenario.name in names]
    errors = Console(stderr=True)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="placement-bench-")))
        # When this is root, PostgreSQL runs as another user, who has to get through.
        directory.chmod(0o711)
        status = stack.enter_context(errors.status("Starting PostgreSQL"))
        postgres = stack.enter_context(embedded.start(directory / "data"))
        bench = Bench(postgres.url, None if no_reference else reference_python, give_up, errors, status)
        try:
            measured = list(bench.run(scenarios, hosts))
        except (Difference, ServiceError) as error:
            raise click.ClickException(str(error)) from error
    results = [result for result, _ in measured]
    out = report.console()
    out.print(report.table(results))
    for result, floor in measured:
        if floor is not None:
            out.print(report.floor_line(floor, result.ours.milliseconds), soft_wrap=True)
    if json_file:
        report.write_json(json_file, results)


if __name__ == "__main__":
    main()
