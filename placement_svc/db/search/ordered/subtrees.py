"""Leaves out suppliers that `same_subtree` excludes before the bounds of an ordered search are computed."""

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from placement_svc.db.search.anchors import Anchor
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.domain.combining.interfaces import SuppliersByDemand
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


@dataclass(frozen=True)
class _DemandSet:
    """The demands of a `same_subtree`.

    One of those with the same criteria is in `different`, and in `of_class` if they ask for the class.
    """

    demands: frozenset[int]
    different: tuple[int, ...]
    of_class: tuple[int, ...]

    def has_choice(self, suppliers: SuppliersByDemand) -> bool:
        """Return whether the class has several suppliers."""
        return max([len(suppliers[demand]) for demand in self.of_class]) > 1


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
        self._sets = tuple(
            _DemandSet(demands, criteria.different(demands), criteria.different(demands & class_demands))
            for demands in islice(sets, MAX_DEMAND_SETS)
        )
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

    def needed(self, suppliers: Sequence[tuple[tuple[int, ...], ...]]) -> Iterator[tuple[int, ...]]:
        """Yield the lists of suppliers whose paths `restricted` needs of anchors with these suppliers."""
        for each in self._sets:
            restricted = [ids_of for ids_of in suppliers if each.has_choice(ids_of)]
            for demand in each.different:
                yield from (ids_of[demand] for ids_of in restricted)

    def restricted(self, anchor: Anchor) -> Anchor:
        """Return an anchor without some suppliers that are in none of its candidates.

        An anchor that has no candidate at all is returned as it is.
        """
        suppliers: SuppliersByDemand = anchor.supplier_ids
        path = self.paths.__getitem__
        for each in self._sets:
            if each.has_choice(anchor.supplier_ids):
                # A path that is too long has not been read.
                with suppress(KeyError):
                    suppliers = suppliers_in_subtrees(each.demands, suppliers, path, self._deadline)
        return Anchor(anchor.id, tuple(map(tuple, suppliers))) if all(suppliers) else anchor
