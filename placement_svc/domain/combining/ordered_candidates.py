"""The candidates of one tree, or of several, in the order of their ranks (`docs/spec/extensions.md 2`)."""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import combinations, islice
from math import inf
from operator import ge, gt

from placement_svc.domain.combining.candidates import Candidate, combine
from placement_svc.domain.combining.interfaces import SuppliersByDemand, TreeSuppliers
from placement_svc.domain.combining.ordering import (
    Ordering,
    Rank,
    RankedCandidates,
    SupplierFacts,
    TreePosition,
    best_rank,
    distinct_suppliers,
    key_of,
)
from placement_svc.domain.combining.same_subtree import in_subtrees
from placement_svc.domain.combining.shared_lists import change_each, distinct_lists
from placement_svc.domain.combining.split_suppliers import SplitSupplier, provider_ids_of
from placement_svc.domain.combining.splitting import all_suppliers
from placement_svc.domain.execution.deadline import Deadline

MAX_SORTED_SUPPLIERS = 64
"""The suppliers of a tree up to which they are sorted before its first candidate is known.

A limited search wants one candidate of most trees, and thousands of sharing providers can supply to each.
"""

UNCHECKED_LEVELS = 2
"""How many lists of suppliers are combined for a key before it is known whether the tree has any candidate.

Most trees have one. Those without one may have thousands of keys, each with its own list.
"""

LISTED_SUPPLIER_SIZE = 100
"""Bytes of memory that a supplier in the lists of a tree's levels needs, approximately."""


def by_score(trees: Iterable[tuple[TreePosition, RankedCandidates]]) -> Iterator[Candidate]:
    """Yield the candidates of all trees by score; the cost depends on how many are taken.

    `trees` are in the order of their positions. Of each score, the first candidate of each tree comes first,
    then the second of each, and so on, with the trees in the order of their uuids.
    """
    following: list[tuple[float, int, str, Candidate, RankedCandidates]] = []
    """A heap of the next candidate of each tree: its score, its number among those of this score, uuid."""

    def add(uuid: str, candidates: RankedCandidates, last: tuple[float, int]) -> None:
        ranked = next(candidates, None)
        if ranked is not None:
            (score, _), candidate = ranked
            number = last[1] + 1 if score == last[0] else 0
            heappush(following, (score, number, uuid, candidate, candidates))

    def until(position: tuple[float, int, str]) -> Iterator[Candidate]:
        while following and following[0][:3] <= position:
            score, number, uuid, candidate, candidates = heappop(following)
            yield candidate
            add(uuid, candidates, (score, number))

    for (score, _, uuid), candidates in trees:
        add(uuid, candidates, (score, -1))
        yield from until((score, 0, uuid))
    yield from until((inf, 0, ""))


def ordered_candidates(
    ordering: Ordering, facts: SupplierFacts, tree: TreeSuppliers, best: Rank
) -> RankedCandidates:
    """Return a generator of the candidates of a tree by rank, with their ranks.

    The cost depends on how many are taken. `best` is the `best_rank` of the suppliers. Candidates of the same
    rank are in an order that depends on uuids only. The candidates of each rank are found by themselves: a
    rank restricts the suppliers, and demands that they have certain traits together.
    """
    if tree.rules.splittable:
        with_splits = all_suppliers(tree)
        if with_splits is None:
            return iter(())
        tree = tree._replace(suppliers=with_splits)
        facts = _facts_with_splits(ordering, facts, tree.suppliers)
        best = best_rank(ordering, facts, tree.suppliers, tree.deadline)
    left = in_subtrees(tree.rules, tree.suppliers, tree.providers.path, tree.deadline)
    if not all(left):
        return iter(())
    if left != tree.suppliers:
        tree = tree._replace(suppliers=left)
        best = best_rank(ordering, facts, left, tree.deadline)
    if max(map(len, tree.suppliers), default=1) == 1:
        return ((best, candidate) for candidate in _combine(tree, tree.suppliers))
    if ordering.preferred:
        # Otherwise, the candidates of each rank would be searched by themselves.
        return _by_rank(ordering, facts, tree) if _has_candidate(tree, tree.suppliers) else iter(())
    if sum(map(len, tree.suppliers)) > MAX_SORTED_SUPPLIERS:
        return _best_first(ordering, facts, tree, best)
    return _by_key(ordering, facts, tree, best)


def _best_first(
    ordering: Ordering, facts: SupplierFacts, tree: TreeSuppliers, best: Rank
) -> RankedCandidates:
    """Yield the same as `_by_key`, but sort the suppliers only if the best combination is not enough."""
    found = 0
    combination = _best_combination(ordering, facts, tree, best[1])
    for candidate in _combine(tree, [(id_,) for id_ in combination]):
        found += 1
        yield best, candidate
    if found or _has_candidate(tree, tree.suppliers):
        yield from islice(_by_key(ordering, facts, tree, best), found, None)


