"""A whole search: from the request to its candidates and the providers they are told with."""

import itertools
import math
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from sqlalchemy import Connection

from placement_svc.db.search.anchors import Anchor, Walk, find_anchors
from placement_svc.db.search.requests import Search, resolve
from placement_svc.db.search.sharing import SharedSupply, find_shared
from placement_svc.db.search.trees import Trees
from placement_svc.domain.candidates import Candidate, combine, in_turn
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.demands import Demand
from placement_svc.domain.groups import CandidatesRequest
from placement_svc.observability import request_stats

WORTHWHILE = 1 / 20
"""Of the roots looked at one by one, the part that must be anchors to go on like that."""

FIRST_STEPS = (4, 100)
"""How many roots the first look takes in at most: a multiple of the limit, and some more."""

MANY = 100
"""Trees of which the rest is worth a thread that fetches it while the candidates are combined."""

MOST_TRIES = 8
"""How many trees the second look takes in at most for each candidate that the first one has left missing."""


@dataclass(frozen=True)
class Manner:
    """How candidates are looked for, apart from what is asked.

    With `one_per_tree` it is done in the manner of before 1.29. `shown` are the resource classes that
    summaries tell of (None: all). With `randomize` the trees come in random order, and so do the
    providers of each. `depth_first` gives all candidates of a tree before the next one's, otherwise
    the trees take turns. `maximum` holds for requests without a limit, and for higher ones (None: none).
    """

    deadline: Deadline
    one_per_tree: bool = False
    shown: frozenset[str] | None = None
    randomize: bool = False
    depth_first: bool = False
    maximum: int | None = None


@dataclass(frozen=True)
class Found:
    """The candidates of a request, in the order of their making, and all providers of their trees."""

    demands: Sequence[Demand]
    candidates: Iterable[Candidate]
    trees: Trees


def find_candidates(connection: Connection, request: CandidatesRequest, manner: Manner) -> Found:
    """Return what satisfies a request.

    Five statements: names, sharing providers (not if there are none), anchors, trees, what these have;
    and one more for what there is room for if that is asked. When a limit is not reached at the first
    look, anchors, trees and what belongs to them are asked for again, at most twice. How many groups,
    trees or candidates there are makes no difference. Without a limit the candidates are still to be
    generated when this returns.
    """
    search = resolve(connection, request, one_per_tree=manner.one_per_tree)
    shared = find_shared(connection, search)
    limit = min((n for n in (request.limit, manner.maximum) if n is not None), default=None)
    candidates: Iterable[Candidate]
    with ThreadPoolExecutor(1) as beside:
        looks = _Looks(connection, search, shared, manner, beside)
        if limit is None:
            candidates = itertools.chain.from_iterable(looks.all_at_once())
        elif manner.depth_first:
            candidates = list(itertools.islice(itertools.chain.from_iterable(looks.until(limit)), limit))
        else:
            candidates = list(_spread(looks.until(limit), limit))
        looks.wait()
        return Found(search.terms.demands, candidates, looks.trees)


def _spread(generators: Iterable[Iterator[Candidate]], limit: int) -> Iterator[Candidate]:
    """Return the first candidate of each generator, then the next of each, until the limit.

    No more generators are asked for than have to be.
    """
    going_on: list[Iterator[Candidate]] = []
    firsts: list[Candidate] = []
    for generator in generators:
        first = next(generator, None)
        if first is not None:
            firsts.append(first)
            going_on.append(generator)
        if len(firsts) == limit:
            break
    return itertools.islice(itertools.chain(firsts, in_turn(going_on)), limit)


