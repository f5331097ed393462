"""Roots that are alike in all that claims depend on, of which only the first one has to be computed.

Most clouds have thousands of hosts of a few models. What is free on them differs, but claims depend only on
how often it is enough for what they request.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from placement_svc.domain.combining.shared_lists import distinct_lists
from placement_svc.domain.demands import CombinationRules, Demand, Resources
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.simulated_claims.amounts import (
    ClaimAmounts,
    RootClaims,
    RootSuppliers,
    SimulatedInventories,
)

MAX_SUPPLIERS = 20_000
"""The most suppliers of all roots whose claims are remembered; each needs some 500 bytes of memory."""

MAX_REMEMBERED_UNITS = 100
"""The sets of demands whose units are remembered: few suppliers differ in what they can supply."""


class _Shape(NamedTuple):
    """A root with numbers instead of the ids of its providers.

    Roots with the same `key` differ only in the ids, which `ids` has by number.
    """

    key: Hashable
    ids: Sequence[int]


@dataclass(frozen=True)
class _Known:
    """The claims at a root: their number, the amounts of the last one, and those of all together.

    The inventories have the numbers of a `_Shape` instead of ids.
    """

    count: int
    last: ClaimAmounts
    total: ClaimAmounts


class AlikeRoots:
    """Repeats the claims at a root at all roots like it, none of which shares a supplier with another.

    Claims at one of these roots, with the ids of another, are claims at that one until it has no candidate.
    """

    def __init__(
        self, rules: CombinationRules, inventories: SimulatedInventories, deadline: Deadline
    ) -> None:
        self._rules = rules
        self._names = sorted({name for demand in rules.demands for name, _ in demand.resources})
        self._inventories = inventories
        self._deadline = deadline
        self._known: dict[Hashable, _Known] = {}
        self._units: dict[tuple[int, ...], Sequence[Resources]] = {}
        """What `units_of` returns for demands, by their numbers."""
        self._supplier_count = 0

    def claims_at(self, root: RootSuppliers, most: int, claim: Callable[[], RootClaims]) -> RootClaims:
        """Return the claims at a root, at most `most`; they change the inventories.

        `claim` is called if a root like it has not been claimed yet, or has more claims.
        """
        shape = self._shape(root)
        known = self._known.get(shape.key)
        if known is not None and known.count <= most:
            self._inventories.claim(_renumbered(known.total, shape.ids), 1)
            return RootClaims(root.id, known.count, _renumbered(known.last, shape.ids))
        free = self._inventories.free
        before = {key: free[key] for key in itertools.product(shape.ids, self._names) if key in free}
        found = claim()
        self._supplier_count += len(shape.ids)
        if not found.is_cut and self._supplier_count <= MAX_SUPPLIERS:
            numbers = {id_: number for number, id_ in enumerate(shape.ids)}
            total = {key: amount - free[key] for key, amount in before.items() if amount != free[key]}
            known = _Known(found.count, _renumbered(found.last, numbers), _renumbered(total, numbers))
            self._known[shape.key] = known
        return found

    def _shape(self, root: RootSuppliers) -> _Shape:
        """Return the shape: the suppliers in an order that does not depend on their ids, if they differ."""
        list_numbers: dict[int, int] = {}
        lists_of: dict[int, list[int]] = {}
        for number, ids in enumerate(distinct_lists(root.suppliers)):
            list_numbers[id(ids)] = number
            for id_ in self._deadline.checked(ids):
                lists_of.setdefault(id_, []).append(number)
        demands_of_list: dict[int, list[int]] = {}
        for demand, ids in enumerate(root.suppliers):
            demands_of_list.setdefault(list_numbers[id(ids)], []).append(demand)
        positions = self._split_positions(root)
        described = []
        for id_, of_supplier in self._deadline.checked(lists_of.items()):
            demands = itertools.chain.from_iterable(map(demands_of_list.__getitem__, of_supplier))
            description = self._description(id_, tuple(demands))
            described.append(((tuple(of_supplier), *description, positions.get(id_, 0)), id_))
        described.sort()
        numbers = {root.id: 0}
        paths = [
            tuple(numbers.setdefault(each, len(numbers)) for each in self._inventories.path(id_))
            for _, id_ in self._deadline.checked(described)
        ]
        key = (
            tuple(list_numbers[id(ids)] for ids in root.suppliers),
            tuple(description for description, _ in described),
            tuple(paths),
        )
        return _Shape(key, list(numbers))

    def _split_positions(self, root: RootSuppliers) -> Mapping[int, int]:
        """Return the positions of the suppliers of parts: their uuids decide who supplies which part."""
        lists = (root.suppliers[demand] for demand in self._rules.splittable)
        by_uuid = sorted(set[int]().union(*lists), key=self._inventories.uuid)
        return {id_: position for position, id_ in enumerate(by_uuid, 1)}

    def _description(self, provider_id: int, demands: tuple[int, ...]) -> tuple[Hashable, ...]:
        """Return the amounts and traits of a supplier of these demands, and its level in the tree."""
        held = self._inventories
        units = self._units.get(demands)
        if units is None:
            of_supplier = [self._rules.demands[number] for number in demands]
            units = units_of(of_supplier, self._rules.splittable_classes)
            if len(self._units) < MAX_REMEMBERED_UNITS:
                self._units[demands] = units
        free = tuple(min(held.free[provider_id, name] // amount for name, amount in unit) for unit in units)
        keys = [(provider_id, name) for unit in units for name, _ in unit]
        limits = tuple(
            (held.max_unit.get(key, 0), held.min_unit.get(key, 0), held.step_size.get(key, 0)) for key in keys
        )
        return free, limits, tuple(sorted(held.traits.get(provider_id, ()))), len(held.path(provider_id))


def units_of(demands: Iterable[Demand], splittable: Set[str]) -> Sequence[Resources]:
    """Return the units of what a supplier of demands has free: only whole units matter to claims.

    If all demands that request a class have the same resources, these are one unit. Otherwise each class has
    a unit of its own, the greatest common divisor of the amounts: 1 for the classes `splittable`, of which a
    claim may use any part of an amount.
    """
    distinct = {tuple(sorted(demand.resources)) for demand in demands}
    amounts: dict[str, list[int]] = {}
    for name, amount in itertools.chain.from_iterable(distinct):
        amounts.setdefault(name, []).append(amount)
    alone = {name for name, of_class in amounts.items() if len(of_class) == 1} - splittable
    whole = [resources for resources in distinct if resources and alone.issuperset(dict(resources))]
    others = amounts.keys() - {name for resources in whole for name, _ in resources}
    divisors = [((name, 1 if name in splittable else math.gcd(*amounts[name])),) for name in others]
    return sorted([*whole, *divisors])


def _renumbered(amounts: ClaimAmounts, numbers: Mapping[int, int] | Sequence[int]) -> ClaimAmounts:
    return {(numbers[id_], name): amount for (id_, name), amount in amounts.items()}