def _best_combination(
    ordering: Ordering, facts: SupplierFacts, tree: TreeSuppliers, best_key: float
) -> Sequence[int]:
    """Return the suppliers of the first candidate, unless a constraint excludes them."""
    tie_breaker = facts.tie_breakers.__getitem__

    def first(ids: Sequence[int]) -> int:
        return ids[0] if len(ids) == 1 else min(tree.deadline.checked(ids), key=tie_breaker)

    best = change_each(tree.suppliers, first)
    for demand in ordering.class_demands:
        ids = tree.suppliers[demand]
        equal = [id_ for id_ in tree.deadline.checked(ids) if key_of(ordering, facts, id_) == best_key]
        if equal:
            best[demand] = first(equal)
            break
    return best


def _by_key(ordering: Ordering, facts: SupplierFacts, tree: TreeSuppliers, best: Rank) -> RankedCandidates:
    """Return a generator of the candidates of a tree by rank, if the request prefers no traits."""
    sorted_suppliers = _sorted_by_tie_breaker(facts, tree)
    if _have_one_key(ordering, facts, tree):
        return ((best, candidate) for candidate in _combine(tree, sorted_suppliers))
    return _by_different_keys(ordering, facts, tree, sorted_suppliers)


def _have_one_key(ordering: Ordering, facts: SupplierFacts, tree: TreeSuppliers) -> bool:
    """Return whether all candidates of a tree have the same key, as in a cloud without allocations."""
    of_class = distinct_suppliers(tree.suppliers, ordering.class_demands)
    return len({facts.free[id_] for id_ in tree.deadline.checked(of_class)}) <= 1


def _by_different_keys(
    ordering: Ordering, facts: SupplierFacts, tree: TreeSuppliers, sorted_suppliers: SuppliersByDemand
) -> RankedCandidates:
    """Yield the candidates of a tree with these suppliers by rank, if the request prefers no traits."""
    levels = _key_levels(ordering, facts, tree.deadline, [(frozenset(), sorted_suppliers)])
    has_candidate = False
    for number, (key, _, suppliers) in enumerate(levels):
        if number == UNCHECKED_LEVELS and not has_candidate and not _has_candidate(tree, tree.suppliers):
            return
        for candidate in _combine(tree, suppliers):
            has_candidate = True
            yield (0, key), candidate


def _by_rank(ordering: Ordering, facts: SupplierFacts, tree: TreeSuppliers) -> RankedCandidates:
    """Yield the candidates of a tree by rank, with their ranks, if the request prefers traits."""
    sorted_suppliers = _sorted_by_tie_breaker(facts, tree)
    by_size: dict[int, list[tuple[frozenset[int], SuppliersByDemand]]] = {}
    for traits, suppliers in _trait_levels(ordering, facts, tree, sorted_suppliers):
        by_size.setdefault(len(traits), []).append((traits, suppliers))
    for size in sorted(by_size, reverse=True):
        levels = by_size[size]
        if ordering.class_demands:
            # A set of traits without a candidate has none for any of its keys.
            levels = [
                (traits, suppliers) for traits, suppliers in levels if _has_candidate(tree, suppliers, traits)
            ]
        for key, traits, suppliers in _key_levels(ordering, facts, tree.deadline, levels):
            for candidate in _combine(tree, suppliers, traits):
                yield (-size, key), candidate


def _sorted_by_tie_breaker(facts: SupplierFacts, tree: TreeSuppliers) -> SuppliersByDemand:
    """Return the suppliers of a tree with each list in the order of the tie breakers."""
    tree.memory.reserve(LISTED_SUPPLIER_SIZE * sum(map(len, distinct_lists(tree.suppliers))))
    tie_breaker = facts.tie_breakers.__getitem__

    def in_order(ids: Sequence[int]) -> Sequence[int]:
        return ids if len(ids) == 1 else sorted(tree.deadline.checked(ids), key=tie_breaker)

    return change_each(tree.suppliers, in_order)


def _facts_with_splits(
    ordering: Ordering, facts: SupplierFacts, suppliers: SuppliersByDemand
) -> SupplierFacts:
    """Return the facts about splits too: those of all their providers together, and the best amount."""
    of_splits = SupplierFacts()
    for number in ordering.unsuffixed_demands:
        for split in suppliers[number]:
            if isinstance(split, SplitSupplier):
                ids = provider_ids_of(split)
                of_splits.tie_breakers[split] = ",".join(facts.tie_breakers[id_] for id_ in ids)
                preferred = frozenset[int]().union(*(facts.preferred.get(id_, ()) for id_ in ids))
                of_splits.preferred[split] = preferred
                if number in ordering.class_demands:
                    best = max if ordering.spreads else min
                    of_splits.free[split] = best(facts.free[id_] for id_ in ids)
    return SupplierFacts(
        free=ChainMap(of_splits.free, facts.free),
        preferred=ChainMap(of_splits.preferred, facts.preferred),
        tie_breakers=ChainMap(of_splits.tie_breakers, facts.tie_breakers),
    )


