"""When a limited search stops fetching, and how large its batches are."""

from dataclasses import replace
from typing import Any

import pytest

from placement_svc.db.search.anchors import ScanCursor
from placement_svc.db.search.batches import BatchPlan, BatchPlanner, SearchState

START = SearchState(ScanCursor())
EXHAUSTED = ScanCursor(exhausted=True)
AFTER_FIRST = SearchState(
    ScanCursor(after=1, roots_scanned=140), batches=1, anchors=10, anchors_with_candidates=5, counted=5
)


@pytest.mark.parametrize(("rare", "roots_to_scan"), [(False, 140), (True, None)])
def test_first_batch_has_as_many_anchors_as_the_limit(rare: bool, roots_to_scan: int | None) -> None:
    assert BatchPlanner(10, has_rare_criterion=rare).next(START) == BatchPlan(10, roots_to_scan)


@pytest.mark.parametrize(("limit", "roots_to_scan"), [(10, 5000), (2000, 8100)])
def test_first_batch_scans_all_roots_of_a_small_set(limit: int, roots_to_scan: int) -> None:
    batch = BatchPlanner(limit, has_small_set=True).next(START)
    assert batch == BatchPlan(limit, roots_to_scan)


def test_first_batch_scans_no_more_for_a_small_set_if_the_second_one_uses_amounts() -> None:
    facts = {"has_small_set": True, "merges_sets": True}
    assert BatchPlanner(10, **facts).next(START) == BatchPlan(10, 140)
    after_first = SearchState(ScanCursor(after=1, roots_scanned=140), batches=1)
    assert BatchPlanner(10, **facts).next(after_first) == BatchPlan(25, 5000, uses_amounts=True)


@pytest.mark.parametrize(
    "facts", [{}, {"excludes_by_rules": True}, {"excludes_by_rules": True, "root_count": 1000}]
)
@pytest.mark.parametrize("limit", range(1, 8))
def test_one_tree_without_a_candidate_does_not_lead_to_a_lookup(limit: int, facts: dict[str, Any]) -> None:
    # As many roots were scanned as anchors were found, and one of these yields no candidate.
    state = SearchState(
        ScanCursor(after=1, roots_scanned=limit),
        batches=1,
        anchors=limit,
        anchors_with_candidates=limit - 1,
        counted=limit - 1,
    )
    batch = BatchPlanner(limit, **facts).next(state)
    assert batch is not None
    assert batch.roots_to_scan is not None


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(replace(AFTER_FIRST, counted=10), id="limit reached"),
        pytest.param(replace(AFTER_FIRST, cursor=EXHAUSTED), id="no roots left"),
    ],
)
def test_fetching_stops(state: SearchState) -> None:
    assert BatchPlanner(10).next(state) is None


def test_second_batch_allows_for_anchors_without_candidates() -> None:
    # Every second anchor yields a candidate, five such anchors are missing; one root in 14 is an anchor.
    assert BatchPlanner(10).next(AFTER_FIRST) == BatchPlan(25, 2 * 25 * 14)


@pytest.mark.parametrize("roots_scanned", [0, 200])
def test_second_batch_is_a_lookup_if_few_roots_are_anchors(roots_scanned: int) -> None:
    state = replace(AFTER_FIRST, cursor=ScanCursor(after=1, roots_scanned=roots_scanned))
    assert BatchPlanner(10).next(state) == BatchPlan(25)


@pytest.mark.parametrize(
    ("root_count", "roots_to_scan"), [(39_999, None), (40_000, 10_000), (100_000, 10_000)]
)
def test_second_batch_scans_on_if_that_is_a_part_of_the_cloud(
    root_count: int, roots_to_scan: int | None
) -> None:
    # One root in 200 is an anchor; a lookup would examine all roots.
    state = replace(AFTER_FIRST, cursor=ScanCursor(after=1, roots_scanned=2000))
    batch = BatchPlanner(10, root_count=root_count).next(state)
    assert batch == BatchPlan(25, roots_to_scan)


@pytest.mark.parametrize(("root_count", "roots_to_scan"), [(0, None), (15, None), (16_000, 1000)])
def test_second_batch_scans_a_small_part_if_no_root_was_an_anchor(
    root_count: int, roots_to_scan: int | None
) -> None:
    state = SearchState(ScanCursor(after=1, roots_scanned=140), batches=1)
    batch = BatchPlanner(10, root_count=root_count).next(state)
    assert batch is not None
    assert batch.roots_to_scan == roots_to_scan


