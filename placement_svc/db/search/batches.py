"""How large the batches of a limited search are, and when it stops fetching them."""

import math
from dataclasses import dataclass

from placement_svc.db.search.anchors import ScanCursor

FIRST_SCAN = (4, 100)
"""The first batch scans at most this multiple of the limit, plus this number of roots."""

SMALL_SET_SCAN = 5000
"""The roots that a batch may scan at least, if the filters allow only few.

It is the second batch if the server merges sets, as that can use amounts, otherwise the first one.
"""

MIN_ANCHOR_RATIO = 1 / 20
"""The part of the scanned roots that must be anchors for the second batch to scan as many as it needs."""

MAX_ANCHOR_RATIO_FOR_AMOUNTS = 1 / 4
"""Further batches use amounts if a smaller part of the scanned roots were anchors.

To read the index entries of three amounts takes a tenth of the time that it takes to examine a root.
"""

MAX_SECOND_SCAN = 1 / 4
MAX_SCAN_WITHOUT_ANCHORS = 1 / 16
"""The largest part of all roots that the second batch scans if few of the first batch, or none, were anchors.

If few were, and more roots are needed, the second batch is a lookup, except with amounts.

To examine a root takes some four times as long as it adds to a selective lookup, whose time grows with the
cloud if no criterion is rare.
"""

MAX_ANCHORS_PER_CANDIDATE = 8
"""The most anchors for each one with a candidate that the size of a batch assumes."""

MIN_CANDIDATE_RATIO = 1 / 4
"""The part of the anchors that must have yielded a candidate, or the second batch checks combination rules.

That makes it a lookup. To fetch the tree of an anchor and to combine its suppliers in vain takes several
times as long as to look up a root.
"""


@dataclass(frozen=True)
class SearchState:
    """The state of a search after some batches.

    `anchors` counts the anchors that the batches found, and `anchors_with_candidates` those that have yielded
    a candidate which no earlier anchor had yielded. `counted` is the number that is compared with the limit:
    in breadth-first order it is `anchors_with_candidates`, in depth-first order the number of candidates.
    """

    cursor: ScanCursor
    batches: int = 0
    anchors: int = 0
    anchors_with_candidates: int = 0
    counted: int = 0


@dataclass(frozen=True)
class BatchSize:
    """The most anchors that a batch may find (None: all that are left).

    With `roots_to_scan` it finds them by `root_scan` among as many roots, otherwise by `selective_lookup`.
    With `uses_amounts`, only roots whose trees have each amount free are examined, if the server merges sets.
    """

    max_anchors: int | None = None
    roots_to_scan: int | None = None
    uses_amounts: bool = False


def next_batch(
    state: SearchState,
    limit: int,
    *,
    has_rare_criterion: bool,
    has_small_set: bool = False,
    merges_sets: bool = False,
    excludes_by_rules: bool = False,
    root_count: int = 0,
) -> BatchSize | None:
    """Return the size of the next batch, or None if a limited search stops fetching.

    `merges_sets` is whether the server reads ordered sets side by side; then batches after the first can
    leave out the roots whose trees lack an amount. `excludes_by_rules` is whether a lookup can leave out
    trees without a candidate because of combination rules. `root_count` is the approximate number of all
    roots.

    After each batch, it stops if `limit` anchors have each yielded a candidate that no earlier anchor has
    yielded, or if no root is left. The third batch has as many anchors as the limit should need, unless fewer
    than one anchor in `MAX_ANCHORS_PER_CANDIDATE` has yielded a candidate; then it has all that are left, and
    otherwise the fourth has. In depth-first order, `limit` candidates are enough to stop, and the batches
    have the same sizes (`docs/spec/candidates.md 5`).

    So in breadth-first order nine anchors with 54 candidates are not enough for a limit of 10: a tenth tree
    may have a candidate, and the candidates shall be from as many trees as possible.
    """
    if state.counted >= limit or state.cursor.exhausted:
        return None
    match state.batches:
        case 0:
            scans_small_set = has_small_set and not merges_sets
            return _first_batch(limit, has_rare_criterion=has_rare_criterion, scans_small_set=scans_small_set)
        case 1 if excludes_by_rules and _has_few_candidates(state, limit, root_count):
            max_anchors = _with_margin(limit - state.anchors_with_candidates)
            return BatchSize(max_anchors, uses_amounts=_has_few_anchors(state))
        case 1 if merges_sets and _has_few_anchors(state):
            return _batch_with_amounts(state, limit, root_count, has_small_set=has_small_set)
        case 1:
            return _second_batch(state, limit, root_count)
        case 2 if state.anchors <= MAX_ANCHORS_PER_CANDIDATE * state.anchors_with_candidates:
            return BatchSize(_max_anchors(state, limit), uses_amounts=_has_few_anchors(state))
        case _:
            return BatchSize(uses_amounts=_has_few_anchors(state))


