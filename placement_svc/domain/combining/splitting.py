"""Splits: one resource class of the unsuffixed group from several providers (`docs/spec/extensions.md 2.8`).

A class that `can_split` names is split only if no provider can supply its whole amount. A *split* is a set of
providers of the anchor's tree with the part that each of them supplies.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from placement_svc.domain.combining.interfaces import SuppliersByDemand, TreeSuppliers, UnitLookup
from placement_svc.domain.combining.split_suppliers import PART_SIZE, SplitSupplier, SupplierPart
from placement_svc.domain.demands import Demand
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.inventory import UnitLimits

FIRST_SPLIT_ID = 2**40
"""The first number of a `SplitSupplier`: the ids of providers are below it."""

MAX_CHUNK = 256
"""The most splits that are combined at once; at first it is one, as most searches need few candidates."""

CHUNK_GROWTH = 4
"""How many times as many splits each chunk has as the one before."""

MAX_CHUNK_PARTS = 4096
"""The number of parts at which a chunk ends: splits can have thousands of them."""

MEMBER_SIZE = 250
"""Bytes of memory that a provider of which sets are made needs, approximately."""

_split_ids = itertools.count(FIRST_SPLIT_ID)


def supplier_chunks(tree: TreeSuppliers) -> Iterator[SuppliersByDemand]:
    """Yield the suppliers of all demands, in which each split is one supplier.

    If a class has many splits, each element has only some of them. No combination of suppliers is in two.
    """
    if not all(tree.suppliers):
        return
    suppliers = list(tree.suppliers)
    split: list[int] = []
    demands = tree.rules.demands
    for demand in sorted(tree.rules.splittable):
        whole = whole_suppliers(demands[demand], tree.suppliers[demand], tree.providers, tree.deadline)
        if whole:
            suppliers[demand] = whole
        elif any(True for _ in _splits(tree, demand)):
            split.append(demand)
        else:
            return
    if not split:
        yield suppliers
        return
    chunks = [_chunks(tree, split[0])]
    while chunks:
        chunk = next(chunks[-1], None)
        if chunk is None:
            chunks.pop()
            continue
        suppliers[split[len(chunks) - 1]] = chunk
        if len(chunks) == len(split):
            yield list(suppliers)
        else:
            chunks.append(_chunks(tree, split[len(chunks)]))


def all_suppliers(tree: TreeSuppliers) -> SuppliersByDemand | None:
    """Return the suppliers of all demands, in which each split is one supplier; None if a class has none.

    The memory for the splits stays reserved.
    """
    suppliers = list(tree.suppliers)
    demands = tree.rules.demands
    for demand in sorted(tree.rules.splittable):
        found = whole_suppliers(demands[demand], tree.suppliers[demand], tree.providers, tree.deadline)
        if not found:
            for split in _splits(tree, demand):
                tree.memory.reserve(PART_SIZE * (1 + len(split.parts)))
                found.append(split)
        if not found:
            return None
        suppliers[demand] = found
    return suppliers


def whole_suppliers(
    demand: Demand, supplier_ids: Sequence[int], providers: UnitLookup, deadline: Deadline
) -> list[int]:
    """Return those suppliers of a demand that may be split which can supply its whole amount."""
    [(name, amount)] = demand.resources
    units = providers.units
    return [id_ for id_ in deadline.checked(supplier_ids) if units(id_, name).fits_units(amount)]


def _chunks(tree: TreeSuppliers, demand: int) -> Iterator[Sequence[SplitSupplier]]:
    """Yield the splits of a demand, in lists of growing length."""
    splits = _splits(tree, demand)
    size = 1
    while chunk := list(_first_splits(splits, size)):
        reserved = PART_SIZE * sum(1 + len(split.parts) for split in chunk)
        tree.memory.reserve(reserved)
        try:
            yield chunk
        finally:
            tree.memory.release(reserved)
        size = min(CHUNK_GROWTH * size, MAX_CHUNK)


def _first_splits(splits: Iterator[SplitSupplier], size: int) -> Iterator[SplitSupplier]:
    parts = 0
    for split in itertools.islice(splits, size):
        yield split
        parts += len(split.parts)
        if parts >= MAX_CHUNK_PARTS:
            return


def _splits(tree: TreeSuppliers, demand: int) -> Iterator[SplitSupplier]:
    """Yield the splits of a demand for which no provider can supply the whole amount."""
    [(name, amount)] = tree.rules.demands[demand].resources
    providers = tree.providers
    limits = [
        (id_, providers.units(id_, name))
        for id_ in tree.deadline.checked(tree.suppliers[demand])
        if providers.path(id_)[0] == tree.root_id
    ]
    for members in smallest_sets(limits, amount, tree.deadline, tree.memory):
        members = sorted(members, key=lambda member: providers.uuid(member.provider_id))
        yield SplitSupplier(next(_split_ids), tuple(_parts(members, amount)))


class Member(NamedTuple):
    """A provider of a set, and the least and the greatest part that it can supply there."""

    provider_id: int
    low: int
    high: int
    step_size: int


def _parts(members: Iterable[Member], amount: int) -> Iterator[SupplierPart]:
    """Yield the part of each member of a set that suffices: as much as leaves the others their least part."""
    members = list(members)
    rest, low_after = amount, sum(member.low for member in members)
    for member in members:
        low_after -= member.low
        part = min(member.high, rest - low_after)
        rest -= part
        yield SupplierPart(member.provider_id, part)


def smallest_sets(
    limits: Sequence[tuple[int, UnitLimits]], amount: int, deadline: Deadline, memory: MemoryBudget
) -> Iterator[Sequence[Member]]:
    """Yield each set of the smallest number of providers that can supply `amount` together.

    The providers have the ids and units in `limits`; none of them can supply the amount alone. Raises what
    `Deadline.check` and `MemoryBudget.reserve` raise.
    """
    usable = [(id_, units) for id_, units in limits if units.is_multiple(amount)]
    by_multiple: list[_MembersOfMultiple] = []
    reserved = 0
    try:
        for multiple in _multiples({units.step_size for _, units in usable}, deadline):
            found = _MembersOfMultiple.of(usable, multiple, amount)
            if found is not None:
                memory.reserve(MEMBER_SIZE * len(found.members))
                reserved += MEMBER_SIZE * len(found.members)
                by_multiple.append(found)
        yield from _sets_of_least_size(by_multiple, deadline)
    finally:
        memory.release(reserved)


def can_supply_together(
    limits: Sequence[UnitLimits], amount: int, deadline: Deadline, memory: MemoryBudget
) -> bool:
    """Return whether several providers, none of which can supply `amount` alone, can supply it together.

    Raises what `smallest_sets` raises.
    """
    step_sizes = {units.step_size for units in limits}
    if len(step_sizes) == 1 and all(units.min_unit <= units.step_size for units in limits):
        # The least part is one step. So those with the largest parts suffice if any do.
        [step_size] = step_sizes
        return limits[0].is_multiple(amount) and amount <= sum(
            units.max_unit // step_size * step_size for units in limits
        )
    return any(True for _ in smallest_sets(list(enumerate(limits)), amount, deadline, memory))


def _multiples(step_sizes: Iterable[int], deadline: Deadline) -> Iterable[int]:
    """Return the least common multiples of all sets of step sizes."""
    multiples = {1}
    for step_size in sorted(step_sizes):
        multiples |= {math.lcm(step_size, other) for other in deadline.checked(multiples)}
    return deadline.checked(sorted(multiples))


def _sets_of_least_size(
    by_multiple: Sequence["_MembersOfMultiple"], deadline: Deadline
) -> Iterator[Sequence[Member]]:
    """Yield the sets of the least size of which any suffices."""
    least = min((found.least for found in by_multiple), default=0)
    most = max((found.most for found in by_multiple), default=-1)
    for size in range(least, most + 1):
        has_found = False
        for found in by_multiple:
            for members in found.sets(size, deadline):
                has_found = True
                yield members
        if has_found:
            return


@dataclass(frozen=True)
class _MembersOfMultiple:
    """The providers that can be in a set in which `multiple` is the least common multiple of the step sizes.

    They are in descending order of `high`. `least` and `most` are bounds of the size of such a set.
    """

    multiple: int
    amount: int
    members: Sequence[Member]
    high_before: Sequence[int]
    """For each position, the sum of `high` of the members before it."""
    low_from: Sequence[int]
    """For each position, the smallest `low` of the members from there on."""
    multiple_from: Sequence[int]
    """For each position, the least common multiple of the step sizes of the members from there on."""
    least: int
    most: int

    @classmethod
    def of(
        cls, limits: Iterable[tuple[int, UnitLimits]], multiple: int, amount: int
    ) -> "_MembersOfMultiple | None":
        """Return the providers for one multiple; None if no set of them can suffice."""
        members = []
        for id_, units in limits:
            if units.is_multiple(multiple):
                low = -(-max(units.min_unit, multiple) // multiple) * multiple
                high = units.max_unit // multiple * multiple
                if low <= high:
                    members.append(Member(id_, low, high, units.step_size))
        members.sort(key=lambda member: (-member.high, member.provider_id))
        high_before = list(itertools.accumulate((member.high for member in members), initial=0))
        low_sums = itertools.accumulate(sorted(member.low for member in members))
        most = sum(1 for low_sum in low_sums if low_sum <= amount)
        least = max(2, sum(1 for high_sum in high_before if high_sum < amount))
        if least > most:
            return None
        reverse = members[::-1]
        low_from = list(itertools.accumulate((member.low for member in reverse), min))[::-1]
        steps = (member.step_size for member in reverse)
        multiple_from = [*list(itertools.accumulate(steps, math.lcm))[::-1], 1]
        return cls(multiple, amount, members, high_before, low_from, multiple_from, least, most)

    def sets(self, size: int, deadline: Deadline) -> Iterator[Sequence[Member]]:
        """Yield the sets of a size that suffice.

        A set is abandoned as soon as no further members can make it suffice.
        """
        if not self.least <= size <= self.most:
            return
        chosen: list[int] = []
        sums = [(0, 0, 1)]
        position = 0
        while True:
            deadline.check()
            low, high, multiple = sums[-1]
            if len(chosen) == size:
                if low <= self.amount <= high and multiple == self.multiple:
                    yield [self.members[index] for index in chosen]
            elif self._can_suffice(position, size - len(chosen), sums[-1]):
                member = self.members[position]
                chosen.append(position)
                sums.append((low + member.low, high + member.high, math.lcm(multiple, member.step_size)))
                position += 1
                continue
            if not chosen:
                return
            position = chosen.pop() + 1
            sums.pop()

    def _can_suffice(self, position: int, missing: int, sums: tuple[int, int, int]) -> bool:
        """Return whether a set with these sums may suffice with so many members from `position` on."""
        low, high, multiple = sums
        end = position + missing
        return (
            end <= len(self.members)
            and high + self.high_before[end] - self.high_before[position] >= self.amount
            and low + self.low_from[position] * missing <= self.amount
            and math.lcm(multiple, self.multiple_from[position]) == self.multiple
        )