def _trait_levels(
    ordering: Ordering, facts: SupplierFacts, tree: TreeSuppliers, suppliers: SuppliersByDemand
) -> Iterator[tuple[frozenset[int], SuppliersByDemand]]:
    """Yield each set of preferred traits that the unsuffixed group may have, and the suppliers for it.

    These suppliers have no other preferred traits, so no candidate appears for two sets.
    """
    unsuffixed = [suppliers[n] for n in ordering.unsuffixed_demands]
    nothing = frozenset[int]()
    present = nothing.union(*(facts.preferred.get(id_, nothing) for ids in unsuffixed for id_ in ids))
    for size in range(len(present) + 1):
        for traits in map(frozenset, combinations(sorted(present), size)):
            tree.deadline.check()

            def without_others(ids: Sequence[int], traits: frozenset[int] = traits) -> Sequence[int]:
                return [id_ for id_ in ids if facts.preferred.get(id_, nothing) <= traits]

            allowed = list(suppliers)
            for n, ids in zip(
                ordering.unsuffixed_demands, change_each(unsuffixed, without_others), strict=True
            ):
                allowed[n] = ids
            if all(allowed):
                yield traits, allowed


def _key_levels(
    ordering: Ordering,
    facts: SupplierFacts,
    deadline: Deadline,
    trait_levels: Sequence[tuple[frozenset[int], SuppliersByDemand]],
) -> Iterator[tuple[int, frozenset[int], SuppliersByDemand]]:
    """Yield each key, the best ones first, with the suppliers of which candidates have exactly this key.

    The first of the class demands whose supplier has the key is another one each time, so no candidate
    appears twice.
    """
    of_classes = [suppliers[n] for _, suppliers in trait_levels for n in ordering.class_demands]
    distinct = {id(ids): ids for ids in of_classes}
    keys = {id_: key_of(ordering, facts, id_) for ids in distinct.values() for id_ in deadline.checked(ids)}
    with_equal_key = {list_id: _grouped(ids, keys, deadline) for list_id, ids in distinct.items()}
    different = sorted(set(keys.values())) or [0]
    if len(different) == 1:
        # All candidates have this key; it is 0 if no demand has the class.
        for traits, suppliers in trait_levels:
            yield different[0], traits, suppliers
        return
    for key in different:

        def with_key(ids: Sequence[int], holds: Callable[[int, int], bool], key: int = key) -> Sequence[int]:
            return [id_ for id_ in deadline.checked(ids) if holds(keys[id_], key)]

        for traits, suppliers in trait_levels:
            of_class = [suppliers[n] for n in ordering.class_demands]
            worse = not_better = of_class
            if len(of_class) > 1:
                worse = change_each(of_class, partial(with_key, holds=gt))
                not_better = change_each(of_class, partial(with_key, holds=ge))
            for first, ids in enumerate(of_class):
                equal = with_equal_key[id(ids)].get(key, ())
                lists = [*worse[:first], equal, *not_better[first + 1 :]]
                if all(lists):
                    restricted = list(suppliers)
                    for demand, of_demand in zip(ordering.class_demands, lists, strict=True):
                        restricted[demand] = of_demand
                    yield key, traits, restricted


def _grouped(ids: Sequence[int], keys: Mapping[int, int], deadline: Deadline) -> Mapping[int, Sequence[int]]:
    """Return the suppliers of each key, in the order of the list."""
    groups: dict[int, list[int]] = {}
    for id_ in deadline.checked(ids):
        groups.setdefault(keys[id_], []).append(id_)
    return groups


def _combine(
    tree: TreeSuppliers, suppliers: SuppliersByDemand, together: frozenset[int] = frozenset()
) -> Iterator[Candidate]:
    """Yield the candidates with these suppliers whose unsuffixed group has all traits of `together`."""
    rules = tree.rules
    if together:
        required = (*rules.unsuffixed_required, *(frozenset([trait]) for trait in sorted(together)))
        rules = replace(rules, unsuffixed_required=required)
    return combine(rules, suppliers, tree.providers, tree.deadline, tree.memory)


def _has_candidate(
    tree: TreeSuppliers, suppliers: SuppliersByDemand, together: frozenset[int] = frozenset()
) -> bool:
    """Return whether `_combine` yields any candidate."""
    return next(_combine(tree, suppliers, together), None) is not None