def _first_batch(limit: int, *, has_rare_criterion: bool, scans_small_set: bool) -> BatchSize:
    """Return a batch of `limit` anchors: enough if each yields a candidate."""
    if has_rare_criterion:
        return BatchSize(limit)
    factor, extra = FIRST_SCAN
    return BatchSize(limit, max(factor * limit + extra, SMALL_SET_SCAN if scans_small_set else 0))


def _second_batch(state: SearchState, limit: int, root_count: int) -> BatchSize:
    """Return a batch that should be enough if the next roots resemble those of the first batch.

    A batch of all that is left is rare: many anchors would have to yield no candidate because no combination
    has the required traits, or because of rules that no extra filter checks.
    """
    max_anchors = _max_anchors(state, limit)
    if not state.cursor.roots_scanned:
        return BatchSize(max_anchors)
    if not state.anchors:
        return BatchSize(max_anchors, math.floor(MAX_SCAN_WITHOUT_ANCHORS * root_count) or None)
    roots_to_scan = _roots_for(max_anchors, state)
    if _anchor_ratio(state) > MIN_ANCHOR_RATIO or roots_to_scan <= MAX_SECOND_SCAN * root_count:
        return BatchSize(max_anchors, roots_to_scan)
    return BatchSize(max_anchors)


def _batch_with_amounts(state: SearchState, limit: int, root_count: int, *, has_small_set: bool) -> BatchSize:
    """Return a batch that examines only roots whose trees have each amount free; most of them are anchors.

    No index has the roots of a set in the order of their uuids. So in this order, all roots that are left are
    looked up, unless there are enough among some of them.
    """
    max_anchors = _max_anchors(state, limit)
    needed = _roots_for(max_anchors, state) if state.anchors else math.inf
    if _anchor_ratio(state) > MIN_ANCHOR_RATIO:
        return BatchSize(max_anchors, math.ceil(needed), uses_amounts=state.cursor.start is None)
    if state.cursor.start is not None:
        return BatchSize(max_anchors, uses_amounts=True)
    part = MAX_SECOND_SCAN if state.anchors else MAX_SCAN_WITHOUT_ANCHORS
    roots_to_scan = min(needed, math.floor(part * root_count))
    if has_small_set:
        roots_to_scan = max(roots_to_scan, SMALL_SET_SCAN)
    return BatchSize(max_anchors, math.ceil(roots_to_scan) or None, uses_amounts=True)


def _has_few_anchors(state: SearchState) -> bool:
    """Return whether so few of the scanned roots were anchors that the sets of amounts are worth reading."""
    return state.cursor.roots_scanned > 0 and _anchor_ratio(state) < MAX_ANCHOR_RATIO_FOR_AMOUNTS


def _has_few_candidates(state: SearchState, limit: int, root_count: int) -> bool:
    """Return whether few anchors have candidates, and too many roots would be scanned for others.

    If the number of roots is not known, they are not too many: the cloud may be large.
    """
    return (
        state.cursor.roots_scanned > 0
        and state.anchors_with_candidates < MIN_CANDIDATE_RATIO * state.anchors
        and 0 < MAX_SECOND_SCAN * root_count < _roots_for(_max_anchors(state, limit), state)
    )


def _anchor_ratio(state: SearchState) -> float:
    """Return how many anchors have been found for each root that was scanned."""
    return state.anchors / state.cursor.roots_scanned


def _roots_for(anchor_count: int, state: SearchState) -> int:
    """Return twice the number of roots that should have `anchor_count` anchors among them."""
    return math.ceil(2 * anchor_count / _anchor_ratio(state))


def _max_anchors(state: SearchState, limit: int) -> int:
    """Return how many further anchors the limit should need, if they yield as many candidates as before."""
    anchors_per_candidate = min(
        MAX_ANCHORS_PER_CANDIDATE, max(state.anchors, 1) / max(state.anchors_with_candidates, 1)
    )
    return _with_margin(anchors_per_candidate * (limit - state.anchors_with_candidates))


def _with_margin(anchor_count: float) -> int:
    """Return `anchor_count` with a margin: half as many more, and 10."""
    return math.ceil(1.5 * anchor_count) + 10
