"""The anchors among which consumers are placed, delivered in batches as they are needed."""

import heapq
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count
from typing import Protocol

from sqlalchemy import Connection

from placement_svc.db.search.anchors import Anchor, ScanCursor, find_anchors_among
from placement_svc.db.search.batches import BatchPlan, SearchState, fetch_batch, planner_for
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.ordered.anchors import END, AnchorSource
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.domain.combining.ordering import TreePosition
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.placing.placer import LAST_KEY
from placement_svc.domain.placing.tree_orders import Key

CHUNK_GROWTH = 4
"""How many times as many anchors in order each batch has as the one before."""


class AnchorBatches(Protocol):
    """The anchors of one search, in batches."""

    @property
    def horizon(self) -> Key:
        """A lower bound of the keys of trees that have not been delivered; `LAST_KEY` without an order."""

    @property
    def is_complete(self) -> bool:
        """Whether all anchors have been delivered."""

    def among(self, root_ids: Collection[int]) -> Sequence[Anchor]:
        """Return the anchors among these roots; they are not delivered again."""

    def next(self, placed: int) -> Sequence[Anchor] | None:
        """Return further anchors, None if none is left; so many consumers have been placed."""

    def remaining(self) -> Sequence[Anchor]:
        """Return all anchors that are left."""


class UnorderedBatches:
    """Anchors in any order: at first about `limit`, one for each consumer to place and some spare ones."""

    horizon = LAST_KEY

    def __init__(
        self,
        connection: Connection,
        criteria: SearchCriteria,
        shared_supplies: SharedSupplies,
        *,
        start: str | None,
        limit: int,
        deadline: Deadline,
        memory: MemoryBudget,
    ) -> None:
        self._connection = connection
        self._criteria = criteria
        self._shared_supplies = shared_supplies
        self._planner = planner_for(connection, criteria, shared_supplies, limit)
        self._deadline = deadline
        self._memory = memory
        self._state = SearchState(ScanCursor(start=start))
        self._delivered_early = frozenset[int]()

    @property
    def is_complete(self) -> bool:
        """Whether all anchors have been delivered."""
        return self._state.cursor.exhausted

    def among(self, root_ids: Collection[int]) -> Sequence[Anchor]:
        """Return the anchors among these roots; they are not delivered again."""
        self._delivered_early |= frozenset(root_ids)
        return find_anchors_among(
            self._connection,
            self._criteria,
            self._shared_supplies,
            root_ids,
            deadline=self._deadline,
            memory=self._memory,
        )

    def next(self, placed: int) -> Sequence[Anchor] | None:
        """Return the next batch, None if no root is left."""
        plan = self._planner.next(replace(self._state, anchors_with_candidates=placed, counted=placed))
        return None if plan is None else self._fetch(plan)

    def remaining(self) -> Sequence[Anchor]:
        """Return all anchors that are left."""
        return self._fetch(BatchPlan())

    def _fetch(self, plan: BatchPlan) -> Sequence[Anchor]:
        anchors, self._state = fetch_batch(
            self._connection,
            self._criteria,
            self._shared_supplies,
            self._state,
            plan,
            deadline=self._deadline,
            memory=self._memory,
        )
        return [anchor for anchor in anchors if anchor.id not in self._delivered_early]


class OrderedBatches:
    """Anchors in the order of the best rank that their trees can have."""

    def __init__(self, source: AnchorSource, *, limit: int) -> None:
        self._source = source
        self._limit = limit
        self._chunk: int | None = limit
        self._numbers = count()
        self._pending: list[tuple[TreePosition, int, Anchor]] = []
        """A heap of anchors by the positions that their trees do not precede."""
        self.horizon: Key = source.horizon

    @property
    def is_complete(self) -> bool:
        """Whether all anchors have been delivered."""
        return not self._pending and self.horizon == END

    def among(self, root_ids: Collection[int]) -> Sequence[Anchor]:
        """Return the anchors among these roots; they are not delivered again."""
        ids = frozenset(root_ids)
        pending = [each for each in self._pending if each[2].id in ids]
        self._pending = [each for each in self._pending if each[2].id not in ids]
        heapq.heapify(self._pending)
        return [*(anchor for _, _, anchor in pending), *self._source.anchors_among(root_ids)]

    def next(self, placed: int) -> Sequence[Anchor] | None:
        """Return the anchors with the best positions, None if no anchor is left.

        There may be none, if only the horizon has moved: trees behind the former one can be used then.
        """
        if self.is_complete:
            return None
        while self._source.horizon != END and not (self._chunk and self._is_next_known()):
            for position, anchor in self._source.next_batch(max(1, self._limit - placed)):
                heapq.heappush(self._pending, (position, next(self._numbers), anchor))
        anchors: list[Anchor] = []
        while len(anchors) != self._chunk and self._is_next_known():
            anchors.append(heapq.heappop(self._pending)[2])
        self._chunk = self._chunk and self._chunk * CHUNK_GROWTH
        self.horizon = min(self._pending[0][0] if self._pending else END, self._source.horizon)
        return anchors

    def remaining(self) -> Sequence[Anchor]:
        """Return all anchors that are left."""
        self._chunk = None
        return self.next(0) or []

    def _is_next_known(self) -> bool:
        """Return whether no anchor that the source has not delivered precedes the first pending one."""
        return bool(self._pending) and self._pending[0][0] <= self._source.horizon
