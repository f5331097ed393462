"""The nearest amount with candidates of a class that several providers may supply."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from placement_svc.db.explanation.combinations import Combinations
from placement_svc.db.explanation.counts import RootCounts
from placement_svc.db.explanation.trees import EqualRootsTree
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.explanation.filters import FilterCode, RequestFilters
from placement_svc.domain.explanation.relaxations import AmountChange
from placement_svc.domain.inventory import UnitLimits

MAX_TRIALS = 5_000
"""The number of times that a search tries an amount at a group of equal roots, over all of these."""


@dataclass(frozen=True)
class _SplitPlace:
    """The tree of a group of equal roots, and the suppliers of all demands if the amount is not tested.

    `limits` are the parts of the amount that each provider can supply.
    """

    tree: EqualRootsTree
    suppliers: Sequence[Sequence[int]]
    limits: Sequence[UnitLimits]

    @property
    def most(self) -> int:
        """An amount that the providers can not exceed together."""
        return sum(each.max_unit for each in self.limits)


class SplitAmountSearch:
    """The search for other amounts of a class that several providers may supply.

    Which of them supply an amount depends on the amount, and so do their traits and places. So a smaller
    amount can have no candidates where a larger one has some, and the amounts are tried one after the other.
    """

    def __init__(self, counts: RootCounts, options: SearchOptions) -> None:
        """Search the roots of `counts`: those of the request, whose layout has room for larger amounts."""
        self._counts = counts
        self._cloud = counts.cloud
        self._options = options

    def find(self, amount: AmountChange, filters: RequestFilters) -> int | None:
        """Return the largest smaller amount with candidates, else the smallest larger one, else None.

        The search ends without an amount after `MAX_TRIALS` trials, or when half the time of the request is
        over.
        """
        places = sorted(self._places(amount, filters), key=lambda each: -each.most)
        trials = 0
        for value in _values(amount.wanted, places):
            combinations = Combinations(self._cloud, amount.apply(filters, value), self._options)
            for place in places:
                if place.most < value:
                    break
                trials += 1
                if trials > MAX_TRIALS or self._options.deadline.is_half_over():
                    return None
                if combinations.combines(place.tree, place.suppliers):
                    return value
        return None

    def _places(self, amount: AmountChange, filters: RequestFilters) -> Iterator[_SplitPlace]:
        """Yield the roots at which all passes but the amount, and the traits of those who supply it."""
        counts = self._counts.changed(amount.apply(filters, None))
        tests = [
            each.test(each.mask_without(each.group.having([FilterCode.REQUIRED])))
            if each.group.suffix == amount.suffix
            else each.complete
            for each in counts.tests
        ]
        combinations = Combinations(self._cloud, filters, self._options)
        demand = combinations.demand_number(amount.suffix, amount.resource_class)
        for root in counts.passing(tests, counts.meeting_root_filters(self._cloud.roots)):
            tree = combinations.tree(root)
            suppliers = tree.suppliers(tests)
            limits = [tree.units(id_, amount.resource_class) for id_ in suppliers[demand]]
            yield _SplitPlace(tree, suppliers, limits)


def _values(wanted: int, places: Sequence[_SplitPlace]) -> Iterable[int]:
    """Return the amounts to try at places, of which the first can supply most, in the order of `find`."""
    most = places[0].most if places else 0
    # Every amount that a provider or a set can supply is a multiple of one of the step sizes.
    step = math.gcd(*(limits.step_size for place in places for limits in place.limits)) or 1
    below = min(wanted - 1, most) // step * step
    return chain(range(below, 0, -step), range((wanted // step + 1) * step, most + 1, step))
