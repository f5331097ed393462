"""The scenarios of `python -m bench` by their kinds, and how to measure each kind and report the results."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.status import Status

from bench import clouds, fixed, reads, report, schedule
from bench.checking import check_candidates
from bench.claims import CLAIMS, MAX_HOSTS, ClaimsResult, measure_claims
from bench.environment import Environment, serve_cloud
from bench.fixed import FIXED, FixedResult, measure_fixed
from bench.in_process import InProcessService, in_process_service
from bench.measuring import Result, candidates_path, measure
from bench.reads import ReadResult
from bench.scenarios import LIMITS, NESTED, SCENARIOS, Request, Scenario
from bench.schedule import (
    BATCHES,
    CLOUDS,
    SCHEDULE,
    BatchResult,
    ScheduleResult,
    measure_batches,
    measure_schedule,
)
from bench.storm import STORM, StormResult, measure_storm


@dataclass(frozen=True)
class Benchmark:
    """The settings of a run, and the console for its progress; measures the scenarios of each kind.

    If `reference_python` is None, only this service is measured. `timeout` is in seconds.
    """

    server_url: str
    reference_python: Path | None
    timeout: float
    console: Console
    status: Status

    def run(self, kind: "Kind", names: Collection[str], hosts: int) -> Iterator[Any]:
        """Yield the results of the scenarios of a kind with one of these names; print each as a line."""
        for result in kind.measure(self, names, hosts):
            self.console.print(kind.line(result), highlight=False, soft_wrap=True)
            yield result

    def requests(self, names: Collection[str], hosts: int) -> Iterator[Result]:
        """Yield the result of each request of the scenarios, for clouds with this number of hosts.

        Consecutive scenarios with the same cloud share it, so that it is loaded once.
        """
        scenarios = [scenario for scenario in SCENARIOS if scenario.name in names]
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
                yield Result(
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

    def reads(self, names: Collection[str], hosts: int) -> Iterator[ReadResult]:
        """Yield the results of those reads by extensions that have one of these names."""
        if reads.BULK in names:
            self.status.update(f"{reads.BULK}: loading {hosts:,} hosts")
            with serve_cloud(
                self.server_url, clouds.flat_with_instances(hosts), self.reference_python
            ) as environment:
                self.status.update(reads.BULK)
                reference = environment.reference.service if environment.reference else None
                yield from reads.measure_bulk(environment.ours.service, reference, hosts)
        for comparison in reads.COMPARISONS:
            if comparison.name in names:
                self.status.update(f"{comparison.name}: loading {hosts:,} hosts")
                with serve_cloud(self.server_url, comparison.cloud(hosts), None) as environment:
                    self.status.update(comparison.name)
                    service = environment.ours.service
                    yield from reads.measure_comparison(comparison, service, hosts)

    def claims(self, _: Collection[str], hosts: int) -> Iterator[ClaimsResult]:
        """Yield the results of claims by concurrent clients, on all hosts and on one host."""
        count = min(hosts, MAX_HOSTS)
        self.status.update(f"{CLAIMS}: loading {count:,} hosts")
        with serve_cloud(self.server_url, clouds.unlimited(count), self.reference_python) as environment:
            self.status.update(CLAIMS)
            yield from measure_claims(environment.servers, count)

    def storm(self, _: Collection[str], hosts: int) -> Iterator[StormResult]:
        """Yield the times of searches before, during and after many claims."""
        self.status.update(f"{STORM}: loading {hosts:,} hosts")
        with serve_cloud(self.server_url, clouds.unlimited(hosts), self.reference_python) as environment:
            self.status.update(STORM)
            yield from measure_storm(environment.servers, hosts)

    def fixed(self, _: Collection[str], hosts: int) -> Iterator[FixedResult]:
        """Yield what a search of limit 10 takes, and what a request without any search takes."""
        for name, cloud in fixed.CLOUDS.items():
            self.status.update(f"{FIXED}: loading {hosts:,} hosts, {name}")
            with serve_cloud(self.server_url, cloud(hosts), self.reference_python) as environment:
                self.status.update(f"{FIXED}, {name}")
                yield from measure_fixed(environment, name, hosts)

    def schedule(self, _: Collection[str], hosts: int) -> Iterator[ScheduleResult]:
        """Yield the results of schedulers that place servers in each of `CLOUDS`."""
        count = min(hosts, schedule.MAX_HOSTS)
        for name, cloud in CLOUDS.items():
            self.status.update(f"{SCHEDULE}: loading {count:,} hosts, {name}")
            with serve_cloud(self.server_url, cloud(count), self.reference_python) as environment:
                self.status.update(f"{SCHEDULE}, {name}")
                yield from measure_schedule(environment.servers, name)

    def batches(self, _: Collection[str], hosts: int) -> Iterator[BatchResult]:
        """Yield the times of requests that place one server, and many servers."""
        count = min(hosts, schedule.MAX_HOSTS)
        self.status.update(f"{BATCHES}: loading {count:,} hosts")
        with serve_cloud(self.server_url, clouds.flat(count), None) as environment:
            self.status.update(BATCHES)
            yield from measure_batches(environment.ours.service)


def _has_floor(request: Request, limit: int) -> bool:
    return request is NESTED and limit == max(LIMITS)


@dataclass(frozen=True)
class Kind:
    """Scenarios that are measured in the same way.

    `measure` yields the results of those with one of some names, for a number of hosts. `line` describes a
    result, and `report` all of them.
    """

    scenarios: Sequence[str]
    measure: Callable[[Benchmark, Collection[str], int], Iterator[Any]]
    line: Callable[[Any], str]
    report: Callable[[Sequence[Any]], RenderableType]


REQUESTS = Kind(
    [scenario.name for scenario in SCENARIOS],
    Benchmark.requests,
    report.request_line,
    report.requests_report,
)
KINDS = (
    REQUESTS,
    Kind(reads.NAMES, Benchmark.reads, report.read_line, report.reads_table),
    Kind([CLAIMS], Benchmark.claims, report.claims_line, report.claims_table),
    Kind([STORM], Benchmark.storm, report.storm_line, report.storm_table),
    Kind([FIXED], Benchmark.fixed, report.fixed_line, report.fixed_table),
    Kind([SCHEDULE], Benchmark.schedule, report.schedule_line, report.schedule_table),
    Kind([BATCHES], Benchmark.batches, report.batch_line, report.batches_table),
)
