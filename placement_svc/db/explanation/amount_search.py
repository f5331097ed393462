"""The amount nearest to a requested one with which there are candidates (`docs/spec/extensions.md 3.5`)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from placement_svc.db.explanation.cloud import EqualRoots
from placement_svc.db.explanation.combinations import Combinations
from placement_svc.db.explanation.counts import CountsReader, RootCounts
from placement_svc.db.explanation.inventory_units import InventoryUnits, read_units
from placement_svc.db.explanation.split_amount_search import SplitAmountSearch
from placement_svc.domain.explanation.filters import RequestFilters
from placement_svc.domain.explanation.relaxations import AmountChange
from placement_svc.domain.inventory import UnitLimits


@dataclass(frozen=True)
class _Place:
    """A provider that could supply an amount to a group of equal roots, and the units of its inventories.

    `suppliers` are those of all demands of the request, and this provider alone for the changed amount.
    """

    root: EqualRoots
    suppliers: tuple[Sequence[int], ...]
    provider_id: int
    units: UnitLimits


class AmountSearch:
    """The search for other amounts of a request.

    Units are not monotonous, so a binary search over all amounts is not possible. But each inventory has only
    one largest amount below the requested one, and one smallest amount above it.
    """

    def __init__(self, reader: CountsReader, counts: RootCounts) -> None:
        """Search the roots of `counts`, which are those of the request itself, as those of `reader`."""
        self._reader = reader
        self._counts = counts
        self._cloud = counts.cloud
        self._options = reader.options
        self._numbers = {id(root): number for number, root in enumerate(self._cloud.roots)}

    @cached_property
    def _units(self) -> InventoryUnits:
        return read_units(self._reader.inventories, self._cloud, self._options.memory)

    @cached_property
    def _splits(self) -> SplitAmountSearch:
        counts = self._reader.read(self._cloud.layout.doubled(), self._cloud.scope)
        return SplitAmountSearch(counts, self._options)

    def find(self, amount: AmountChange, filters: RequestFilters) -> int | None:
        """Return the largest smaller amount with candidates, else the smallest larger one, else None.

        The search ends without an amount when half the time of the request is over.
        """
        if any(amount.resource_class in group.can_split for group in filters.groups if not amount.suffix):
            return self._splits.find(amount, filters)
        places = list(self._places(amount, filters))
        below = self._find_below(amount, filters, places)
        return below if below is not None else self._find_above(amount, filters, places)

    def _find_below(
        self, amount: AmountChange, filters: RequestFilters, places: Iterable[_Place]
    ) -> int | None:
        """Return the largest amount below the requested one with candidates.

        At one place, a smaller multiple of the step is never worse: only the sums of several groups depend on
        the amount. So a binary search is possible there.
        """
        best: int | None = None
        largest = [(place.units.largest_below(amount.wanted), place) for place in places]
        found = [(value, place) for value, place in largest if value is not None]
        for value, place in sorted(found, key=lambda each: -each[0]):
            if best is not None and value <= best:
                break
            if self._options.deadline.is_half_over():
                return None
            if self._has_candidate(amount, filters, value, place):
                return value
            if amount.class_id in self._cloud.layout.limits:
                best = self._search_place(amount, filters, place, best) or best
        return best

    def _search_place(
        self, amount: AmountChange, filters: RequestFilters, place: _Place, best: int | None
    ) -> int | None:
        """Return the largest amount with candidates at a place, above `best`; None if there is none."""
        step = place.units.step_size
        low = (place.units.smallest_above(best or 0) or 0) // step
        high = (place.units.largest_below(amount.wanted) or 0) // step
        if not 0 < low < high or not self._has_candidate(amount, filters, low * step, place):
            return None
        # `low` has candidates, `high` has none.
        while high - low > 1:
            middle = (low + high) // 2
            if self._has_candidate(amount, filters, middle * step, place):
                low = middle
            else:
                high = middle
        return low * step

    def _find_above(
        self, amount: AmountChange, filters: RequestFilters, places: Iterable[_Place]
    ) -> int | None:
        """Return the smallest amount above the requested one with candidates."""
        smallest = [(place.units.smallest_above(amount.wanted), place) for place in places]
        found = [(value, place) for value, place in smallest if value is not None]
        for value, place in sorted(found, key=lambda each: each[0]):
            if self._options.deadline.is_half_over():
                return None
            if self._has_candidate(amount, filters, value, place):
                return value
        return None

    def _places(self, amount: AmountChange, filters: RequestFilters) -> Iterator[_Place]:
        """Yield the providers that pass all filters but those on the amount, where all other groups pass.

        It yields only the first of several providers that a symmetry of the tree exchanges: a large tree can
        have thousands of equal children, and a place costs a combination of its whole tree.
        """
        untested = amount.apply(filters, None)
        counts = self._counts.changed(untested)
        tests = counts.all_tests()
        combinations = Combinations(self._cloud, filters, self._options)
        demand = combinations.demand_number(amount.suffix, amount.resource_class)
        for root in counts.in_root_filters:
            tree = combinations.tree(root)
            suppliers = tree.suppliers(tests)
            seen: set[tuple[int, UnitLimits]] = set()
            for provider_id in suppliers[demand]:
                chosen = (*suppliers[:demand], [provider_id], *suppliers[demand + 1 :])
                for units in self._units.of_provider(self._numbers[id(root)], provider_id, amount.class_id):
                    key = tree.position(provider_id), units
                    if key not in seen:
                        seen.add(key)
                        yield _Place(root, chosen, provider_id, units)

    def _has_candidate(
        self, amount: AmountChange, filters: RequestFilters, value: int, place: _Place
    ) -> bool:
        """Return whether some root of a place has a candidate with this value of the amount."""
        combinations = Combinations(self._cloud, amount.apply(filters, value), self._options)
        exceptions = {(place.provider_id, amount.resource_class): place.units.max_unit}
        tree = combinations.tree(place.root, exceptions=exceptions)
        return combinations.combines(tree, place.suppliers)
