"""Places consumers one after the other, in memory, on what those before them left.

`Placer` picks one candidate for each consumer. It keeps the trees in a heap by the key of their best
candidate. Amounts only become less while consumers are placed, so a tree without a candidate is dropped, and
a key that can only become worse is computed again when its tree is at the top.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

from placement_svc.domain.candidates import Candidate
from placement_svc.domain.claim_amounts import ClaimAmounts, RootSuppliers, SimulatedInventories, amounts_of
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.demands import CombinationRules
from placement_svc.domain.memory import MemoryBudget
from placement_svc.domain.placement_rule import PlacementRule, RuleRank
from placement_svc.domain.split_suppliers import provider_ids_of
from placement_svc.domain.supplier_parts import Part, SupplierParts

TREE_SIZE = 600
"""Bytes of memory that a tree in the heap needs, approximately."""

Key = tuple[Any, ...]
"""The position of a tree or a candidate in an order: smaller keys come first."""

Unread = tuple[RuleRank, Key]
"""A rank and a key that no tree precedes that has not been added yet."""

LAST_KEY: Key = (math.inf,)
"""A key behind those of all trees."""


class TreeOrder(Protocol):
    """The order in which trees and their candidates are used.

    `improves` is whether the key of a tree can become better when amounts of its suppliers are used.
    """

    improves: bool

    def bound(self, root: RootSuppliers) -> Key:
        """Return a key that is at most the key of each candidate of a tree, without looking at these."""

    def candidates(self, root: RootSuppliers) -> Iterator[tuple[Key, Candidate]]:
        """Yield the candidates of a tree with their keys, the best ones first.

        `root` has only those suppliers that are to be used.
        """

    def record(self, root: RootSuppliers, amounts: ClaimAmounts) -> None:
        """Record that a consumer was placed around a root."""


class Rotation:
    """The order without `order_by`: each tree in turn, in the order in which the trees were added."""

    improves = False

    def __init__(self, combine_root: Callable[[RootSuppliers], Iterator[Candidate]]) -> None:
        self._combine = combine_root
        self._turns = Counter[int]()
        self._positions: dict[int, int] = {}

    def bound(self, root: RootSuppliers) -> Key:
        """Return how often the tree was used, and its position."""
        return self._turns[root.id], self._positions.setdefault(root.id, len(self._positions))

    def candidates(self, root: RootSuppliers) -> Iterator[tuple[Key, Candidate]]:
        """Yield the candidates of a tree: all are equal."""
        key = self.bound(root)
        return ((key, candidate) for candidate in self._combine(root))

    def record(self, root: RootSuppliers, amounts: ClaimAmounts) -> None:
        """Put the tree behind those that were used less often."""
        self._turns[root.id] += 1


@dataclass(frozen=True)
class Placed:
    """A candidate that one consumer gets, and the roots of the consumer (`PlacementRule`)."""

    candidate: Candidate
    root_ids: frozenset[int]


@dataclass
class _Tree:
    """A root, with a bound of the key of its best candidate.

    `entry` is the number of its entry in the heap; entries with other numbers are outdated. `found` is its
    best candidate if `is_current`.
    """

    root: RootSuppliers
    bound: Key
    entry: int = 0
    found: tuple[Key, Placed] | None = None
    is_current: bool = False


class Placer:
    """One run: places consumers around the roots that it was given.

    `sharing_ids` are the suppliers with MISC_SHARES_VIA_AGGREGATE. Placements change `inventories`.
    """

    def __init__(
        self,
        rules: CombinationRules,
        inventories: SimulatedInventories,
        *,
        sharing_ids: Collection[int],
        order: TreeOrder,
        rule: PlacementRule | None,
        deadline: Deadline,
        memory: MemoryBudget,
    ) -> None:
        self._rules = rules
        self._inventories = inventories
        self._parts = SupplierParts(rules, inventories, sharing_ids, deadline)
        self._order = order
        self._rule = rule
        self._deadline = deadline
        self._memory = memory
        self._trees: dict[int, _Tree] = {}
        self._heap: list[tuple[tuple[RuleRank, Key], int, _Tree]] = []
        self._entries = 0
        self._served_roots = defaultdict[int, list[int]](list)
        """For each supplier of trees other than its own, the roots of these trees."""
        self._other_trees = defaultdict[int, set[int]](set)
        """For each root, the other trees with candidates of sharing providers alone whose root it may be."""

    def add(self, roots: Iterable[RootSuppliers]) -> None:
        """Add roots with their suppliers; `inventories` has these suppliers already."""
        for root in self._deadline.checked(roots):
            self._memory.reserve(TREE_SIZE)
            ids = set[int]()
            for of_demand in root.distinct_lists:
                self._deadline.check()
                ids.update(of_demand)
            for id_ in self._deadline.checked(ids):
                if self._parts.root_id(id_) != root.id:
                    self._served_roots[id_].append(root.id)
            if self._rule is not None and self._parts.sharing_ids:
                self._add_other_tree(root)
            tree = self._trees[root.id] = _Tree(root, self._order.bound(root))
            self._push(tree, ())

    def _add_other_tree(self, root: RootSuppliers) -> None:
        """Add a tree to `_other_trees`, if it can have candidates of sharing providers alone."""
        only_sharing = self._parts.only_sharing(root)
        if not all(only_sharing.suppliers):
            return
        for ids in only_sharing.distinct_lists:
            for id_ in self._deadline.checked(ids):
                if self._parts.root_id(id_) != root.id:
                    self._other_trees[self._parts.root_id(id_)].add(root.id)

    def place(self, unread: Unread | None) -> Placed | None:
        """Place a consumer on the best candidate; return None if no tree has one.

        Trees behind `unread` are not used: trees that have not been added yet may come before them. With
        None, none of those can.
        """
        found = self._pop_best(unread)
        if found is None:
            return None
        tree, _, placed = found
        self._claim(tree, placed)
        return placed

    def peek(self, unread: Unread | None) -> Placed | None:
        """Return what `place` would give the next consumer, without placing it."""
        found = self._pop_best(unread)
        if found is None:
            return None
        tree, rank, placed = found
        self._push(tree, rank)
        return placed

    def _pop_best(self, unread: Unread | None) -> tuple[_Tree, RuleRank, Placed] | None:
        """Remove the tree with the best candidate from the heap; return it with that candidate."""
        while self._heap:
            self._deadline.check()
            _, entry, tree = heapq.heappop(self._heap)
            if entry != tree.entry:
                continue
            found = self._best(tree)
            if found is None:
                continue
            (rank, tree.bound), placed = found
            is_best = not self._heap or (rank, tree.bound) <= self._heap[0][0]
            if not is_best or (unread is not None and (rank, tree.bound) > unread):
                self._push(tree, rank)
                if is_best:
                    return None
                continue
            return tree, rank, placed
        return None

    def _push(self, tree: _Tree, rank: RuleRank) -> None:
        """Put a tree into the heap; the rank () comes before all others."""
        self._entries += 1
        tree.entry = self._entries
        heapq.heappush(self._heap, ((rank, tree.bound), tree.entry, tree))

    def _claim(self, tree: _Tree, placed: Placed) -> None:
        """Use the amounts of a candidate, and put all trees back into the heap whose keys may be better."""
        amounts = amounts_of(self._rules.demands, placed.candidate)
        self._inventories.claim(amounts, 1)
        self._order.record(tree.root, amounts)
        changed = {tree.root.id}
        for id_ in {id_ for supplier in placed.candidate for id_ in provider_ids_of(supplier)}:
            changed.add(self._parts.root_id(id_))
            changed.update(self._served_roots.get(id_, ()))
        # A tree can have its first candidate once no provider can supply a whole class any more.
        all_may_improve = self._order.improves or self._rules.splittable
        improved = set(changed) if all_may_improve else {tree.root.id}
        if self._rule is not None:
            for root_id in self._rule.record(placed.root_ids):
                improved.add(root_id)
                improved.update(self._other_trees.get(root_id, ()))
        for root_id in self._deadline.checked(changed & self._trees.keys()):
            self._trees[root_id].is_current = False
        for root_id in self._deadline.checked(improved & self._trees.keys()):
            self._push_again(self._trees[root_id])

    def _push_again(self, tree: _Tree) -> None:
        """Put a tree into the heap whose key may have become better."""
        if not self._order.improves:
            tree.bound = max(tree.bound, self._order.bound(tree.root))
            self._push(tree, ())
        elif found := self._best(tree):
            (rank, tree.bound), _ = found
            self._push(tree, rank)
        else:
            tree.entry = 0

    def _best(self, tree: _Tree) -> tuple[tuple[RuleRank, Key], Placed] | None:
        """Return the best candidate of a tree with its key, None if it has none."""
        # The ranks of a rule change with each placement.
        if self._rule is not None or not tree.is_current:
            tree.found = min(self._options(tree.root), key=itemgetter(0), default=None)
            tree.is_current = True
        return tree.found

    def _options(self, root: RootSuppliers) -> Iterator[tuple[tuple[RuleRank, Key], Placed]]:
        """Yield the best candidate around a root; under a rule, also the best one of sharing providers alone.

        A candidate of the latter that is certainly worse than the former is left out.
        """
        parts = self._parts
        available = parts.available(root)
        if self._rule is None:
            for key, candidate in self._order.candidates(available):
                yield ((), key), Placed(candidate, parts.roots_of(candidate))
                return
            return
        split = parts.split_demands(available)
        own_rank = self._rule.rank(frozenset([root.id]))
        if own_rank is not None:
            if found := self._first(parts.with_own_suppliers(available, split)):
                yield (own_rank, found[0]), found[1]
            else:
                own_rank = None
        if not parts.sharing_ids:
            return
        # Candidates of sharing providers alone have other roots.
        sharing = parts.only_sharing(available, split)
        if not all(sharing.suppliers):
            return
        for rank, sets in self._rule.levels(parts.supplying_roots(sharing)):
            if own_rank is not None and own_rank < rank:
                return
            if found := self._first(parts.within(sharing, sets)):
                yield (rank, found[0]), found[1]
                return

    def _first(self, parts: Iterable[Part]) -> tuple[Key, Placed] | None:
        """Return the candidate with the best key of all parts; None if they have none."""
        best: tuple[Key, Placed] | None = None
        all_parts = list(parts)
        # A single part needs no bound.
        bounds = [self._order.bound(part.suppliers) if len(all_parts) > 1 else () for part in all_parts]
        for bound, part in sorted(zip(bounds, all_parts, strict=True), key=itemgetter(0)):
            if best is not None and best[0] <= bound:
                break
            for key, candidate in self._order.candidates(part.suppliers):
                root_ids = self._parts.roots_of(candidate)
                # Only the providers of a split can have other roots.
                if root_ids <= part.root_ids:
                    if best is None or key < best[0]:
                        best = key, Placed(candidate, root_ids)
                    break
        return best
