"""The benchmark on a few hosts: scenarios have the expected number of candidates, and claims succeed."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from bench import clouds
from bench.claims import run_claims
from bench.clouds import Cloud, host_names, uuid_of
from bench.loading import add_names, load_ours
from bench.measuring import candidates_path
from bench.scenarios import LIMITS, SCENARIOS, Scenario
from bench.services import Service

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
            body = json.loads(service.request("GET", candidates_path(request.query, limit)))
            candidates = len(body["allocation_requests"])
            assert candidates == min(limit, request.candidates(HOSTS)), (request.name, limit)


def test_claims_from_unlimited_hosts_are_granted(service: Service, load: Callable[[Cloud], None]) -> None:
    load(clouds.unlimited(HOSTS))
    stats = run_claims(service, [uuid_of(name) for name in host_names(HOSTS)], CLIENTS, seconds=0)
    assert stats.refused == 0
    assert stats.per_second > 0
    assert stats.p99 >= stats.median > 0


def test_claims_from_a_full_host_are_counted_as_refused(
    service: Service, load: Callable[[Cloud], None]
) -> None:
    load(clouds.full(HOSTS))
    stats = run_claims(service, [uuid_of(host_names(HOSTS)[0])], CLIENTS, seconds=0)
    assert stats.refused == CLIENTS
    assert stats.per_second == 0


@pytest.mark.long
def test_the_command_measures_and_drops_its_databases(
    server_url: str, engine: Engine, tmp_path: Path
) -> None:
    results = tmp_path / "results.json"
    command = ["--no-reference", "--hosts", str(HOSTS), "--scenario", "full", "--json", str(results)]
    subprocess.run(
        [sys.executable, "-m", "bench", *command, "--database-url", server_url],
        check=True,
        capture_output=True,
        cwd=Path(__file__).parents[1],
    )
    measured = json.loads(results.read_text())["results"]
    assert [(result["limit"], result["ours"]["candidates"]) for result in measured] == [(10, 3), (1000, 3)]
    with engine.connect() as connection:
        databases = connection.scalars(
            text("SELECT datname FROM pg_database WHERE datname LIKE '%bench%'")
        ).all()
    assert databases == []
