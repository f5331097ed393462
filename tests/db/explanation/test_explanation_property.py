"""The explanation and its oracle agree on random clouds."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from hypothesis import HealthCheck, given, note, settings

from placement_svc.db.engine import Database
from placement_svc.db.explanation.explain import ExplanationOptions, explain
from placement_svc.domain.deadline import Deadline
from placement_svc.schemas.allocation_candidates import parse_request
from placement_svc.schemas.explanation import query_texts
from tests.conftest import LoadCloud, examples
from tests.support.cloud import Cloud, read
from tests.support.explanation_oracle import Explainer
from tests.support.oracle import Group, Request
from tests.support.strategies import scenarios

EXAMPLE = (
    read("h1{VCPU8 used4 FPGA1}#CUSTOM_FAST; h2{VCPU8}; h3{VCPU4}"),
    [
        Request(
            (Group("_A", {"VCPU": 8}, required=(frozenset(["HW_NUMA_ROOT"]),)), Group("_B", {"FPGA": 1})),
            group_policy="none",
        )
    ],
)


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(60),
)
@given(scenario=scenarios())
def test_explanation_agrees_with_oracle(
    database: Database,
    clean_database: Callable[[], None],
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
) -> None:
    clean_database()
    cloud, requests = scenario
    load_cloud(cloud)
    for request in requests:
        note(f"cloud: {cloud}\nrequest: {request}")
        assert explained(database, request) == Explainer(cloud, request).explain()


def explained(database: Database, request: Request) -> dict[str, Any]:
    pairs = parse_qsl(request.query())
    parsed = parse_request(pairs, (1, 39))
    options = ExplanationOptions(deadline=Deadline.of(60), max_roots=20_000)
    return database.read(explain, parsed, query_texts(pairs, parsed), options)
