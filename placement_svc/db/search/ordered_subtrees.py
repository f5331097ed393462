"""Leaves out suppliers that `same_subtree` excludes before the bounds of an ordered search are computed."""

from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from itertools import islice

from placement_svc.db.search.anchors import Anchor
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.domain.combining.ordering import Ordering
from placement_svc.domain.combining.same_subtree import suppliers_in_subtrees
from placement_svc.domain.execution.deadline import Deadline

MAX_LEVELS = 16
"""The most ids of a path that is read: in a tree of thousands of levels, all paths together are too long."""

MAX_DEMAND_SETS = 8
"""The most sets of demands whose suppliers are restricted: combining a tree checks all of them anyway."""

SAMPLE = 32
"""How many anchors show whether restricting suppliers is worthwhile."""

MIN_CHANGED_RATIO = 1 / 5
"""The part of them whose bounds must change.

To read the paths of an anchor and restrict it takes a fifth of the time of fetching and combining its tree.
"""


class OrderedSubtrees:
    """The sets of demands of `same_subtree` that restrict the suppliers of the class of `order_by`.

    If only one of two NUMA nodes has a network card, the other node must not decide the place of its host:
    the search would combine twice as many trees. Sets that sharing providers can supply are left out.
    `paths` has the ids from the root down to each supplier that `needed` returns, if they are not too many.
    If the bounds of too few of the first anchors change, no further ones are restricted.
    """

    def __init__(
        self,
        criteria: SearchCriteria,
        ordering: Ordering,
        shared_supplies: SharedSupplies,
        deadline: Deadline,
    ) -> None:
        self.paths: MutableMapping[int, tuple[int, ...]] = {}
        class_demands = frozenset(ordering.class_demands)
        self._deadline = deadline
        sets = (
            demands
            for demands in dict.fromkeys(criteria.rules.same_subtree)
            if not demands.isdisjoint(class_demands)
            and shared_supplies.keys().isdisjoint(criteria.by_demand[demand] for demand in demands)
        )
        self._sets = tuple((demands, demands & class_demands) for demands in islice(sets, MAX_DEMAND_SETS))
        """The sets, and the demands of each that request the class."""
        self._restricted = 0
        self._changed = 0
        """How many anchors have been restricted, and how many of them have got another bound."""

    def __bool__(self) -> bool:
        """Return whether any set may restrict suppliers."""
        return bool(self._sets)

    @property
    def sample_left(self) -> int:
        """How many anchors must be restricted until it is known whether that is worthwhile."""
        return max(0, SAMPLE - self._restricted) if self._sets else 0

    def count(self, *, changed: bool) -> None:
        """Count an anchor that has been restricted, and whether it has got another bound."""
        self._restricted += 1
        self._changed += changed
        if self._restricted == SAMPLE and self._changed < MIN_CHANGED_RATIO * SAMPLE:
            self._sets = ()

    def needed(self, anchor: Anchor) -> Iterator[tuple[int, ...]]:
        """Yield the lists of suppliers whose paths `restricted` needs."""
        for demands in self._with_choice(anchor):
            for demand in demands:
                yield anchor.supplier_ids[demand]

    def restricted(self, anchor: Anchor) -> Anchor:
        """Return an anchor without some suppliers that are in none of its candidates.

        An anchor that has no candidate at all is returned as it is.
        """
        suppliers = anchor.supplier_ids
        for demands in self._with_choice(anchor):
            # A path that is too long has not been read.
            with suppress(KeyError):
                suppliers = suppliers_in_subtrees(demands, suppliers, self.paths.__getitem__, self._deadline)
        return Anchor(anchor.id, suppliers) if all(suppliers) else anchor

    def _with_choice(self, anchor: Anchor) -> Iterator[frozenset[int]]:
        """Yield the sets of demands in which the class has several suppliers."""
        for demands, of_class in self._sets:
            if any(len(anchor.supplier_ids[demand]) > 1 for demand in of_class):
                yield demands
