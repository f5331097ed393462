"""The sizes of the batches of an ordered search, which no response shows."""

from dataclasses import replace

import pytest

from placement_svc.db.search.ordered.batches import MAX_ORDERED_BATCHES, BatchSizes, max_roots_per_tree

SIZES = BatchSizes(root_count=10_000, has_filters=False, intersects_sets=False, first_roots_per_tree=1)


def after_batches(*batches: tuple[int, int], sizes: BatchSizes = SIZES) -> BatchSizes:
    """Return the state after batches, each with its roots and its anchors before the horizon."""
    sizes = replace(sizes)
    for root_count, before_horizon in batches:
        sizes.add_batch(root_count)
        sizes.before_horizon += before_horizon
    return sizes


@pytest.mark.parametrize(
    ("sizes", "size"),
    [
        (SIZES, 106),
        (replace(SIZES, has_filters=True), 150),
        (replace(SIZES, has_filters=True, intersects_sets=True), 200),
        (replace(SIZES, first_roots_per_tree=3), 310),
    ],
)
def test_the_first_batch_has_some_spare_roots(sizes: BatchSizes, size: int) -> None:
    assert sizes.next_size(100) == size


def test_the_second_batch_has_as_many_roots_as_the_first_suggests() -> None:
    assert after_batches((100, 50)).next_size(50) == int(1.02 * 50 * 2) + 4
    assert after_batches((100, 50)).enough(50) == 100


def test_a_batch_is_at_most_four_times_as_large_as_the_one_before() -> None:
    assert after_batches((100, 1)).next_size(99) == 404


def test_batches_end_if_an_eighth_of_the_cloud_was_examined_in_vain() -> None:
    assert not after_batches((1300, 51)).are_exhausted
    assert after_batches((1300, 50)).are_exhausted
    assert after_batches(*[(10, 10)] * MAX_ORDERED_BATCHES).are_exhausted


def test_the_last_batch_has_no_more_roots_than_may_be_examined_in_vain() -> None:
    assert after_batches((600, 0), (600, 0)).next_size(10) == 10 + (1250 - 1200)


@pytest.mark.parametrize(
    ("root_count", "anchor_count", "excludes"), [(100, 4, True), (100, 5, False), (29, 0, False)]
)
def test_few_anchors_of_a_sample_show_that_most_roots_are_excluded(
    root_count: int, anchor_count: int, excludes: bool
) -> None:
    assert after_batches((root_count, 0)).excludes_most(anchor_count) is excludes


def test_a_remembered_number_of_roots_is_bounded() -> None:
    assert max_roots_per_tree(10_000, 10) == 1 + 1250 / 10
    assert max_roots_per_tree(10, 1000) == 1 + 1000 / 1000
