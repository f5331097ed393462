"""Whether a root passes some filters of a group, from bit masks (`docs/spec/extensions.md 3.2`).

Each distinct condition of a request has a bit. The *pattern* of a provider has the bits of the conditions
that the provider meets.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from placement_svc.domain.deadline import Deadline
from placement_svc.domain.explanation import (
    AMOUNT_CODES,
    Condition,
    Filter,
    FilterCode,
    GroupFilters,
    TreeCondition,
)

Bits = Mapping[Condition, int]
"""The number of the bit of each condition."""


@dataclass(frozen=True)
class RootPattern:
    """The patterns around a root: of the root, of its tree, and of the sharing providers that serve it.

    The sharing providers of the tree may be among those that serve it.
    """

    root: int
    own: tuple[int, ...]
    shared: tuple[int, ...]


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

    def suppliers(self, root: RootPattern) -> Iterable[int]:
        """Yield the patterns that can supply the demand at a root."""
        for pattern in root.own:
            if self.supplies(root.root, pattern, is_shared=False):
                yield pattern
        for pattern in root.shared:
            if self.supplies(root.root, pattern, is_shared=True):
                yield pattern


@dataclass(frozen=True)
class GroupTest:
    """The test of a group with some of its filters.

    Each of `demands` needs a supplier, and the suppliers together must have all bits of `together`.
    """

    demands: tuple[DemandTest, ...]
    together: int
    deadline: Deadline

    def passes(self, root: RootPattern) -> bool:
        """Return whether a root passes the filters."""
        self.deadline.check()
        if not self.together:
            return all(any(True for _ in demand.suppliers(root)) for demand in self.demands)
        found = [_maximal(each & self.together for each in demand.suppliers(root)) for demand in self.demands]
        if not all(found):
            return False
        if any(self.together in patterns for patterns in found):
            return True
        reachable = {0}
        for patterns in found:
            products = (one | other for one in self.deadline.checked(reachable) for other in patterns)
            reachable = _maximal(products)
        return self.together in reachable


def _requires_tree(each: Filter) -> bool:
    return isinstance(each.condition, TreeCondition) and each.condition.root_id is not None


def _maximal(patterns: Iterable[int]) -> set[int]:
    """Return the patterns whose bits no other pattern contains."""
    maximal: list[int] = []
    for pattern in sorted(set(patterns), key=int.bit_count, reverse=True):
        if not any(pattern & other == pattern for other in maximal):
            maximal.append(pattern)
    return set(maximal)


class GroupTests:
    """The tests of one group."""

    def __init__(self, group: GroupFilters, bits: Bits, deadline: Deadline) -> None:
        self.group = group
        self._bits = bits
        self._deadline = deadline
        self._tests: dict[frozenset[Filter], GroupTest] = {}

    def test(self, filters: Collection[Filter]) -> GroupTest:
        """Return the test with only these filters, and the `inventory` filters that always belong to them."""
        tested = frozenset(filters) | self._inventories(filters)
        if tested not in self._tests:
            build = self._suffixed if self.group.suffix else self._unsuffixed
            self._tests[tested] = build([each for each in self.group.filters if each in tested])
        return self._tests[tested]

    def _inventories(self, filters: Collection[Filter]) -> frozenset[Filter]:
        classes = {each.resource_class for each in filters}
        return frozenset(
            each
            for each in self.group.having([FilterCode.INVENTORY])
            if each.resource_class in classes or None in classes
        )

    def _mask(self, filters: Iterable[Filter]) -> int:
        return sum({1 << self._bits[each.condition] for each in filters})

    def _suffixed(self, tested: Sequence[Filter]) -> GroupTest:
        return GroupTest((DemandTest(needed=self._mask(tested)),), 0, self._deadline)

    def _unsuffixed(self, tested: Sequence[Filter]) -> GroupTest:
        def mask(*codes: FilterCode) -> int:
            return self._mask(each for each in tested if each.code in codes)

        of_all = mask(FilterCode.FORBIDDEN_TRAIT, FilterCode.FORBIDDEN_AGGREGATE, FilterCode.IN_TREE)
        classes = dict.fromkeys(each.resource_class for each in tested if each.code in AMOUNT_CODES)
        demands = tuple(
            DemandTest(
                needed=of_all | self._mask(each for each in tested if each.resource_class == name),
                needed_of_root=mask(FilterCode.FORBIDDEN_AGGREGATE, FilterCode.IN_TREE),
                own_or_root=mask(FilterCode.MEMBER_OF),
                allows_shared=not any(map(_requires_tree, tested)),
            )
            for name in classes
        )
        return GroupTest(demands, mask(FilterCode.REQUIRED), self._deadline)
