"""The parts of an explanation that are cut after half the time of a request."""

from dataclasses import replace

import pytest

from placement_svc.db.connections.engine import Database
from placement_svc.db.explanation.explain import ExplainedRequest, ExplanationOptions, explain
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.filters import QueryTexts
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from tests.conftest import LoadCloud
from tests.support.cloud import read

REQUEST = ExplainedRequest(
    request=CandidatesRequest((RequestGroup("", {"VCPU": 9}),)), texts=QueryTexts(groups={})
)
HOUR = 3600.0


@pytest.mark.parametrize(
    ("seconds", "complete"), [(HOUR, True), (3 * HOUR, False)], ids=["in time", "half over"]
)
def test_nearest_and_relaxations_are_cut_after_half_the_time(
    database: Database, load_cloud: LoadCloud, seconds: float, complete: bool
) -> None:
    """The deadline is in an hour."""
    load_cloud(read("h{VCPU8}"))
    deadline = replace(Deadline.of(HOUR), seconds=seconds)
    search = SearchOptions(deadline=deadline, memory=MemoryBudget(10**7))

    body = database.read(explain, REQUEST, ExplanationOptions(search=search, max_roots=100))

    assert body["complete"] is complete
    assert body["relaxations"] == ([{"instead": "resources=VCPU:8", "roots": 1}] if complete else [])
    assert [each["root"]["name"] for each in body["nearest"]] == (["h"] if complete else [])
    assert body["kind"] == "impossible"
