"""Places consumers one after the other, in memory, on what those before them left.

`Placer` picks one candidate for each consumer. It keeps the trees in a heap by the key of their best
candidate. Amounts only become less while consumers are placed, so a tree without a candidate is dropped, and
a key that can only become worse is computed again when its tree is at the top. If a class may be split, a
tree can get its first candidate later, once no provider has the whole amount any more.

Under a rule, each domain has such a heap, and the domains are in a heap by rank and key. So a placement that
changes the rank of a domain moves one entry, and not those of all its trees.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from placement_svc.domain.combining.candidates import Candidate
from placement_svc.domain.combining.shared_lists import distinct_lists
from placement_svc.domain.combining.split_suppliers import provider_ids_of
from placement_svc.domain.demands import CombinationRules
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.placing.rule import PlacementRule, RuleRank
from placement_svc.domain.placing.supplier_parts import Part, SupplierParts
from placement_svc.domain.placing.tree_orders import Key, TreeOrder
from placement_svc.domain.simulated_claims.amounts import RootSuppliers, SimulatedInventories, amounts_of

TREE_SIZE = 600
"""Bytes of memory that a tree in the heap needs, approximately."""

Unread = tuple[RuleRank, Key]
"""A lower bound of the ranks and keys of all trees that have not been added yet."""

LAST_KEY: Key = (math.inf,)
"""A key behind those of all trees."""


@dataclass(frozen=True)
class Placed:
    """A candidate that one consumer gets, and the roots of the consumer (`PlacementRule`)."""

    candidate: Candidate
    root_ids: frozenset[int]


@dataclass(eq=False)
class _Pool:
    """Trees whose candidates have the same rank, or one tree whose candidates may have different ranks.

    `heap` has bounds of the keys of the trees. `position` is the bound of rank and key with which the pool is
    in the heap of pools; None if it is not there. Entries with other numbers than `entry` are outdated.
    """

    has_one_rank: bool
    heap: list[tuple[Key, int, "_Tree"]] = field(default_factory=list)
    position: tuple[RuleRank, Key] | None = None
    entry: int = 0


@dataclass(eq=False)
class _Tree:
    """A root, with a bound of the key of its best candidate.

    `entry` is the number of its entry in the heap of the pool; entries with other numbers are outdated.
    `found` is its best candidate if `is_current`.
    """

    root: RootSuppliers
    bound: Key
    pool: _Pool
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
        self._heap: list[tuple[tuple[RuleRank, Key], int, _Pool]] = []
        self._pools: dict[Hashable, _Pool] = {}
        """The pools of trees without sharing providers, by the domain of the rule."""
        self._entries = 0
        self._served_roots = defaultdict[int, list[int]](list)
        """For each supplier of trees other than its own, the roots of these trees."""
        self._other_trees = defaultdict[int, set[int]](set)
        """For each root, the other trees with candidates of sharing providers alone whose root it may be."""

    def add(self, roots: Iterable[RootSuppliers]) -> None:
        """Add roots with their suppliers; `inventories` has these suppliers already."""
        for root in self._deadline.checked(roots):
            self._memory.reserve(TREE_SIZE)
            ids: set[int] = set()
            for of_demand in distinct_lists(root.suppliers):
                self._deadline.check()
                ids.update(of_demand)
            for id_ in self._deadline.checked(ids):
                if self._parts.root_id(id_) != root.id:
                    self._served_roots[id_].append(root.id)
            if self._rule is not None and self._parts.sharing_ids:
                self._add_other_tree(root)
            pool = self._pool_of(root.id, ids)
            tree = self._trees[root.id] = _Tree(root, self._order.bound(root), pool)
            self._push(tree, ())

    def _pool_of(self, root_id: int, supplier_ids: Collection[int]) -> _Pool:
        """Return the pool for a root with these suppliers."""
        if self._rule is None:
            return self._pools.setdefault(None, _Pool(has_one_rank=True))
        if any(id_ in self._parts.sharing_ids for id_ in self._deadline.checked(supplier_ids)):
            return _Pool(has_one_rank=False)
        return self._pools.setdefault(self._rule.domain(root_id), _Pool(has_one_rank=True))

    def _add_other_tree(self, root: RootSuppliers) -> None:
        """Add a tree to `_other_trees`, if it can have candidates of sharing providers alone."""
        only_sharing = self._parts.only_sharing(root)
        if not all(only_sharing.suppliers):
            return
        for ids in distinct_lists(only_sharing.suppliers):
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
        self._push_pool(tree.pool, rank)
        return placed

    def _pop_best(self, unread: Unread | None) -> tuple[_Tree, RuleRank, Placed] | None:
        """Remove the pool with the best candidate from the heap; return tree, rank and candidate."""
        while self._heap:
            self._deadline.check()
            _, entry, pool = heapq.heappop(self._heap)
            if entry != pool.entry:
                continue
            pool.position = None
            found = self._best_in(pool)
            if found is None:
                continue
            tree, rank, placed = found
            position = rank, tree.bound
            is_best = not self._heap or position <= self._heap[0][0]
            if not is_best or (unread is not None and position > unread):
                self._push_pool(pool, rank)
                if is_best:
                    return None
                continue
            return tree, rank, placed
        return None

    def _best_in(self, pool: _Pool) -> tuple[_Tree, RuleRank, Placed] | None:
        """Return the tree with the best candidate of a pool, which is then the first one of its heap."""
        while pool.heap:
            self._deadline.check()
            _, entry, tree = pool.heap[0]
            found = self._best(tree) if entry == tree.entry else None
            if found is None:
                heapq.heappop(pool.heap)
                continue
            (rank, tree.bound), placed = found
            heapq.heapreplace(pool.heap, (tree.bound, entry, tree))
            if pool.heap[0][1] == entry:
                return tree, rank, placed
        return None

    def _push(self, tree: _Tree, rank: RuleRank) -> None:
        """Put a tree into the heap of its pool, and the pool into that of pools."""
        self._entries += 1
        tree.entry = self._entries
        heapq.heappush(tree.pool.heap, (tree.bound, tree.entry, tree))
        self._push_pool(tree.pool, rank)

    def _push_pool(self, pool: _Pool, rank: RuleRank) -> None:
        """Put a pool into the heap if it is not there with a better rank; the rank () is the best one."""
        position = rank, pool.heap[0][0]
        if pool.position is not None and pool.position <= position:
            return
        self._entries += 1
        pool.position, pool.entry = position, self._entries
        heapq.heappush(self._heap, (position, pool.entry, pool))

    def _claim(self, tree: _Tree, placed: Placed) -> None:
        """Use the amounts of a candidate; push the trees and pools whose positions may be better now."""
        amounts = amounts_of(self._rules.demands, placed.candidate)
        self._inventories.claim(amounts, 1)
        self._order.record(tree.root, amounts)
        changed = {tree.root.id}
        for id_ in {id_ for supplier in placed.candidate for id_ in provider_ids_of(supplier)}:
            changed.add(self._parts.root_id(id_))
            changed.update(self._served_roots.get(id_, ()))
        changed &= self._trees.keys()
        for root_id in self._deadline.checked(changed):
            self._trees[root_id].is_current = False
        for pool in self._improved_pools(tree, placed):
            if pool.heap:
                self._push_pool(pool, ())
        # A tree can have its first candidate once no provider can supply a whole class any more.
        all_may_improve = self._order.improves or self._rules.splittable
        for root_id in self._deadline.checked(changed if all_may_improve else [tree.root.id]):
            self._push_again(self._trees[root_id])

    def _improved_pools(self, tree: _Tree, placed: Placed) -> Iterable[_Pool]:
        """Record a placement; return the pools whose ranks may now be better, and that of the tree."""
        pools = {tree.pool: None}
        if self._rule is not None:
            for root_id in self._deadline.checked(self._rule.record(placed.root_ids)):
                for id_ in (root_id, *self._other_trees.get(root_id, ())):
                    if id_ in self._trees:
                        pools[self._trees[id_].pool] = None
        return pools

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
        if not tree.is_current or not tree.pool.has_one_rank:
            tree.found = min(self._options(tree.root), key=itemgetter(0), default=None)
            tree.is_current = True
        elif self._rule is not None and tree.found is not None:
            rank = self._rule.rank(frozenset([tree.root.id]))
            (_, key), placed = tree.found
            return None if rank is None else ((rank, key), placed)
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
