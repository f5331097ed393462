"""The benchmark on a few hosts: scenarios have the expected number of candidates, and claims succeed."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from bench import clouds, console, fixed, large_cloud, reads, schedule, storm
from bench.claims import WARM_UP_CLAIMS, run_claims
from bench.clouds import Cloud, host_names, uuid_of
from bench.costs import cpu_seconds
from bench.environment import serve_cloud
from bench.loading import add_names, load_ours
from bench.measuring import candidates_path
from bench.reads import Comparison
from bench.scenarios import LIMITS, SCENARIOS, Scenario
from bench.services import Service
from placement_svc.provisioning import embedded

HOSTS = 5
CLIENTS = 2


@pytest.fixture
def service(live: str) -> Service:
    return Service("ours", live)


@pytest.fixture
def load(service: Service, engine: Engine) -> Callable[[Cloud], None]:
    """A function that loads a cloud into the database."""

    def load_cloud(cloud: Cloud) -> None:
        add_names(service, cloud)
        load_ours(engine, cloud)

    return load_cloud


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_scenario_has_the_expected_number_of_candidates(
    scenario: Scenario, service: Service, load: Callable[[Cloud], None]
) -> None:
    load(scenario.cloud(HOSTS))
    for request in scenario.requests:
        for limit in LIMITS:
            path = candidates_path(request.query, limit)
            body = json.loads(service.request("GET", path, version=scenario.version))
            candidates = len(body["allocation_requests"])
            assert candidates == min(limit, request.candidates(HOSTS)), (request.name, limit)


def test_all_ways_to_read_a_cloud_return_the_same(service: Service, load: Callable[[Cloud], None]) -> None:
    load(clouds.flat_with_instances(HOSTS))
    results = list(reads.measure_bulk(service, service, HOSTS))
    assert [result.is_extrapolated for result in results] == [False] * 4
    found = reads.read_all(service)
    assert found == reads.read_pages(service) == reads.read_one_by_one(service, host_names(HOSTS))
    assert {len(parts["allocations"]) for parts in found.values()} == {clouds.INSTANCES_PER_HOST}


@pytest.mark.parametrize("comparison", reads.COMPARISONS, ids=lambda comparison: str(comparison.name))
def test_an_extension_gets_the_query_of_a_search(
    comparison: Comparison, service: Service, load: Callable[[Cloud], None]
) -> None:
    load(comparison.cloud(HOSTS))
    body = json.loads(service.request("GET", candidates_path(comparison.query, 1000)))
    assert len(body["allocation_requests"]) == comparison.candidates * math.ceil(HOSTS / clouds.ZONES)
    search, *extensions = reads.measure_comparison(comparison, service, HOSTS)
    assert search.ratio == 1
    assert [extension.read for extension in extensions] == list(comparison.paths)
    assert all(extension.milliseconds > 0 for extension in extensions)


def test_claims_from_unlimited_hosts_are_granted(service: Service, load: Callable[[Cloud], None]) -> None:
    load(clouds.unlimited(HOSTS))
    stats = run_claims(service, [uuid_of(name) for name in host_names(HOSTS)], CLIENTS, seconds=0)
    assert stats.refused == 0
    assert stats.per_second > 0
    assert stats.p99 >= stats.median > 0


def test_a_client_releases_each_claim(
    service: Service, load: Callable[[Cloud], None], engine: Engine
) -> None:
    load(clouds.unlimited(HOSTS))
    uuids = [uuid_of(name) for name in host_names(HOSTS)]
    assert run_claims(service, uuids, CLIENTS, seconds=0, with_release=True).refused == 0
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM consumers")) == WARM_UP_CLAIMS


@pytest.mark.parametrize("name", fixed.CLOUDS)
def test_the_fixed_cost_is_relative_to_that_of_the_versions(server_url: str, name: str) -> None:
    with serve_cloud(server_url, fixed.CLOUDS[name](HOSTS), None) as environment:
        versions, search = fixed.measure_fixed(environment, name, HOSTS)
    assert [versions.request, search.request] == [fixed.VERSIONS, "limit=10"]
    assert (versions.time_ratio, versions.cpu_ratio) == (1, 1)
    assert search.milliseconds > 0


def test_searches_are_measured_before_during_and_after_claims(server_url: str) -> None:
    with serve_cloud(server_url, clouds.unlimited(HOSTS), None) as environment:
        results = list(storm.measure_storm(environment.servers, HOSTS, seconds=0))
    phases = [storm.BEFORE, storm.DURING, storm.AFTER]
    assert [(each.limit, each.phase) for each in results] == [
        (limit, phase) for limit in LIMITS for phase in phases
    ]
    assert [each.ratio for each in results if each.phase == storm.BEFORE] == [1, 1]
    assert all((each.claims_per_second > 0) == (each.phase == storm.DURING) for each in results)


def test_claims_from_a_full_host_are_counted_as_refused(
    service: Service, load: Callable[[Cloud], None]
) -> None:
    load(clouds.full(HOSTS))
    stats = run_claims(service, [uuid_of(host_names(HOSTS)[0])], CLIENTS, seconds=0)
    assert stats.refused == CLIENTS
    assert stats.per_second == 0


@pytest.mark.parametrize("way", [*schedule.CLAIMS, *schedule.LOOPS])
@pytest.mark.parametrize("cloud", [clouds.flat, clouds.free_slots, clouds.full])
def test_schedulers_place_servers_where_there_is_room(
    service: Service, load: Callable[[Cloud], None], way: str, cloud: Callable[[int], Cloud]
) -> None:
    has_room = cloud is not clouds.full
    full = Cloud(clouds.full(HOSTS).providers[: HOSTS - clouds.MATCHING_HOSTS], clouds.full(HOSTS).consumers)
    load(cloud(HOSTS) if has_room else full)
    place = (schedule.CLAIMS | schedule.LOOPS)[way]
    tallies, _ = schedule.run_schedulers(service, place, CLIENTS, servers=CLIENTS, seconds=0)
    assert [tally.placed for tally in tallies] == [int(has_room)] * CLIENTS
    assert [tally.failed for tally in tallies] == [int(not has_room)] * CLIENTS


def test_the_views_of_the_console_respond_in_the_large_cloud(engine: Engine, service: Service) -> None:
    large_cloud.fill(engine, HOSTS)
    with engine.connect() as connection:
        host = connection.scalar(text("SELECT uuid FROM resource_providers WHERE parent_id IS NULL"))
    for name, path in console.VIEWS:
        page = service.request("GET", path.replace("{host}", host)).decode()
        assert ("No candidates" in page) == (name == "Ask without candidates"), name


@pytest.mark.long
def test_the_command_measures_and_drops_its_databases(passable_dir: Path, tmp_path: Path) -> None:
    """The server is its own: other tests have databases of the benchmark on the common one."""
    results = tmp_path / "results.json"
    command = ["--no-reference", "--hosts", str(HOSTS), "--scenario", "full", "--json", str(results)]
    with embedded.start(passable_dir / "bench") as running:
        subprocess.run(
            [sys.executable, "-m", "bench", *command, "--database-url", running.url],
            check=True,
            capture_output=True,
            cwd=Path(__file__).parents[1],
        )
        engine = create_engine(running.url)
        with engine.connect() as connection:
            databases = connection.scalars(
                text("SELECT datname FROM pg_database WHERE datname LIKE '%bench%'")
            ).all()
        engine.dispose()
    measured = json.loads(results.read_text())["results"]
    assert [(result["limit"], result["ours"]["candidates"]) for result in measured] == [(10, 3), (1000, 3)]
    assert databases == []


def test_the_processor_time_of_a_process_includes_its_children() -> None:
    before = cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    assert cpu_seconds(os.getpid()) > before
