"""The filters that a root fails, from bit masks (`docs/spec/extensions.md 3.6`)."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from placement_svc.domain.explanation.filters import (
    AMOUNT_CODES,
    AmountCondition,
    Condition,
    Filter,
    FilterCode,
    GroupFilters,
    TreeCondition,
)
from placement_svc.domain.explanation.root_tests import GroupTests
from placement_svc.domain.explanation.supplier_tests import Bits, RootPattern, SplitTest, TestedRoot


@dataclass(frozen=True)
class UnsuppliedDemand:
    """A demand of a group that fails at a root: a suffixed group, or a class of the unsuffixed group.

    `own` and `shared` are the patterns of those providers of the tree, and of those sharing providers, which
    come closest: they fail equally many filters. There are none if no provider has an inventory of the class.
    With `lacks_amounts`, some of them lack an amount or an inventory. With `has_inventory`, some of `own`
    have an inventory of the requested classes. With `is_split`, several providers of the tree can supply the
    class together: the amount is not tested.
    """

    group: GroupFilters
    resource_class: str | None
    own: frozenset[int] = frozenset()
    shared: frozenset[int] = frozenset()
    lacks_amounts: bool = False
    has_inventory: bool = False
    is_split: bool = False

    @property
    def resources(self) -> list[tuple[int, int]]:
        """The requested amounts by class id."""
        return [
            (each.condition.class_id, each.condition.amount)
            for each in self.group.amounts
            if isinstance(each.condition, AmountCondition)
            and self.resource_class in (None, each.resource_class)
        ]


@dataclass(frozen=True)
class GroupFailures:
    """The filters that a group without a choice fails at a root, `count` in number.

    `common` are those that do not depend on the choice of a provider.
    """

    demands: tuple[UnsuppliedDemand, ...]
    common: tuple[Filter, ...]
    count: int


class ProviderFailures:
    """The filters of a group that single providers fail."""

    def __init__(self, tests: GroupTests, bits: Bits) -> None:
        group = self.group = tests.group
        self._bits = {each: 1 << bits[each.condition] for each in group.filters}
        self._inventories = {each.resource_class: each for each in group.having([FilterCode.INVENTORY])}
        # Several classes of the unsuffixed group can fail one of these filters, which counts once.
        shared = group.without(*AMOUNT_CODES, FilterCode.REQUIRED)
        self._counts_once = not group.suffix and len(self._inventories) > 1 and bool(shared)
        self._split_tests = {
            name: test
            for name, test in zip(self._inventories, tests.complete.demands, strict=False)
            if isinstance(test, SplitTest)
        }
        self._found: dict[tuple[RootPattern, frozenset[str | None]], GroupFailures] = {}

    def failing(
        self,
        root: int,
        pattern: int,
        resource_class: str | None,
        *,
        is_shared: bool,
        is_split: bool = False,
    ) -> tuple[Filter, ...]:
        """Return the filters that a provider fails at a root, apart from those that its inventories lack.

        In the unsuffixed group, they are those on one class, and `required` is not among them. With
        `is_split`, those on the amount are not, either.
        """
        return tuple(
            each
            for each in self.group.filters
            if self._is_tested(each, pattern, resource_class)
            and not (is_split and each.code in AMOUNT_CODES)
            and self._fails(each, root, pattern, is_shared=is_shared)
        )

    def _any_inventory(self, resource_class: str | None = None) -> int:
        """Return the bits of the inventories of a class (None: of all classes)."""
        if resource_class is not None:
            return self._bits[self._inventories[resource_class]]
        return sum(self._bits[each] for each in self._inventories.values())

    def _is_tested(self, each: Filter, pattern: int, resource_class: str | None) -> bool:
        if each.code in AMOUNT_CODES:
            if resource_class not in (None, each.resource_class):
                return False
            has_inventory = pattern & self._bits[self._inventories[each.resource_class]]
            return bool(has_inventory) or each.code is FilterCode.INVENTORY
        return bool(self.group.suffix) or each.code is not FilterCode.REQUIRED

    def _fails(self, each: Filter, root: int, pattern: int, *, is_shared: bool) -> bool:
        fails = not pattern & self._bits[each]
        if self.group.suffix:
            return fails
        match each.code:
            case FilterCode.MEMBER_OF:
                own, of_root = self._failing_clauses(pattern), self._failing_clauses(root)
                return each in (own if is_shared or len(own) <= len(of_root) else of_root)
            case FilterCode.FORBIDDEN_AGGREGATE:
                return fails or not root & self._bits[each]
            case FilterCode.IN_TREE:
                is_required = isinstance(each.condition, TreeCondition) and each.condition.root_id is not None
                return fails or not root & self._bits[each] or (is_shared and is_required)
        return fails

    def _failing_clauses(self, pattern: int) -> list[Filter]:
        return [each for each in self.group.having([FilterCode.MEMBER_OF]) if not pattern & self._bits[each]]

    def at_root(self, root: TestedRoot) -> GroupFailures:
        """Return the filters that the group fails at a root where it has no choice."""
        split = frozenset(name for name, test in self._split_tests.items() if test.is_split(root))
        key = root.pattern, split
        if key not in self._found:
            self._found[key] = self._at_pattern(root.pattern, split)
        return self._found[key]

    def _at_pattern(self, root: RootPattern, split: Collection[str | None]) -> GroupFailures:
        """Return what the group fails if several providers can supply each of the classes `split`."""
        if self.group.suffix:
            patterns = _around(root)
            demand, failing = self._closest(root, None, patterns, known=())
            return GroupFailures((demand,), (), len(failing))
        return self._unsuffixed(root, split)

    def _unsuffixed(self, root: RootPattern, split: Collection[str | None]) -> GroupFailures:
        demands, failing = [], dict[Filter, None]()
        for name, inventory in self._inventories.items():
            patterns = [each for each in _around(root) if each[0] & self._bits[inventory]]
            if not patterns:
                demands.append(UnsuppliedDemand(self.group, name, lacks_amounts=True))
                failing[inventory] = None
                continue
            is_split = name in split
            if is_split:
                patterns = [each for each in patterns if not each[1]]
            demand, found = self._closest(root, name, patterns, known=failing, is_split=is_split)
            demands.append(demand)
            failing |= dict.fromkeys(found)
        common = tuple(self._unmet_required(root))
        if not failing and not common:
            # Each clause is met by some provider, but no choice of suppliers meets all.
            common = self.group.having([FilterCode.REQUIRED])
        return GroupFailures(tuple(demands), common, len(failing) + len(common))

    def _unmet_required(self, root: RootPattern) -> Iterator[Filter]:
        """Yield the required clauses that no provider with one of the classes meets."""
        any_class = self._any_inventory()
        having = [pattern for pattern, _ in _around(root) if pattern & any_class]
        for each in self.group.having([FilterCode.REQUIRED]):
            if not any(pattern & self._bits[each] for pattern in having):
                yield each

    def _closest(
        self,
        root: RootPattern,
        resource_class: str | None,
        patterns: Iterable[tuple[int, bool]],
        known: Iterable[Filter],
        *,
        is_split: bool = False,
    ) -> tuple[UnsuppliedDemand, tuple[Filter, ...]]:
        """Return the demand with the closest patterns, and the filters that the first of these fails."""
        listed = set(known)
        ranked = {}
        for pattern, is_shared in patterns:
            failing = self.failing(root.root, pattern, resource_class, is_shared=is_shared, is_split=is_split)
            rank: tuple[object, ...] = (len(failing),)
            if self._counts_once:
                new = [
                    n for n, each in enumerate(self.group.filters) if each in failing and each not in listed
                ]
                rank = (*rank, len(new), new)
            ranked[pattern, is_shared] = (rank, failing)
        best, failing = min(ranked.values(), key=lambda each: each[0])
        closest = {key: found for key, (rank, found) in ranked.items() if rank == best}
        own = frozenset(pattern for pattern, is_shared in closest if not is_shared)
        any_inventory = self._any_inventory(resource_class)
        demand = UnsuppliedDemand(
            self.group,
            resource_class,
            own=own,
            shared=frozenset(pattern for pattern, is_shared in closest if is_shared),
            lacks_amounts=any(each.code in AMOUNT_CODES for found in closest.values() for each in found),
            has_inventory=any(pattern & any_inventory for pattern in own),
            is_split=is_split,
        )
        return demand, failing


def _around(root: RootPattern) -> Sequence[tuple[int, bool]]:
    """Return the patterns around a root, each with whether it is that of a sharing provider."""
    return [*((pattern, False) for pattern in root.own), *((pattern, True) for pattern in root.shared)]


def separating_bits(choices: Iterable[tuple[Collection[int], Iterable[int]]], bits: Bits) -> Bits:
    """Return bits that separate patterns from others; bits of inventories are preferred.

    Each of `choices` has some patterns, and the patterns to separate them from, which may include them. The
    result has few bits, but not always the fewest.
    """
    by_preference = sorted(bits.items(), key=lambda each: _is_costly(each[0]))
    chosen: dict[Condition, int] = {}
    mask = 0
    for closest, around in {(frozenset(inside), frozenset(others)) for inside, others in choices}:
        others = around - closest
        while equal := {pattern & mask for pattern in closest} & {pattern & mask for pattern in others}:
            first = min(equal)
            one, other = (min(each for each in of if each & mask == first) for of in (closest, others))
            condition, bit = next(each for each in by_preference if (one ^ other) >> each[1] & 1)
            chosen[condition] = bit
            mask |= 1 << bit
    return chosen


def _is_costly(condition: Condition) -> bool:
    """Return whether a condition needs more than to know that an inventory exists."""
    return not isinstance(condition, AmountCondition) or condition.code is not FilterCode.INVENTORY


def project(pattern: int, bits: Bits, kept: Iterable[Condition]) -> int:
    """Return the pattern with the bits of `kept` only, which are numbered in their order."""
    return sum((pattern >> bits[each] & 1) << number for number, each in enumerate(kept))
