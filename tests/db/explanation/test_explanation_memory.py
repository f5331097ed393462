import pytest

from placement_svc.db.connections.engine import Database
from placement_svc.db.explanation.explain import ExplainedRequest, ExplanationOptions, explain
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.errors import Invalid
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.filters import QueryTexts
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from tests.conftest import LoadCloud
from tests.support.cloud import read


def test_patterns_of_the_cloud_need_memory(database: Database, load_cloud: LoadCloud) -> None:
    load_cloud(read("; ".join(f"h{n}{{VCPU{n + 1}}}" for n in range(10))))
    groups = tuple(RequestGroup(str(amount), {"VCPU": amount}) for amount in range(1, 11))
    explained = ExplainedRequest(request=CandidatesRequest(groups), texts=QueryTexts(groups={}))

    def run(memory: int) -> None:
        search = SearchOptions(deadline=Deadline.of(60), memory=MemoryBudget(memory))
        database.read(explain, explained, ExplanationOptions(search=search, max_roots=100))

    run(1_000_000)
    with pytest.raises(Invalid, match="memory"):
        run(2_000)
