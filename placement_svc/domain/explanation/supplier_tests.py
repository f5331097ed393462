"""Whether providers around a root can supply a part of a request, from bit masks.

Each distinct condition of a request has a bit. The *pattern* of a provider has the bits of the conditions
that the provider meets (`docs/spec/extensions.md 3.2`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import Protocol

from placement_svc.domain.combining.splitting import can_supply_together, smallest_sets
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.filters import Condition, FilterCode
from placement_svc.domain.inventory import HeldAmount, UnitLimits

Bits = Mapping[Condition, int]
"""The number of the bit of each condition."""

Held = Sequence[tuple[HeldAmount, ...]]
"""For each provider of a tree, its inventories of the classes that may be split."""


@dataclass(frozen=True, eq=False)
class RootPattern:
    """The patterns around a root: of the root, of its tree, and of the sharing providers that serve it.

    The sharing providers of the tree may be among those that serve it. `of_providers` has the pattern of each
    provider of the tree if some classes may be split. A pattern is equal only to itself: roots with equal
    ones share one object.
    """

    root: int
    own: tuple[int, ...]
    shared: tuple[int, ...]
    of_providers: tuple[int, ...] = ()

    @cached_property
    def around(self) -> int:
        """The bits that any provider of the tree or any of the sharing providers has."""
        return reduce(or_, (*self.own, *self.shared), 0)


class TestedRoot(Protocol):
    """A root, or several that are equal."""

    @property
    def pattern(self) -> RootPattern:
        """The patterns around it."""

    @property
    def held(self) -> Held:
        """The inventories of the classes that may be split, in the order of `RootPattern.of_providers`."""


@dataclass(frozen=True, kw_only=True)
class DemandTest:
    """The test of what one provider supplies: a pattern must have all bits of `needed`.

    The pattern of the root must have those of `needed_of_root`. With `own_or_root`, which the unsuffixed
    group uses for `member_of`, the pattern of the provider or that of its root must have these bits; that of
    a sharing provider of another tree must have them itself.
    """

    needed: int
    needed_of_root: int = 0
    own_or_root: int = 0
    allows_shared: bool = True

    def supplies(self, root: int, pattern: int, *, is_shared: bool) -> bool:
        """Return whether a provider with this pattern can supply the demand at a root."""
        if pattern & self.needed != self.needed or root & self.needed_of_root != self.needed_of_root:
            return False
        if is_shared:
            return self.allows_shared and pattern & self.own_or_root == self.own_or_root
        return self.own_or_root in (pattern & self.own_or_root, root & self.own_or_root)

    def has_supplier(self, root: RootPattern) -> bool:
        """Return whether any pattern can supply the demand at a root."""
        return any(True for _ in self.suppliers(root))

    def suppliers(self, root: RootPattern) -> Iterator[int]:
        """Yield the patterns that can supply the demand at a root."""
        for pattern in root.own:
            if self.supplies(root.root, pattern, is_shared=False):
                yield pattern
        for pattern in root.shared:
            if self.supplies(root.root, pattern, is_shared=True):
                yield pattern


PartLimits = Callable[[HeldAmount], UnitLimits]
"""The function that returns which parts of an amount an inventory can supply."""


@dataclass(frozen=True, kw_only=True)
class SplitTest:
    """The test of a class that several providers of the tree may supply (`docs/spec/extensions.md 2.8`).

    `whole` tests a provider of the whole amount, and `part` a provider of the tree that supplies a part.
    `number` is the position of the class in `Held`, and `codes` are the tested filters on its amount. Of the
    bits of the suppliers, only those in `required` count.
    """

    whole: DemandTest
    part: DemandTest
    number: int
    amount: int
    codes: frozenset[FilterCode]
    required: int
    part_limits: PartLimits = field(compare=False)
    deadline: Deadline = field(compare=False)
    memory: MemoryBudget = field(compare=False)

    def supplies(self, root: int, pattern: int, *, is_shared: bool) -> bool:
        """Return whether a provider with this pattern can supply the amount or, in the tree, a part of it."""
        test = self.whole if is_shared else self.part
        return test.supplies(root, pattern, is_shared=is_shared)

    def suppliers_of_parts(self, root: RootPattern) -> "PartSuppliers | None":
        """Return the providers that can supply a part; None if a provider can supply the whole amount."""
        if self.whole.has_supplier(root):
            return None
        bits = {
            number: pattern & self.required
            for number, pattern in enumerate(root.of_providers)
            if self.part.supplies(root.root, pattern, is_shared=False)
        }
        return PartSuppliers(self, bits)

    def is_split(self, root: TestedRoot) -> bool:
        """Return whether only a set of providers can supply the class; raises what `smallest_sets` raises."""
        parts = self.suppliers_of_parts(root.pattern)
        return parts is not None and parts.suffice(root.held)


@dataclass(frozen=True)
class PartSuppliers:
    """The providers of a tree that can supply a part of a class, of which none can supply the whole amount.

    `bits` has the required bits that each of them has, by its position in the tree. They are the same at all
    roots with one pattern; whether these providers suffice depends on what they hold.
    """

    test: SplitTest
    bits: Mapping[int, int]

    def suffice(self, held: Held) -> bool:
        """Return whether a set of the providers can supply the amount; raises what `smallest_sets` raises."""
        test = self.test
        return can_supply_together(self._limits(held), test.amount, test.deadline, test.memory)

    def bits_together(self, held: Held) -> Iterator[int]:
        """Yield the bits of each smallest set of the providers; raises what `smallest_sets` raises."""
        test = self.test
        every = reduce(or_, self.bits.values(), 0)
        limits = list(zip(self.bits, self._limits(held), strict=True))
        for members in smallest_sets(limits, test.amount, test.deadline, test.memory):
            together = reduce(or_, (self.bits[member.provider_id] for member in members))
            yield together
            if together == every:
                return

    def _limits(self, held: Held) -> list[UnitLimits]:
        """Return the parts that each of the providers can supply."""
        test = self.test
        return [test.part_limits(held[number][test.number]) for number in self.bits]


SupplierTest = DemandTest | SplitTest


def part_limits(codes: Collection[FilterCode], amount: int) -> PartLimits:
    """Return the function for the parts of an amount, if only the filters `codes` are tested."""
    tests_units = FilterCode.UNIT in codes
    tests_capacity = FilterCode.CAPACITY in codes
    tests_free = FilterCode.FREE in codes

    def limits(held: HeldAmount) -> UnitLimits:
        min_unit, max_unit, step_size = held.units if tests_units else (1, amount, 1)
        if tests_free:
            # No more is free than the capacity.
            max_unit = min(max_unit, held.free)
        elif tests_capacity:
            max_unit = min(max_unit, held.capacity)
        return UnitLimits(min_unit, max_unit, step_size)

    return limits
