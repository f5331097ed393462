"""The search for candidates in the order of `preferred` and `order_by` (`docs/spec/extensions.md 2`)."""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain, count, islice
from operator import itemgetter

from placement_svc.db.search.anchors import Anchor
from placement_svc.db.search.ordered.anchors import END, AnchorSource
from placement_svc.db.search.repeated_candidates import FirstAnchors, RepeatedCandidates
from placement_svc.db.search.trees import TreeFetcher
from placement_svc.domain.combining.candidates import (
    Candidate,
    first_combination,
    is_surely_candidate,
    reserving,
    round_robin,
)
from placement_svc.domain.combining.interfaces import TreeSuppliers
from placement_svc.domain.combining.ordered_candidates import by_score, ordered_candidates
from placement_svc.domain.combining.ordering import Rank, RankedCandidates, TreePosition
from placement_svc.domain.execution import request_stats

TREE_SIZE = 1500
"""Bytes of memory that a tree with the generator of its candidates needs, approximately."""

MIN_WITHOUT_CANDIDATES = 10
MAX_RATIO_WITHOUT_CANDIDATES = 1 / 320
"""How many trees without a candidate may be combined in order, and the part of all roots that may be.

To combine one takes as long as to examine 40 roots. If most trees have no candidate, all anchors are found at
once, without those that the combination rules exclude: for each root, that costs an eighth of the time.
"""

MIN_RATIO_WITH_CANDIDATES = 1 / 8
"""The part of the combined trees that must have candidates; otherwise most have none."""

CHUNK_GROWTH = 4
"""How many times as many trees are combined at a time once so many have not sufficed."""


class OrderedSearch:
    """One search: combines trees in the order of their bounds, until no other can precede those found."""

    def __init__(self, source: AnchorSource, fetcher: TreeFetcher) -> None:
        self._source = source
        self._fetcher = fetcher
        self._first_anchors = FirstAnchors(source.shared_supplies, source.deadline, source.memory)
        self._repeated = RepeatedCandidates(source.shared_supplies, source.deadline, source.memory)
        self._numbers = count()
        self._pending: list[tuple[TreePosition, int, Anchor]] = []
        """A heap of the trees that are to be combined, by their bounds."""
        self._found: list[tuple[TreePosition, int, Anchor, RankedCandidates]] = []
        """A heap of the trees that have candidates, by their positions."""
        self._combined = 0
        """How many trees have been combined."""
        self._without_candidates = 0
        """How many of them have no candidate."""

    def find_all(self) -> Iterator[Candidate]:
        """Return a generator of all candidates; all trees are fetched, and their first candidates found."""
        return self._in_order(list(self._trees(None)))

    def find(self, limit: int) -> list[Candidate]:
        """Return the first `limit` candidates."""
        candidates = self._in_order(self._trees(limit))
        rules, memory = self._source.criteria.rules, self._source.memory
        return list(islice(reserving(candidates, rules, memory), limit))

    def _in_order(self, trees: Iterable[tuple[TreePosition, RankedCandidates]]) -> Iterator[Candidate]:
        """Yield the candidates of these trees in the order of the response."""
        if self._source.ordering.order_by is None:
            yield from by_score(trees)
            return
        generators: list[Iterator[Candidate]] = []
        for _, ranked in trees:
            generator = map(itemgetter(1), ranked)
            first = next(generator, None)
            if first is not None:
                yield first
                generators.append(generator)
        yield from round_robin(generators)

    def _trees(self, limit: int | None) -> Iterator[tuple[TreePosition, RankedCandidates]]:
        """Yield the candidates of each tree, tree by tree in order.

        At most `limit` trees are combined at first (None: all), of however many batches. No tree is combined
        before there are as many as are wanted: to fetch them in two parts takes longer.
        """
        source = self._source
        chunk = left = limit
        delivered = 0
        while True:
            next_bound = min(self._pending[0][0] if self._pending else END, source.horizon)
            while self._found and self._found[0][0] <= next_bound:
                position, _, anchor, candidates = heappop(self._found)
                delivered += 1
                yield position, self._first_anchors.new_candidates(anchor, candidates)
            wanted = max(1, (limit or 0) - delivered)
            pending, found = self._before_horizon(self._pending), self._before_horizon(self._found)
            if pending and (pending + found >= wanted or source.horizon == END):
                combined = self._combine_next(left)
                left = left and left - combined
                if left == 0:
                    chunk = left = chunk and chunk * CHUNK_GROWTH
            elif source.horizon != END:
                self._fetcher.wait()
                if self._most_lack_candidates():
                    source.leave_order()
                for bound, anchor in source.next_batch(wanted - pending):
                    heappush(self._pending, (bound, next(self._numbers), anchor))
            else:
                return

    def _before_horizon(self, heap: Iterable[tuple[TreePosition, *tuple[object, ...]]]) -> int:
        """Return how many trees of a heap come before all trees that have not been delivered."""
        return sum(position <= self._source.horizon for position, *_ in heap)

    def _most_lack_candidates(self) -> bool:
        """Return whether so many trees had no candidate that it is faster to find all anchors at once."""
        most = max(MIN_WITHOUT_CANDIDATES, MAX_RATIO_WITHOUT_CANDIDATES * self._source.criteria.root_count)
        return (
            self._without_candidates > most
            and self._combined - self._without_candidates < MIN_RATIO_WITH_CANDIDATES * self._combined
        )

    def _combine_next(self, chunk: int | None) -> int:
        """Combine the pending trees with the best bounds, and keep those that have candidates.

        Return how many were pending: at most `chunk`. If several trees have the same suppliers, all of which
        are sharing providers, only the first one is combined: the others have the same candidates.
        """
        source = self._source
        bounds: dict[int, TreePosition] = {}
        anchors: list[Anchor] = []
        while self._pending and len(anchors) != chunk and self._pending[0][0] <= source.horizon:
            bound, _, anchor = heappop(self._pending)
            bounds[anchor.id] = bound
            anchors.append(anchor)
        new = self._repeated.new_anchors(anchors)
        request_stats.current().anchors += len(new)
        self._fetcher.wait()
        self._fetcher.fetch(self._repeated.root_ids(new))
        for anchor in new:
            source.memory.reserve(TREE_SIZE)
            score, key, _ = bounds[anchor.id]
            ranked = self._ranked(anchor, (score, key))
            first = next(ranked, None)
            self._combined += 1
            self._without_candidates += first is None
            if first is not None:
                position = source.position(anchor, first[0])
                heappush(self._found, (position, next(self._numbers), anchor, chain([first], ranked)))
        return len(anchors)

    def _ranked(self, anchor: Anchor, best: Rank) -> RankedCandidates:
        """Return a generator of the candidates around an anchor by rank; `best` is its `best_rank`."""
        source, trees = self._source, self._fetcher.trees
        rules, suppliers = source.criteria.rules, anchor.supplier_ids
        if {1}.issuperset(map(len, suppliers)):
            # Most hosts that are one provider.
            only = first_combination(suppliers)
            if is_surely_candidate(rules, only, trees):
                return iter([(best, only)])
        tree = TreeSuppliers(anchor.id, rules, suppliers, trees, source.deadline, source.memory)
        return ordered_candidates(source.ordering, source.facts, tree, best)
