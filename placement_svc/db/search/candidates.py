"""A whole search: from the request to its candidates and the providers they are told with."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from placement_svc.db import tally
from placement_svc.db.search.anchors import Options, find_anchors
from placement_svc.db.search.requests import Search, resolve
from placement_svc.db.search.sharing import SharedSupply, find_shared
from placement_svc.db.search.trees import fetch_trees
from placement_svc.domain.candidates import Candidate, Supplier, Terms, combine, in_turn, terms_of
from placement_svc.domain.groups import CandidatesRequest

LOOKS = (1, 8, None)
"""How many trees each look takes in, as a multiple of the limit; the last one takes all that is left.

Nearly always the first look is enough: the trees that SQL finds lack a candidate only when amounts
do not add up, groups cannot be kept apart, or traits of several suppliers do not go together.
"""


@dataclass
class Found:
    """The candidates of a request, in the order of their making, and all providers of their trees."""

    candidates: Iterable[Candidate]
    providers: dict[int, Supplier]


def find_candidates(connection: Connection, request: CandidatesRequest, *, one_per_tree: bool) -> Found:
    """Return what satisfies a request; with `one_per_tree` in the manner of before 1.29.

    Four statements: names, sharing providers, anchors, trees; the last two again, at most twice, when
    a limit is not reached at the first look. How many groups, trees or candidates there are makes no
    difference. Without a limit the candidates are still to be generated when this returns.
    """
    terms = terms_of(request, one_per_tree)
    search = resolve(connection, request, terms)
    shared = find_shared(connection, search)
    looks = _Looks(connection, terms, search, shared)
    if request.limit is None:
        return Found(itertools.chain.from_iterable(looks.look(None)), looks.providers)
    generators: list[Iterator[Candidate]] = []
    firsts: list[Candidate] = []
    for multiple in LOOKS:
        for generator in looks.look(multiple and multiple * request.limit):
            first = next(generator, None)
            if first is not None:
                firsts.append(first)
                generators.append(generator)
        if len(firsts) >= request.limit or looks.exhausted:
            break
    spread = itertools.chain(firsts, in_turn(generators))
    return Found(list(itertools.islice(spread, request.limit)), looks.providers)


class _Looks:
    """Looks at tree after tree, in the order of ids.

    A candidate of sharing providers alone is found around every anchor that they serve; only the
    first time it counts.
    """

    def __init__(
        self, connection: Connection, terms: Terms, search: Search, shared: Sequence[SharedSupply]
    ) -> None:
        self.connection = connection
        self.terms = terms
        self.search = search
        self.shared = shared
        self.sharing = frozenset(supply.provider_id for supply in shared)
        self.homes = {supply.provider_id: supply.root_id for supply in shared}
        self.providers: dict[int, Supplier] = {}
        self.after = 0
        self.exhausted = False
        self.seen_options: set[Options] = set()
        self.seen: set[tuple[int, ...]] = set()

    def look(self, limit: int | None) -> list[Iterator[Candidate]]:
        """Return generators of the candidates around the next anchors, at most `limit` of them."""
        anchors = find_anchors(self.connection, self.search, self.shared, limit, self.after)
        tally.current().trees += len(anchors)
        self.exhausted = limit is None or len(anchors) < limit
        if anchors:
            self.after = anchors[-1][0]
        told = [(anchor, options) for anchor, options in anchors if self._is_new(options)]
        self._fetch(told)
        return [self._candidates(options) for _, options in told]

    def _is_new(self, options: Options) -> bool:
        if not all(self.sharing.issuperset(ids) for ids in options):
            return True
        if options in self.seen_options:
            return False
        self.seen_options.add(options)
        return True

    def _fetch(self, anchors: Iterable[tuple[int, Options]]) -> None:
        """Fetch the trees of all options: an anchor that supplies nothing is not told about."""
        root_ids = {
            self.homes.get(provider_id, anchor)
            for anchor, options in anchors
            for ids in options
            for provider_id in ids
        }
        new = root_ids.difference(self.providers)
        if new:
            self.providers.update(fetch_trees(self.connection, new))

    def _candidates(self, options: Options) -> Iterator[Candidate]:
        suppliers = [[self.providers[id_] for id_ in ids] for ids in options]
        for candidate in combine(self.terms, suppliers):
            ids = tuple(supplier.id for supplier in candidate.suppliers)
            if self.sharing.issuperset(ids):
                if ids in self.seen:
                    continue
                self.seen.add(ids)
            yield candidate
