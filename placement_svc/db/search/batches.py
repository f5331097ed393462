"""The plan of the batches of a limited search, and when it stops fetching them."""

import math
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from placement_svc.db.search.anchors import Anchor, ScanCursor, find_anchors, merges_sets
from placement_svc.db.search.combination_conditions import can_exclude_trees
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.root_sets import has_small_set
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget

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
class BatchPlan:
    """The most anchors that a batch may find (None: all that are left), and how it finds them.

    With `roots_to_scan` it finds them by `root_scan` among as many roots, otherwise by `selective_lookup`.
    With `uses_amounts`, only roots whose trees have each amount free are examined, if the server merges sets.
    """

    max_anchors: int | None = None
    roots_to_scan: int | None = None
    uses_amounts: bool = False


@dataclass(frozen=True)
class BatchPlanner:
    """Plans the batches of one search, whose `limit` is that of its candidates.

    `has_rare_criterion` is whether few trees have the amounts of some criteria, and `has_small_set` whether
    the filters allow only few roots. `merges_sets` is whether the server reads ordered sets side by side;
    then batches after the first can leave out the roots whose trees lack an amount. `excludes_by_rules` is
    whether a lookup can leave out trees without a candidate because of combination rules. `root_count` is the
    approximate number of all roots (0: not known).
    """

    limit: int
    has_rare_criterion: bool = False
    has_small_set: bool = False
    merges_sets: bool = False
    excludes_by_rules: bool = False
    root_count: int = 0

    def next(self, state: SearchState) -> BatchPlan | None:
        """Return the plan of the next batch, or None if the search stops fetching.

        After each batch, it stops if `limit` anchors have each yielded a candidate that no earlier anchor has
        yielded, or if no root is left. The third batch has as many anchors as the limit should need, unless
        fewer than one anchor in `MAX_ANCHORS_PER_CANDIDATE` has yielded a candidate; then it has all that are
        left, and otherwise the fourth has. In depth-first order, `limit` candidates are enough to stop, and
        the batches have the same sizes (`docs/spec/candidates.md 5`).

        So in breadth-first order nine anchors with 54 candidates are not enough for a limit of 10: a tenth
        tree may have a candidate, and the candidates shall be from as many trees as possible.
        """
        if state.counted >= self.limit or state.cursor.exhausted:
            return None
        match state.batches:
            case 0:
                return self._first_batch()
            case 1 if self.excludes_by_rules and self._has_few_candidates(state):
                max_anchors = _with_margin(self.limit - state.anchors_with_candidates)
                return BatchPlan(max_anchors, uses_amounts=_has_few_anchors(state))
            case 1 if self.merges_sets and _has_few_anchors(state):
                return self._batch_with_amounts(state)
            case 1:
                return self._second_batch(state)
            case 2 if state.anchors <= MAX_ANCHORS_PER_CANDIDATE * state.anchors_with_candidates:
                return BatchPlan(self._max_anchors(state), uses_amounts=_has_few_anchors(state))
            case _:
                return BatchPlan(uses_amounts=_has_few_anchors(state))

    def _first_batch(self) -> BatchPlan:
        """Return a batch of `limit` anchors: enough if each yields a candidate."""
        if self.has_rare_criterion:
            return BatchPlan(self.limit)
        factor, extra = FIRST_SCAN
        least = SMALL_SET_SCAN if self.has_small_set and not self.merges_sets else 0
        return BatchPlan(self.limit, max(factor * self.limit + extra, least))

    def _second_batch(self, state: SearchState) -> BatchPlan:
        """Return a batch that should be enough if the next roots resemble those of the first batch.

        A batch of all that is left is rare: many anchors would have to yield no candidate because no
        combination has the required traits, or because of rules that no extra filter checks.
        """
        max_anchors = self._max_anchors(state)
        if not state.cursor.roots_scanned:
            return BatchPlan(max_anchors)
        if not state.anchors:
            return BatchPlan(max_anchors, math.floor(MAX_SCAN_WITHOUT_ANCHORS * self.root_count) or None)
        roots_to_scan = _roots_for(max_anchors, state)
        if _anchor_ratio(state) > MIN_ANCHOR_RATIO or roots_to_scan <= MAX_SECOND_SCAN * self.root_count:
            return BatchPlan(max_anchors, roots_to_scan)
        return BatchPlan(max_anchors)

    def _batch_with_amounts(self, state: SearchState) -> BatchPlan:
        """Return a batch that examines only roots whose trees have each amount free; most are anchors.

        No index has the roots of a set in the order of their uuids. So in this order, all roots that are left
        are looked up, unless there are enough among some of them.
        """
        max_anchors = self._max_anchors(state)
        needed = _roots_for(max_anchors, state) if state.anchors else math.inf
        if _anchor_ratio(state) > MIN_ANCHOR_RATIO:
            return BatchPlan(max_anchors, math.ceil(needed), uses_amounts=state.cursor.start is None)
        if state.cursor.start is not None:
            return BatchPlan(max_anchors, uses_amounts=True)
        part = MAX_SECOND_SCAN if state.anchors else MAX_SCAN_WITHOUT_ANCHORS
        roots_to_scan = min(needed, math.floor(part * self.root_count))
        if self.has_small_set:
            roots_to_scan = max(roots_to_scan, SMALL_SET_SCAN)
        return BatchPlan(max_anchors, math.ceil(roots_to_scan) or None, uses_amounts=True)

    def _has_few_candidates(self, state: SearchState) -> bool:
        """Return whether few anchors have candidates, and too many roots would be scanned for others.

        If the number of roots is not known, they are not too many: the cloud may be large.
        """
        return (
            state.cursor.roots_scanned > 0
            and state.anchors_with_candidates < MIN_CANDIDATE_RATIO * state.anchors
            and 0 < MAX_SECOND_SCAN * self.root_count < _roots_for(self._max_anchors(state), state)
        )

    def _max_anchors(self, state: SearchState) -> int:
        """Return how many further anchors should be enough, if they yield as many candidates as before."""
        anchors_per_candidate = min(
            MAX_ANCHORS_PER_CANDIDATE, max(state.anchors, 1) / max(state.anchors_with_candidates, 1)
        )
        return _with_margin(anchors_per_candidate * (self.limit - state.anchors_with_candidates))


