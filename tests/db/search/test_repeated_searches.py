"""A search that is repeated, as after a lost connection, neither needs nor counts more than another one."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from placement_svc.db.connections.engine import Database, connect
from placement_svc.db.explanation.explain import ExplainedRequest, ExplanationOptions, explain
from placement_svc.db.fits import count_fits
from placement_svc.db.placing.search import PlacementSearchOptions, find_placements
from placement_svc.db.search.candidates import SearchOptions, find_candidates
from placement_svc.domain.allocations import Claim
from placement_svc.domain.execution import request_stats
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.filters import QueryTexts
from placement_svc.domain.fits import FitsRequest
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from placement_svc.domain.placing.placements import PlacementRequest
from tests.conftest import LoadCloud
from tests.support.cloud import read, uuid_of
from tests.support.postgres_proxy import PostgresProxy
from tests.support.search_memory import least_memory, succeeds

REQUEST = CandidatesRequest((RequestGroup("", {"VCPU": 1}),), limit=10)
MOST = 1 << 18
"""Bytes that suffice for each search."""

Search = Callable[[Database, SearchOptions], Any]


def place(query: Any, database: Database, options: SearchOptions) -> Any:
    claims = [Claim(uuid_of("consumer"), "p", "u", "T", None, {})]
    wanted = PlacementRequest(request=REQUEST, consumers=claims, min_count=1, explanation="")
    return database.read(query, wanted, PlacementSearchOptions(search=options))


def explain_it(database: Database, options: SearchOptions) -> Any:
    explained = ExplainedRequest(request=REQUEST, texts=QueryTexts(groups={}))
    return database.read(explain, explained, ExplanationOptions(search=options, max_roots=100))


SEARCHES: dict[str, Search] = {
    "candidates": lambda database, options: database.read(find_candidates, REQUEST, options),
    "placements": partial(place, find_placements),
    "fits": lambda database, options: database.read(count_fits, FitsRequest(request=REQUEST), options),
    "explanation": explain_it,
}


@pytest.fixture
def lossy_database(postgres_proxy: PostgresProxy, load_cloud: LoadCloud) -> Iterator[Database]:
    """The database with ten hosts, through the proxy."""
    load_cloud(read("; ".join(f"h{number}{{VCPU8}}" for number in range(10))))
    engine = connect(postgres_proxy.url)
    yield Database(engine)
    engine.dispose()


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_memory_of_the_failed_attempt_does_not_count(
    search: Search, lossy_database: Database, postgres_proxy: PostgresProxy
) -> None:
    def run(memory: MemoryBudget) -> None:
        search(lossy_database, SearchOptions(deadline=Deadline.of(60), memory=memory))

    assert succeeds(run, MOST)
    last = postgres_proxy.statements[-2]
    assert last.startswith(("SELECT", "WITH"))
    enough = least_memory(run, MOST)
    del postgres_proxy.statements[:]
    postgres_proxy.drop_connection_at(last[:60], delivered=False)
    assert succeeds(run, enough)
    assert [each.startswith("BEGIN") for each in postgres_proxy.statements].count(True) == 2


def test_anchors_of_the_failed_attempt_do_not_count(database: Database, load_cloud: LoadCloud) -> None:
    load_cloud(read("h1{VCPU8}; h2{VCPU8}; h3{VCPU8}"))
    stats = request_stats.start()
    options = SearchOptions(deadline=Deadline.of(60), memory=MemoryBudget(MOST))
    for _ in range(2):
        SEARCHES["candidates"](database, options)
        assert stats.anchors == 3
