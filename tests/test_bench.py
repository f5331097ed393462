"""The scenarios of the benchmark on a few hosts: each finds as many candidates as it should."""

import json
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from bench.loading import add_names, load_ours
from bench.measuring import candidates_path
from bench.scenarios import LIMITS, SCENARIOS, Scenario
from bench.services import Service

HOSTS = 5


@pytest.fixture
def service(live: str) -> Service:
    return Service("ours", live)


@pytest.fixture
def load(service: Service, engine: Engine) -> Callable[[Scenario], None]:
    """A function that loads the cloud of a scenario."""

    def act(scenario: Scenario) -> None:
        cloud = scenario.cloud(HOSTS)
        add_names(service, cloud)
        load_ours(engine, cloud)

    return act


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario_has_its_candidates(
    scenario: Scenario, service: Service, load: Callable[[Scenario], None]
) -> None:
    load(scenario)
    for request in scenario.requests:
        for limit in LIMITS:
            answer = json.loads(service.ask("GET", candidates_path(request.query, limit)))
            found = len(answer["allocation_requests"])
            assert found == min(limit, request.candidates(HOSTS)), (request.name, limit)
