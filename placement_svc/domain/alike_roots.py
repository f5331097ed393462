"""Roots that are alike in all that claims depend on, of which only the first one has to be computed.

Most clouds have thousands of hosts of a few models.
"""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from placement_svc.domain.claim_amounts import ClaimAmounts, RootClaims, RootSuppliers, SimulatedInventories
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.demands import Demand

MAX_SUPPLIERS = 20_000
"""The most suppliers of all roots whose claims are remembered; each needs some 500 bytes of memory."""


class _Shape(NamedTuple):
    """A root with numbers instead of the ids of its providers.

    Roots with the same `key` differ only in the ids, which `ids` has by number.
    """

    key: Hashable
    ids: Sequence[int]


@dataclass(frozen=True)
class _Known:
    """The claims at a root: their number, the amounts of the last one, and what is free after them.

    The inventories have the numbers of a `_Shape` instead of ids.
    """

    count: int
    last: ClaimAmounts
    free: ClaimAmounts


class AlikeRoots:
    """Repeats the claims at a root at all roots like it, none of which shares a supplier with another.

    Claims at one of these roots, with the ids of another, are claims at that one until it has no candidate.
    """

    def __init__(
        self, demands: Sequence[Demand], inventories: SimulatedInventories, deadline: Deadline
    ) -> None:
        self._names = sorted({name for demand in demands for name, _ in demand.resources})
        self._inventories = inventories
        self._deadline = deadline
        self._known: dict[Hashable, _Known] = {}
        self._supplier_count = 0

    def claims_at(self, root: RootSuppliers, most: int, claim: Callable[[], RootClaims]) -> RootClaims:
        """Return the claims at a root, at most `most`; they change the inventories.

        `claim` is called if a root like it has not been claimed yet, or has more claims.
        """
        shape = self._shape(root)
        known = self._known.get(shape.key)
        if known is not None and known.count <= most:
            self._inventories.free.update(_renumbered(known.free, shape.ids))
            return RootClaims(root.id, known.count, _renumbered(known.last, shape.ids))
        found = claim()
        self._supplier_count += len(shape.ids)
        if not found.is_cut and self._supplier_count <= MAX_SUPPLIERS:
            numbers = {id_: number for number, id_ in enumerate(shape.ids)}
            free = self._inventories.free
            keys = [key for key in itertools.product(shape.ids, self._names) if key in free]
            after = {key: free[key] for key in keys}
            known = _Known(found.count, _renumbered(found.last, numbers), _renumbered(after, numbers))
            self._known[shape.key] = known
        return found

    def _shape(self, root: RootSuppliers) -> _Shape:
        """Return the shape: the suppliers in an order that does not depend on their ids, if they differ."""
        list_numbers: dict[int, int] = {}
        lists_of: dict[int, list[int]] = {}
        for number, ids in enumerate(root.distinct_lists):
            list_numbers[id(ids)] = number
            for id_ in self._deadline.checked(ids):
                lists_of.setdefault(id_, []).append(number)
        described = [
            ((tuple(of_supplier), *self._description(id_)), id_)
            for id_, of_supplier in self._deadline.checked(lists_of.items())
        ]
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

    def _description(self, provider_id: int) -> tuple[Hashable, ...]:
        """Return the amounts and traits of a supplier, and its level in the tree."""
        held = self._inventories
        amounts = tuple(
            (
                number,
                held.free[key],
                held.max_unit.get(key, 0),
                held.min_unit.get(key, 0),
                held.step_size.get(key, 0),
            )
            for number, name in enumerate(self._names)
            if (key := (provider_id, name)) in held.free
        )
        return amounts, tuple(sorted(held.traits.get(provider_id, ()))), len(held.path(provider_id))


def _renumbered(amounts: ClaimAmounts, numbers: Mapping[int, int] | Sequence[int]) -> ClaimAmounts:
    return {(numbers[id_], name): amount for (id_, name), amount in amounts.items()}
