"""Claims read the trees of the cloud one by one, so that they stop before they have read all."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from placement_svc.db.search.batches import BatchPlan, BatchPlanner, SearchState
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.ordered import batches


def _one(_: BatchPlanner, state: SearchState) -> BatchPlan | None:
    return None if state.cursor.exhausted else BatchPlan(1)


@contextmanager
def small_batches() -> Iterator[None]:
    """Let the searches of claims fetch one tree or a few at a time in the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchPlanner, "next", _one)
        patch.setattr(SearchCriteria, "has_rare_criterion", lambda *_: False)
        for name in ("FIRST_BATCH", "FIRST_FILTERED_BATCH", "FIRST_BATCH_OF_SETS"):
            patch.setattr(batches, name, (0, 1))
        patch.setattr(batches, "BATCH_GROWTH", 1)
        yield
