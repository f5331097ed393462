"""The search for allocation candidates: from a request to its candidates and their provider trees."""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

from sqlalchemy import Connection

from placement_svc.db.search.anchors import Anchor, ScanCursor
from placement_svc.db.search.batches import BatchPlan, SearchState, fetch_batch, planner_for
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.criteria_builder import resolve_criteria
from placement_svc.db.search.ignored_consumers import read_freed_inventories
from placement_svc.db.search.ordered.anchors import AnchorSource
from placement_svc.db.search.ordered.search import OrderedSearch
from placement_svc.db.search.random_root import random_root_uuid
from placement_svc.db.search.repeated_candidates import RepeatedCandidates
from placement_svc.db.search.sharing import SharedSupplies, find_shared_supplies
from placement_svc.db.search.trees import TreeFetcher, Trees
from placement_svc.domain.combining.candidates import (
    Candidate,
    combine_around,
    first_combination,
    is_surely_candidate,
    reserving,
    round_robin,
    size_function,
)
from placement_svc.domain.combining.interfaces import TreeSuppliers
from placement_svc.domain.demands import Demand
from placement_svc.domain.execution import request_stats
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.groups import CandidatesRequest
from placement_svc.domain.inventory import MAX_INTEGER

log = logging.getLogger(__name__)

SHUFFLED_ID_SIZE = 16
"""Bytes of memory that an id in a shuffled list of suppliers, and in a copy of it, needs."""


GENERATOR_SIZE = 1000
"""Bytes of memory that a generator of the candidates around an anchor needs, approximately."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The settings of a search, and what depends on the microversion.

    With `one_provider_per_tree`, a candidate uses at most one provider of each tree (before 1.29).
    `summary_classes` are the resource classes that the summaries show (None: all). `randomize` puts anchors,
    and the suppliers of each demand, in random order. `depth_first` takes all candidates of an anchor before
    those of the next anchor; the default takes one of each anchor, then the next of each.
    `max_candidates` is an upper bound of the request's limit (None: no bound). `memory` is the budget of one
    search: see `with_own_memory`.
    """

    deadline: Deadline
    memory: MemoryBudget
    one_provider_per_tree: bool = False
    summary_classes: frozenset[str] | None = None
    randomize: bool = False
    depth_first: bool = False
    max_candidates: int | None = None

    def with_own_memory(self) -> "SearchOptions":
        """Return these options with a budget of which nothing is reserved.

        Each search starts with one: a read may be repeated on another connection or server, and what the
        failed attempt has reserved is not used any more.
        """
        return replace(self, memory=MemoryBudget(self.memory.limit))


@dataclass(frozen=True)
class SearchResult:
    """The candidates of a request, in the order of their generation, and their provider trees.

    `may_split` is whether a `SplitSupplier` may be in a candidate. `is_fetching` returns whether inventories
    of the trees are still being fetched: see `candidate_search`.
    """

    demands: Sequence[Demand]
    candidates: Iterable[Candidate]
    trees: Trees
    deadline: Deadline
    may_split: bool
    is_fetching: Callable[[], bool]


def find_candidates(
    connection: Connection, request: CandidatesRequest, options: SearchOptions
) -> SearchResult:
    """Return the candidates of a request.

    Without `preferred` and `order_by`, four statements: names, sharing providers (omitted if no provider
    shares), anchors and their trees; one more if amounts of several groups have to be summed, one if classes
    may be split, and one if there are many trees. The statements after the first two run again for each
    further batch, of which there are at most three. A request that ignores consumers has one more, at the
    start. A search in random order draws roots now and then. More groups or candidates make a statement
    larger, but add none.

    Without a limit, the candidates are not generated yet when this returns. With `preferred` or `order_by`,
    neither `randomize` nor `depth_first` has an effect.
    """
    with candidate_search(connection, request, options) as result:
        return result


@contextmanager
def candidate_search(
    connection: Connection, request: CandidatesRequest, options: SearchOptions
) -> Iterator[SearchResult]:
    """Yield what `find_candidates` returns, at whose end the inventories of all trees have been fetched.

    Until then, the caller can use the candidates and the providers, but not the connection.
    """
    options = options.with_own_memory()
    # The search may be a repetition, after a lost connection or to get a long slot.
    request_stats.current().anchors = 0
    freed = read_freed_inventories(connection, request.ignore_consumer, options.deadline, options.memory)
    criteria = resolve_criteria(
        connection, request, one_provider_per_tree=options.one_provider_per_tree, freed=freed
    )
    shared_supplies = find_shared_supplies(connection, criteria, options.deadline, options.memory)
    limits = [each for each in (request.limit, options.max_candidates) if each is not None]
    # Numbers of roots that follow from the limit are parameters of statements.
    limit = min(*limits, MAX_INTEGER) if limits else None
    rules = criteria.rules
    trees = Trees(
        options.summary_classes, rules.summed_classes, options.memory, freed, rules.splittable_classes
    )
    needs_providers = bool(rules.may_exclude or rules.splittable or request.preferred)
    with TreeFetcher(connection, trees, needs_providers) as fetcher:
        search: CandidateSearch | OrderedSearch
        if criteria.ordering is None:
            search = CandidateSearch(connection, criteria, shared_supplies, options, fetcher)
        else:
            source = AnchorSource(
                connection,
                criteria,
                criteria.ordering,
                shared_supplies,
                options.deadline,
                options.memory,
                limit,
                freed,
            )
            search = OrderedSearch(source, fetcher)
        candidates = search.find_all() if limit is None else search.find(limit)
        fetcher.wait_for_providers()
        may_split = bool(rules.splittable)
        yield SearchResult(rules.demands, candidates, trees, options.deadline, may_split, fetcher.is_fetching)
        fetcher.wait()


