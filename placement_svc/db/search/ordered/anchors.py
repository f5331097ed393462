"""The anchors of an ordered search, delivered in batches in the order of their bounds."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from placement_svc.db.repeated import RecentValues
from placement_svc.db.search.anchors import Anchor, ScanCursor, find_anchors, find_anchors_among
from placement_svc.db.search.criteria import SearchCriteria, requiring_score
from placement_svc.db.search.ignored_consumers import FreedInventories
from placement_svc.db.search.ordered.batches import BatchSizes, max_roots_per_tree, max_useless
from placement_svc.db.search.ordered.facts import FactsReader
from placement_svc.db.search.ordered.own_roots import OwnInventories, OwnRoots
from placement_svc.db.search.ordered.roots import OrderedRoots
from placement_svc.db.search.ordered.served_roots import ServedRoots, served_keys
from placement_svc.db.search.ordered.sets import OrderedSets
from placement_svc.db.search.ordered.subtrees import OrderedSubtrees
from placement_svc.db.search.ordered.uuid_order import MAX_CACHED_IDS
from placement_svc.db.search.root_sets import facts_about_sets
from placement_svc.db.search.sharing import SharedSupplies, supplies_of_class
from placement_svc.domain.combining.ordering import Ordering, Rank, TreePosition, best_rank
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget

CLASS_COST = 1 / 30
"""The cost of reading a class in the whole cloud, as a part of that of examining all roots."""

UNKEYED_COST = 1 / 4
"""The cost of listing a root of a set without its key, as in a random order, relative to examining it."""

REMEMBERED_SEARCHES = 500
"""For how many searches a worker remembers how many roots they examined for each tree."""

END: TreePosition = (math.inf, math.inf, "")
"""A position behind all trees."""


_recent_roots_per_tree = RecentValues[float](REMEMBERED_SEARCHES)


class AnchorSource:
    """Delivers the anchors of a search with the facts about their suppliers.

    `horizon` is a position that no anchor precedes that has not been delivered yet. With a limit, the trees
    that can have the best score come first, then those that can have the next one, and so on. For each score,
    the first batches are roots in the order of the best key that their trees can have. The roots with the
    best keys are often no anchors, or have a worse key themselves: the fullest hosts lack another class. So
    the batches grow. Schedulers repeat their requests, so the first batch has as many roots for each tree
    that is wanted as the last search with the same criteria examined. If most of the roots are not anchors,
    and it takes less time, only those in sets are ordered; with small sets, from the start. If most of these
    are not anchors either, or many roots have been examined, all trees that can have the score follow at
    once.

    If consumers are ignored, `freed` are the inventories from which these have allocations. The roots are in
    the order of stored amounts, which are wrong for a tree with such an inventory of the class of `order_by`.
    Few trees have one: for each score, the first batch has the roots of all of them, besides the first roots
    in order.

    All anchors come in one batch without a limit, if a criterion is rare, or if the trees with wrong amounts
    are many. After `leave_order`, all that are left do. The result is the same.
    """

    def __init__(
        self,
        connection: Connection,
        criteria: SearchCriteria,
        ordering: Ordering,
        shared_supplies: SharedSupplies,
        deadline: Deadline,
        memory: MemoryBudget,
        limit: int | None,
        freed: FreedInventories,
    ) -> None:
        self.criteria = criteria
        self.ordering = ordering
        self.shared_supplies = shared_supplies
        self.deadline = deadline
        self.memory = memory
        self.horizon: TreePosition
        self._connection = connection
        self._limit = limit or 0
        self._delivered: set[int] = set()
        self._drawn: dict[int, str] = {}
        """For a random order, the texts that order the anchors that were drawn."""
        amounts = list(criteria.ordered_amounts)
        self._class_id = amounts[0][0] if amounts else None
        """The id of the class of `order_by`."""
        self._least_amount = min((amount for _, amount in amounts), default=0)
        """The least amount of it that a demand asks for."""
        freed_of_class = freed.get(ordering.resource_class or "", {})
        self._freed_roots = frozenset(each.root_id for each in freed_of_class.values())
        """The roots of the trees with wrong amounts."""
        self._subtrees = OrderedSubtrees(criteria, ordering, shared_supplies, deadline)
        self._reader = FactsReader(
            connection, criteria, ordering, self._class_id, freed_of_class, self._subtrees, deadline, memory
        )
        self.facts = self._reader.facts
        self._orders_roots = limit is not None and self._can_order_roots()
        """Whether each score begins with roots in order; otherwise, one batch has all its anchors."""
        self._shared_of_class = supplies_of_class(criteria, shared_supplies)
        self._roots = self._ordered_roots()
        self._begin_score(len(ordering.preferred) if self._orders_roots else 0)

    def _ordered_roots(self) -> OrderedRoots:
        """Return the roots in their order."""
        shared, spreads = self._shared_of_class if self._orders_roots else {}, self.ordering.spreads
        self._reader.read_free(shared.keys())
        own = None
        if self._class_id is not None:
            # A sharing provider also serves its own tree, so its inventory is not needed here.
            inventories = OwnInventories(
                class_id=self._class_id,
                least_amount=self._least_amount,
                excluded=frozenset(shared) if len(shared) <= MAX_CACHED_IDS else frozenset(),
                spreads=spreads,
            )
            own = OwnRoots(self._connection, inventories)
        keys = served_keys(shared.values(), self.facts.free, spreads=spreads)
        served = ServedRoots(self._connection, keys, self.criteria.root_count)
        is_random = self.ordering.is_random
        return OrderedRoots(self._connection, own, served, self.deadline, is_random=is_random)

    def _begin_score(self, score: int) -> None:
        """Deliver the trees that can have this score next; those with a higher one are delivered."""
        self._score = score
        self._score_criteria = requiring_score(self.criteria, self.ordering.preferred, score)
        # Otherwise, all anchors are found at once.
        best_score = score if self._orders_roots else len(self.ordering.preferred)
        self.horizon = (-best_score, -math.inf, "")
        self._roots.restart(excluded=self._freed_roots)
        self._is_in_order = self._orders_roots
        """Whether the next batch has roots in order; otherwise, it has all anchors that are left."""
        self._is_restricted = self._uses_amounts = False
        """Whether only the roots in sets are ordered, and whether these include sets of amounts."""
        self._search_key = self._score_criteria, self.ordering
        self._sets = facts_about_sets(self._score_criteria, self.shared_supplies)
        root_count = self.criteria.root_count
        recent = _recent_roots_per_tree.get(self._search_key) or 1
        self._sizes = BatchSizes(
            root_count=root_count,
            has_filters=self._score_criteria.has_filters,
            intersects_sets=self._sets.set_count > 1,
            # A search with a lower limit may have needed so many that this one better restricts the roots.
            first_roots_per_tree=recent if recent <= max_roots_per_tree(root_count, self._limit) else 1,
        )
        if self._orders_roots and self._sets.least_size is not None:
            self._begin_with_small_set(self._sets.least_size)

    def _begin_with_small_set(self, size: int) -> None:
        """Begin with the roots in sets, unless it takes less time to examine the first roots in order.

        Other sets can exclude any part of the roots in the small one.
        """
        roots_per_anchor = max(1, self.criteria.root_count / max(1, size))
        if self._sets.set_count == 1 and self._limit * roots_per_anchor < self._listing_cost():
            self._sizes.first_roots_per_tree = max(self._sizes.first_roots_per_tree, roots_per_anchor)
        elif self._may_restrict:
            self._restrict()

    def _listing_cost(self) -> float:
        """Return how many roots can be examined while the roots in sets are listed with their keys.

        Return 0 for large sets of which indexes have all members: reading these takes less time than
        examining a few roots that are in none of them.
        """
        if self._sets.least_size is not None:
            return self._sets.least_size * (UNKEYED_COST if self._class_id is None else 1)
        return CLASS_COST * self.criteria.root_count * self._sets.class_reads

    @property
    def _may_restrict(self) -> bool:
        """Whether the roots in sets may precede others.

        With a random order and preferred traits, their trees would also precede others with the same score.
        """
        return not (self.ordering.is_random and self.ordering.preferred)

    def _restrict(self, *, uses_amounts: bool = False) -> None:
        """Order only the roots in sets from now on, with `uses_amounts` also in those of amounts."""
        self._is_restricted, self._uses_amounts = True, uses_amounts
        self._roots.restrict(
            OrderedSets(
                criteria=self._score_criteria,
                supplies=tuple(self.shared_supplies.items()),
                class_id=self._class_id,
                least_amount=self._least_amount,
                spreads=self.ordering.spreads,
                is_random=self.ordering.is_random,
                uses_amounts=uses_amounts,
                is_served=bool(self._shared_of_class),
            )
        )
        self._sizes = replace(self._sizes, intersects_sets=False)

    def leave_order(self) -> None:
        """Find all other anchors at once, without some of the trees that the combination rules exclude."""
        self._orders_roots = self._is_in_order = False
        self._score, self._score_criteria = 0, self.criteria

    def _end_score(self) -> None:
        """Continue with the next lower score, as all trees that can have this one are delivered."""
        if self._score:
            self._begin_score(self._score - 1)
        else:
            self.horizon = END

    def next_batch(self, wanted: int) -> Sequence[tuple[TreePosition, Anchor]]:
        """Return further anchors, each with a position that the tree does not precede.

        `wanted` is how many trees the search lacks before the horizon; there may be more or fewer.
        """
        if not self._is_in_order:
            return self._all_of_score()
        sizes = self._sizes
        root_ids = self._roots.next(sizes.next_size(wanted), enough=sizes.enough(wanted))
        freed_roots = frozenset[int]() if sizes.batches else self._freed_roots
        anchors = find_anchors_among(
            self._connection,
            self._score_criteria,
            self.shared_supplies,
            freed_roots.union(root_ids),
            deadline=self.deadline,
            memory=self.memory,
        )
        sizes.add_batch(len(root_ids))
        found = self._with_bounds(anchors)
        if self._roots.exhausted:
            self._end_score()
        else:
            self.horizon = (-self._score, *self._roots.next_position)
            in_order = [bound for bound, anchor in found if anchor.id not in freed_roots]
            before_horizon = sum(bound <= self.horizon for bound in in_order)
            sizes.before_horizon += before_horizon
            if before_horizon >= wanted and not self._is_restricted:
                _recent_roots_per_tree.set(self._search_key, sizes.roots_per_tree)
            anchor_count = sum(each.id not in freed_roots for each in anchors)
            if sizes.are_exhausted:
                self._is_in_order = False
            elif sizes.excludes_most(anchor_count):
                # If there was no anchor, the next one is probably not far.
                roots_per_anchor = sizes.last_batch / max(anchor_count, 1 / 2)
                self._skip_excluded(after=(wanted - before_horizon) * roots_per_anchor)
        return found

    def _skip_excluded(self, after: float) -> None:
        """Continue with the roots in sets, or with all anchors, if that is faster than so many roots.

        Listing the roots in sets is worthwhile once it takes less time than to examine as many roots as
        probably are left: first those in the sets of filters, then those in the sets of amounts as well.
        Otherwise, all anchors are found at once.
        """
        cost, amounts_cost = self._listing_cost(), self._amounts_cost()
        if self._may_restrict and self._sets.set_count and not self._is_restricted:
            # A set that reads a class has most roots, and to read their keys takes longer than the amounts.
            uses_amounts = amounts_cost < math.inf and self._sets.class_reads > 0
            if cost <= after:
                self._restrict(uses_amounts=uses_amounts or cost + amounts_cost <= after)
        elif self._may_restrict and not self._uses_amounts and amounts_cost <= after:
            self._restrict(uses_amounts=True)
        else:
            self._is_in_order = not self._is_restricted and after < max_useless(self.criteria.root_count)

    def _amounts_cost(self) -> float:
        """Return how many roots can be examined while the sets of amounts are read; infinite if none is used.

        With a small set, none is used.
        """
        if self._sets.least_size is not None or not self._sets.amount_count:
            return math.inf
        return CLASS_COST * self.criteria.root_count * self._sets.amount_count

    def _can_order_roots(self) -> bool:
        """Return whether many trees fit, and the stored amounts of the class are right for most trees."""
        if len(self._freed_roots) > max_useless(self.criteria.root_count):
            return False
        return not self.criteria.has_rare_criterion(self.shared_supplies.keys())

    def _all_of_score(self) -> Sequence[tuple[TreePosition, Anchor]]:
        """Return all anchors of trees that can have the score and have not been delivered yet."""
        anchors, _ = find_anchors(
            self._connection,
            self._score_criteria,
            self.shared_supplies,
            ScanCursor(),
            max_anchors=None,
            # Before, the roots in order were examined, and few of them were anchors.
            uses_amounts=self._sizes.batches > 0,
            # If no anchor is found, no tree has a supplier for each demand: the metrics count these searches.
            checks_rules=bool(self._delivered),
            deadline=self.deadline,
            memory=self.memory,
        )
        self._end_score()
        return self._with_bounds(anchors)

    def anchors_among(self, root_ids: Collection[int]) -> Sequence[Anchor]:
        """Return the anchors among these roots, wherever they are in the order; `next_batch` omits them."""
        anchors = find_anchors_among(
            self._connection,
            self.criteria,
            self.shared_supplies,
            root_ids,
            deadline=self.deadline,
            memory=self.memory,
        )
        return [anchor for _, anchor in self._with_bounds(anchors)]

    def position(self, anchor: Anchor, rank: Rank) -> TreePosition:
        """Return the position of an anchor with this rank."""
        return (*rank, self.text_of(anchor.id))

    def text_of(self, root_id: int) -> str:
        """Return what decides between roots of the same rank: the uuid, or a random text."""
        return self._drawn.get(root_id) or self.facts.tie_breakers[root_id]

    def _with_bounds(self, anchors: Iterable[Anchor]) -> Sequence[tuple[TreePosition, Anchor]]:
        new = [anchor for anchor in anchors if anchor.id not in self._delivered]
        sample = self._subtrees.sample_left
        with_ranks = [*self._with_ranks(new[:sample]), *self._with_ranks(new[sample:])]
        drawn = self._roots.drawn
        # The root can supply to trees that are combined already, in an order that must not change.
        self._drawn.update({each.id: drawn[each.id] for each in new if each.id in drawn})
        self._delivered.update(anchor.id for anchor in new)
        return [(self.position(each, rank), each) for rank, each in with_ranks]

    def _with_ranks(self, anchors: Sequence[Anchor]) -> Iterator[tuple[Rank, Anchor]]:
        """Yield the best rank that each anchor can have, and the anchor, without some excluded suppliers."""
        self._reader.read(anchors)
        for anchor in anchors:
            restricted = self._subtrees.restricted(anchor) if self._subtrees else anchor
            rank = best_rank(self.ordering, self.facts, restricted.supplier_ids, self.deadline)
            if self._subtrees.sample_left:
                full_rank = best_rank(self.ordering, self.facts, anchor.supplier_ids, self.deadline)
                self._subtrees.count(changed=rank != full_rank)
            yield rank, restricted