def planner_for(
    connection: Connection, criteria: SearchCriteria, shared_supplies: SharedSupplies, limit: int
) -> BatchPlanner:
    """Return the planner of a search for as many candidates."""
    return BatchPlanner(
        limit,
        has_rare_criterion=criteria.has_rare_criterion(shared_supplies.keys()),
        has_small_set=has_small_set(criteria, shared_supplies),
        merges_sets=merges_sets(connection),
        excludes_by_rules=can_exclude_trees(criteria, shared_supplies),
        root_count=criteria.root_count,
    )


def fetch_batch(
    connection: Connection,
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    state: SearchState,
    plan: BatchPlan,
    *,
    deadline: Deadline,
    memory: MemoryBudget,
) -> tuple[list[Anchor], SearchState]:
    """Return the anchors of the next batch, and the state after it, with one statement.

    The state does not count yet which anchors yield candidates. Raises what `find_anchors` raises.
    """
    anchors, cursor = find_anchors(
        connection,
        criteria,
        shared_supplies,
        state.cursor,
        max_anchors=plan.max_anchors,
        roots_to_scan=plan.roots_to_scan,
        uses_amounts=plan.uses_amounts,
        # If no anchor is found, no tree has a supplier for each demand: the metrics count these searches.
        checks_rules=state.anchors > 0,
        deadline=deadline,
        memory=memory,
    )
    return anchors, replace(
        state, cursor=cursor, batches=state.batches + 1, anchors=state.anchors + len(anchors)
    )


def _has_few_anchors(state: SearchState) -> bool:
    """Return whether so few of the scanned roots were anchors that the sets of amounts are worth reading."""
    return state.cursor.roots_scanned > 0 and _anchor_ratio(state) < MAX_ANCHOR_RATIO_FOR_AMOUNTS


def _anchor_ratio(state: SearchState) -> float:
    """Return how many anchors have been found for each root that was scanned."""
    return state.anchors / state.cursor.roots_scanned


def _roots_for(anchor_count: int, state: SearchState) -> int:
    """Return twice the number of roots that should have `anchor_count` anchors among them."""
    return math.ceil(2 * anchor_count / _anchor_ratio(state))


def _with_margin(anchor_count: float) -> int:
    """Return `anchor_count` with a margin: half as many more, and 10."""
    return math.ceil(1.5 * anchor_count) + 10
