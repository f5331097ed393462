"""Every strategy of the search, forced in turn, agrees with the oracle, and all give the same response.

The clouds of these tests are so small that the search chooses the same strategy for most requests.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from placement_svc.db.search import batches
from placement_svc.db.search.batches import BatchPlan, BatchPlanner, SearchState
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.name_lookup import NamesLookup
from tests.conftest import LoadCloud, examples
from tests.db.search.test_candidates_property import NO_DEADLINE, compare
from tests.support.cloud import Cloud
from tests.support.oracle import Request, response_errors
from tests.support.strategies import NEWEST, scenarios

Api = Callable[..., Any]
Clean = Callable[[], None]
NextBatch = Callable[[BatchPlanner, SearchState], BatchPlan | None]

ROOTS_PER_BATCH = 2


def _scan(planner: BatchPlanner, state: SearchState) -> BatchPlan | None:
    """Scan few roots in each batch, until no root is left."""
    if state.counted >= planner.limit or state.cursor.exhausted:
        return None
    return BatchPlan(planner.limit, roots_to_scan=ROOTS_PER_BATCH)


def _scan_with_amounts(planner: BatchPlanner, state: SearchState) -> BatchPlan | None:
    """Scan few roots in each batch, and only roots whose trees have each amount free."""
    plan = _scan(planner, state)
    return plan and replace(plan, uses_amounts=True)


def _look_up(planner: BatchPlanner, state: SearchState) -> BatchPlan | None:
    """Look up few anchors in each batch, until no root is left."""
    if state.counted >= planner.limit or state.cursor.exhausted:
        return None
    return BatchPlan(1)


def _look_up_with_amounts(planner: BatchPlanner, state: SearchState) -> BatchPlan | None:
    """Look up few anchors in each batch, among the roots whose trees have each amount free."""
    plan = _look_up(planner, state)
    return plan and replace(plan, uses_amounts=True)


LARGE: frozenset[str] = frozenset()
SMALL = frozenset(["is_small_trait_set", "is_small_aggregate_set"])
SUFFICIENT = SMALL | {"is_sufficient_trait_set", "is_sufficient_aggregate_set"}

STRATEGIES: dict[str, tuple[NextBatch, frozenset[str]]] = {
    "scan": (_scan, LARGE),
    "scan of small sets": (_scan, SMALL),
    "scan of sufficient sets": (_scan, SUFFICIENT),
    "scan with amounts": (_scan_with_amounts, LARGE),
    "scan of small sets with amounts": (_scan_with_amounts, SMALL),
    "lookup": (_look_up, LARGE),
    "lookup of small sets": (_look_up, SMALL),
    "lookup of sufficient sets": (_look_up, SUFFICIENT),
    "lookup with amounts": (_look_up_with_amounts, LARGE),
    "scan, then lookup": (BatchPlanner.next, LARGE),
    "scan of small sets, then lookup": (BatchPlanner.next, SMALL),
}
"""How the next batch is chosen, and which functions of `NamesLookup` are true for each set."""


@contextmanager
def forced(strategy: str, *, has_rare_criterion: bool = False) -> Iterator[None]:
    """Force a strategy of `STRATEGIES` in the block."""
    next_batch, true_for_sets = STRATEGIES[strategy]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchPlanner, "next", next_batch)
        patch.setattr(batches, "FIRST_SCAN", (0, ROOTS_PER_BATCH))
        patch.setattr(batches, "SMALL_SET_SCAN", 2 * ROOTS_PER_BATCH)
        patch.setattr(SearchCriteria, "has_rare_criterion", lambda *_: has_rare_criterion)
        for name in SUFFICIENT:
            patch.setattr(NamesLookup, name, lambda *_, name=name: name in true_for_sets)
        yield


@settings(NO_DEADLINE, max_examples=examples(20))
@given(scenario=scenarios(NEWEST), limit=st.integers(1, 4))
def test_all_strategies_give_the_same_response(
    api: Api,
    clean_database: Clean,
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
    limit: int,
) -> None:
    cloud, requests = scenario
    clean_database()
    load_cloud(cloud)
    for request in (replace(each, limit=limit, preferred=frozenset(), order_by=None) for each in requests):
        note(f"cloud: {cloud}\nrequest: {request.version} {request}")
        bodies = {}
        for strategy in STRATEGIES:
            with forced(strategy):
                response = api("GET", f"/allocation_candidates?{request.query()}", version=request.header)
            assert response.status_code == 200, response.json
            assert response_errors(cloud, request, response.json) == [], strategy
            bodies[strategy] = response.json["allocation_requests"]
        assert bodies == dict.fromkeys(STRATEGIES, bodies["scan"])


@settings(NO_DEADLINE, max_examples=examples(10))
@given(scenario=scenarios(NEWEST))
@pytest.mark.parametrize("has_rare_criterion", [False, True])
def test_search_without_a_limit_uses_all_sets(
    api: Api,
    clean_database: Clean,
    load_cloud: LoadCloud,
    scenario: tuple[Cloud, list[Request]],
    has_rare_criterion: bool,
) -> None:
    cloud, requests = scenario
    unlimited = [replace(each, limit=None) for each in requests]
    with forced("lookup", has_rare_criterion=has_rare_criterion):
        compare(api, clean_database, load_cloud, cloud, unlimited)
