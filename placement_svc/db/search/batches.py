"""How large the batches of a limited search are, and when the search stops."""

import math
from dataclasses import dataclass

from placement_svc.db.search.anchors import ScanCursor

FIRST_SCAN = (4, 100)
"""The first batch scans at most this multiple of the limit, plus this number of roots."""

MIN_ANCHOR_RATIO = 1 / 20
"""The part of the roots scanned that must be anchors; below, the second batch uses the selective lookup."""

MAX_ANCHORS_PER_CANDIDATE = 8
"""How many anchors the second batch takes in at most for each candidate that the first did not yield."""


@dataclass(frozen=True)
class SearchState:
    """The state of a search after some batches.

    `anchors` are those that the batches found, `trees_with_candidates` those that yielded a candidate, and
    `candidates` the candidates taken: in breadth-first order one of each such tree, in depth-first order all.
    """

    cursor: ScanCursor
    batches: int = 0
    anchors: int = 0
    trees_with_candidates: int = 0
    candidates: int = 0


@dataclass(frozen=True)
class BatchSize:
    """The most anchors that a batch may find (None: all that are left).

    With `roots_to_scan` it finds them by `root_scan` among as many roots, otherwise by `selective_lookup`.
    """

    max_anchors: int | None = None
    roots_to_scan: int | None = None


def next_batch(state: SearchState, limit: int, *, has_rare_criterion: bool) -> BatchSize | None:
    """Return the size of the next batch, or None if the search stops.

    A limited search stops when `limit` trees have each yielded a candidate (in depth-first order: when it has
    `limit` candidates), when no roots are left, or after three batches.
    """
    if state.candidates >= limit or state.cursor.exhausted:
        return None
    match state.batches:
        case 0:
            return _first_batch(limit, has_rare_criterion=has_rare_criterion)
        case 1:
            return _second_batch(state, limit)
        case 2:
            return BatchSize()
        case _:
            return None


def _first_batch(limit: int, *, has_rare_criterion: bool) -> BatchSize:
    """Return a batch of `limit` anchors: enough if each tree yields a candidate."""
    factor, extra = FIRST_SCAN
    return BatchSize(limit, None if has_rare_criterion else factor * limit + extra)


def _second_batch(state: SearchState, limit: int) -> BatchSize:
    """Return a batch that should be enough if the next roots resemble those of the first batch.

    A third batch, of all that is left, is rare: many anchors would have to yield no candidate because amounts
    exceed what a provider has, groups cannot be isolated, or no combination has the required traits.
    """
    anchors_per_candidate = min(
        MAX_ANCHORS_PER_CANDIDATE, state.anchors / max(state.trees_with_candidates, 1)
    )
    max_anchors = math.ceil(1.5 * anchors_per_candidate * (limit - state.trees_with_candidates)) + 10
    roots_scanned = state.cursor.roots_scanned
    anchor_ratio = state.anchors / roots_scanned if roots_scanned else 0
    if anchor_ratio <= MIN_ANCHOR_RATIO:
        return BatchSize(max_anchors)
    return BatchSize(max_anchors, roots_to_scan=math.ceil(2 * max_anchors / anchor_ratio))