@pytest.mark.parametrize(
    ("anchors", "roots_scanned", "expected"),
    [
        pytest.param(0, 140, BatchPlan(25, 1000, uses_amounts=True), id="no anchor"),
        pytest.param(1, 140, BatchPlan(25, 4000, uses_amounts=True), id="few anchors: a part of the cloud"),
        pytest.param(10, 140, BatchPlan(25, 700, uses_amounts=True), id="some anchors: as many as needed"),
        pytest.param(10, 40, BatchPlan(25, 200), id="many anchors: without amounts"),
        pytest.param(10, 0, BatchPlan(25), id="the first batch was a lookup"),
    ],
)
def test_second_batch_uses_amounts_if_few_roots_were_anchors(
    anchors: int, roots_scanned: int, expected: BatchPlan
) -> None:
    state = SearchState(
        ScanCursor(after=1, roots_scanned=roots_scanned),
        batches=1,
        anchors=anchors,
        anchors_with_candidates=anchors // 2,
    )
    batch = BatchPlanner(10, merges_sets=True, root_count=16_000).next(state)
    assert batch == expected


@pytest.mark.parametrize(
    ("with_candidates", "excludes_by_rules", "root_count", "expected"),
    [
        pytest.param(24, True, 3000, BatchPlan(124), id="few candidates because of rules"),
        pytest.param(24, False, 3000, BatchPlan(485, 970), id="no rule that a lookup checks"),
        pytest.param(25, True, 3000, BatchPlan(460, 920), id="enough candidates"),
        pytest.param(24, True, 4000, BatchPlan(485, 970), id="a small part of the cloud"),
    ],
)
def test_second_batch_checks_rules_if_few_anchors_have_candidates(
    with_candidates: int, *, excludes_by_rules: bool, root_count: int, expected: BatchPlan
) -> None:
    state = SearchState(
        ScanCursor(after=1, roots_scanned=100),
        batches=1,
        anchors=100,
        anchors_with_candidates=with_candidates,
        counted=with_candidates,
    )
    facts = {"merges_sets": True, "root_count": root_count}
    assert BatchPlanner(100, excludes_by_rules=excludes_by_rules, **facts).next(state) == expected


@pytest.mark.parametrize(
    ("anchors", "with_candidates", "max_anchors"),
    [(0, 0, 25), (1, 1, 24), (10, 5, 25), (8, 1, 118), (9, 1, None), (130, 0, None)],
)
def test_third_batch_has_as_many_as_needed_unless_most_anchors_have_no_candidate(
    anchors: int, with_candidates: int, max_anchors: int | None
) -> None:
    state = SearchState(
        ScanCursor(after=1, roots_scanned=1390),
        batches=2,
        anchors=anchors,
        anchors_with_candidates=with_candidates,
        counted=with_candidates,
    )
    assert BatchPlanner(10).next(state) == BatchPlan(max_anchors, uses_amounts=True)


def test_fourth_batch_takes_all_that_is_left() -> None:
    batch = BatchPlanner(10).next(replace(AFTER_FIRST, batches=3))
    assert batch == BatchPlan(uses_amounts=True)


@pytest.mark.parametrize("batches", [2, 3])
def test_later_batches_do_without_amounts_if_many_roots_were_anchors(batches: int) -> None:
    state = replace(AFTER_FIRST, batches=batches, cursor=ScanCursor(after=1, roots_scanned=40))
    batch = BatchPlanner(10, merges_sets=True).next(state)
    assert batch is not None
    assert not batch.uses_amounts


@pytest.mark.parametrize(
    ("anchors", "expected"), [(0, BatchPlan(25, uses_amounts=True)), (10, BatchPlan(25, 700))]
)
def test_second_batch_in_the_order_of_uuids_looks_up_roots_with_the_amounts_if_hardly_any_was_an_anchor(
    anchors: int, expected: BatchPlan
) -> None:
    state = replace(AFTER_FIRST, anchors=anchors, cursor=ScanCursor("0", after="1", roots_scanned=140))
    state = replace(state, anchors_with_candidates=anchors // 2)
    facts = {"has_small_set": True, "merges_sets": True}
    assert BatchPlanner(10, **facts, root_count=16_000).next(state) == expected