class CandidateSearch:
    """One search: fetches batches of anchors with their trees, and combines the suppliers of each anchor."""

    def __init__(
        self,
        connection: Connection,
        criteria: SearchCriteria,
        shared_supplies: SharedSupplies,
        options: SearchOptions,
        fetcher: TreeFetcher,
    ) -> None:
        self._connection = connection
        self._criteria = criteria
        self._shared_supplies = shared_supplies
        self._options = options
        self._fetcher = fetcher
        self._repeated = RepeatedCandidates(shared_supplies, options.deadline, options.memory)
        self._may_skip_combining = not (shared_supplies or options.randomize)
        """Whether `first_combination` is the first candidate of an anchor, and no other one has it, if it is
        surely a candidate.
        """

    def find_all(self) -> Iterator[Candidate]:
        """Return a generator of all candidates; all anchors and their trees are fetched at once."""
        anchors, _ = self._fetch_batch(self._initial_state(), BatchPlan())
        return (candidate for anchor in anchors for candidate in self._combine(anchor))

    def find(self, limit: int) -> list[Candidate]:
        """Return at most `limit` candidates: fetch a batch of anchors, combine, decide whether to continue.

        In breadth-first order the loop takes the first new candidate of each anchor, so that the candidates
        are from as many trees as possible. If fewer than `limit` anchors yield one, further candidates of
        the same anchors follow in turn, until there are `limit` or none is left.
        """
        depth_first, memory = self._options.depth_first, self._options.memory
        rules = self._criteria.rules
        size = size_function(rules)
        planner = planner_for(self._connection, self._criteria, self._shared_supplies, limit)
        state = self._initial_state()
        candidates: list[Candidate] = []
        generators: list[Iterator[Candidate]] = []
        while plan := planner.next(state):
            anchors, state = self._fetch_batch(state, plan)
            for first, generator in self._each_first(anchors):
                if first is None:
                    continue
                memory.reserve(size(first))
                candidates.append(first)
                if depth_first:
                    candidates += islice(reserving(generator, rules, memory), limit - len(candidates))
                generators.append(generator)
                if len(candidates) == limit:
                    break
            state = replace(state, anchors_with_candidates=len(generators), counted=len(candidates))
        candidates += islice(reserving(round_robin(generators), rules, memory), limit - len(candidates))
        return candidates

    def _initial_state(self) -> SearchState:
        start = random_root_uuid(self._connection) if self._options.randomize else None
        return SearchState(ScanCursor(start=start))

    def _fetch_batch(self, state: SearchState, plan: BatchPlan) -> tuple[list[Anchor], SearchState]:
        """Return the next anchors that can yield new candidates, their trees fetched, and the state after."""
        self._fetcher.wait()
        all_anchors, after = fetch_batch(
            self._connection,
            self._criteria,
            self._shared_supplies,
            state,
            plan,
            deadline=self._options.deadline,
            memory=self._options.memory,
        )
        log.debug(
            "Batch %d: %s%s for at most %s anchors found %d; %d roots scanned so far",
            after.batches,
            "lookup" if plan.roots_to_scan is None else f"scan of at most {plan.roots_to_scan} roots",
            " with the amounts" if plan.uses_amounts else "",
            plan.max_anchors,
            len(all_anchors),
            after.cursor.roots_scanned,
        )
        anchors = self._repeated.new_anchors(all_anchors)
        request_stats.current().anchors += len(anchors)
        self._fetcher.fetch(self._repeated.root_ids(anchors))
        if self._options.randomize:
            random.shuffle(anchors)
        return anchors, after

    def _each_first(
        self, anchors: Iterable[Anchor]
    ) -> Iterator[tuple[Candidate | None, Iterator[Candidate]]]:
        """Yield for each anchor its first candidate, None if it has none, and a generator of the others.

        The memory that is needed to keep the generators is reserved.
        """
        rules, trees, memory = self._criteria.rules, self._fetcher.trees, self._options.memory
        has_rules = bool(rules.may_exclude or rules.splittable)
        for anchor in self._options.deadline.checked(anchors):
            if self._may_skip_combining:
                first = first_combination(anchor.supplier_ids)
                if not has_rules or is_surely_candidate(rules, first, trees):
                    # Most hosts have no others, and most searches want none, so combining waits until then.
                    if {1}.issuperset(map(len, anchor.supplier_ids)):
                        yield first, iter(())
                        continue
                    memory.reserve(GENERATOR_SIZE)
                    yield first, self._others(anchor)
                    continue
            generator = self._combine(anchor)
            found = next(generator, None)
            if found is not None:
                memory.reserve(GENERATOR_SIZE)
            yield found, generator

    def _others(self, anchor: Anchor) -> Iterator[Candidate]:
        """Yield the candidates around an anchor, except for the first one."""
        yield from islice(self._combine(anchor), 1, None)

    def _combine(self, anchor: Anchor) -> Iterator[Candidate]:
        """Return a generator of the candidates around an anchor."""
        options = self._options
        supplier_ids: Sequence[Sequence[int]] = anchor.supplier_ids
        if options.randomize:
            options.memory.reserve(SHUFFLED_ID_SIZE * sum(map(len, supplier_ids)))
            supplier_ids = [random.sample(ids, len(ids)) for ids in options.deadline.checked(supplier_ids)]
        candidates = combine_around(
            TreeSuppliers(
                anchor.id,
                self._criteria.rules,
                supplier_ids,
                self._fetcher.trees,
                options.deadline,
                options.memory,
            )
        )
        return self._repeated.new_candidates(candidates)