class _Looks:
    """Looks at tree after tree.

    A candidate of sharing providers alone is found around every anchor that they serve; only the
    first time it counts.
    """

    def __init__(
        self,
        connection: Connection,
        search: Search,
        shared: Sequence[SharedSupply],
        manner: Manner,
        beside: Executor,
    ) -> None:
        self.connection = connection
        self.beside = beside
        self.fetching: Future[None] | None = None
        """What uses the connection, so that nothing else may, until it is done."""
        self.search = search
        self.shared = shared
        self.manner = manner
        self.sharing = frozenset(supply.provider_id for supply in shared)
        self.homes = {supply.provider_id: supply.root_id for supply in shared}
        self.trees = Trees(manner.shown, search.terms.summed)
        self.walk = Walk(start=str(uuid4()) if manner.randomize else None)
        self.looked_at = 0
        self.fruitful = 0
        """How many of the trees looked at have given a candidate."""
        self.seen_options: set[tuple[tuple[int, ...], ...]] = set()
        self.seen: set[Candidate] = set()

    def all_at_once(self) -> Iterator[Iterator[Candidate]]:
        """Return generators of the candidates around every anchor."""
        return map(self._candidates, self._look(None))

    def until(self, limit: int) -> Iterator[Iterator[Candidate]]:
        """Yield generators of the candidates around one anchor after the other.

        As many as make up the limit are looked for at first, and if that was not enough as many as
        should be, going by what came of the first. That the third look takes in all that is left is
        rare: many trees that SQL finds would have to lack a candidate because amounts do not add up,
        groups cannot be kept apart, or traits of several suppliers do not go together.
        """
        multiple, more = FIRST_STEPS
        steps = None if self._is_scarce() else multiple * limit + more
        yield from map(self._candidates, self._look(limit, steps))
        if self.walk.ended:
            return
        tries = min(MOST_TRIES, self.looked_at / max(self.fruitful, 1))
        wanted = math.ceil(1.5 * tries * (limit - self.fruitful)) + 10
        anchors_a_step = self.looked_at / self.walk.steps if self.walk.steps else 0
        steps = math.ceil(2 * wanted / anchors_a_step) if anchors_a_step > WORTHWHILE else None
        yield from map(self._candidates, self._look(wanted, steps))
        if not self.walk.ended:
            yield from self.all_at_once()

    def wait(self) -> None:
        """Return when the connection is free, and all is there that belongs to the trees."""
        if self.fetching is not None:
            self.fetching.result()

    def _is_scarce(self) -> bool:
        return self.search.is_scarce({supply.demand for supply in self.shared})

    def _look(self, limit: int | None, steps: int | None = None) -> list[Anchor]:
        """Return the next anchors, their trees fetched."""
        self.wait()
        anchors = find_anchors(self.connection, self.search, self.shared, self.walk, limit, steps)
        self.looked_at += len(anchors)
        request_stats.current().trees += len(anchors)
        told = [anchor for anchor in anchors if self._is_new(anchor)] if self.sharing else anchors
        self._fetch(self._homes(told))
        if self.manner.randomize:
            random.shuffle(told)
        return told

    def _fetch(self, root_ids: Iterable[int]) -> None:
        """Fetch the trees that are not there; of many, PostgreSQL looks for the rest while we combine."""
        new = [id_ for id_ in root_ids if id_ not in self.trees.providers]
        if not new:
            return
        self.trees.fetch(self.connection, new)
        fetch_rest = partial(self.trees.fetch_rest, self.connection, new)
        if len(new) < MANY or self.search.terms.clauses:
            fetch_rest()
        else:
            # In this context, so that the statement counts for this request.
            self.fetching = self.beside.submit(copy_context().run, fetch_rest)

    def _is_new(self, anchor: Anchor) -> bool:
        if not all(self.sharing.issuperset(ids) for ids in anchor.options):
            return True
        if anchor.options in self.seen_options:
            return False
        self.seen_options.add(anchor.options)
        return True

    def _homes(self, anchors: Collection[Anchor]) -> Collection[int]:
        """Return the roots of all options: an anchor that supplies nothing is not told about."""
        if not self.sharing:
            return [anchor.id for anchor in anchors]
        return {
            self.homes.get(provider_id, anchor.id)
            for anchor in anchors
            for ids in anchor.options
            for provider_id in ids
        }

    def _candidates(self, anchor: Anchor) -> Iterator[Candidate]:
        options: Sequence[Sequence[int]] = anchor.options
        if self.manner.randomize:
            options = [random.sample(ids, len(ids)) for ids in options]
        candidates = combine(self.search.terms, options, self.trees, self.manner.deadline)
        if self.sharing:
            candidates = filter(self._counts, candidates)
        first = next(candidates, None)
        if first is None:
            return iter(())
        self.fruitful += 1
        return itertools.chain((first,), candidates)

    def _counts(self, candidate: Candidate) -> bool:
        """Tell whether a candidate counts: one of sharing providers alone only the first time."""
        if not self.sharing.issuperset(candidate):
            return True
        if candidate in self.seen:
            return False
        self.seen.add(candidate)
        return True
