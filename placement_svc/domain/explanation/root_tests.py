"""Whether a root passes some filters of a group (`docs/spec/extensions.md 3.2`)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, groupby
from operator import attrgetter, or_

from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.filters import (
    AMOUNT_CODES,
    Filter,
    FilterCode,
    GroupFilters,
    TreeCondition,
)
from placement_svc.domain.explanation.supplier_tests import (
    Bits,
    DemandTest,
    Held,
    PartSuppliers,
    RootPattern,
    SplitTest,
    SupplierTest,
    TestedRoot,
    part_limits,
)


@dataclass(frozen=True)
class GroupTest:
    """The test of a group with some of its filters.

    Each of `demands` needs a supplier, and the suppliers together must have all bits of `together`.
    """

    demands: tuple[SupplierTest, ...]
    together: int
    deadline: Deadline

    def results(self, roots: Iterable[TestedRoot]) -> Iterator[bool]:
        """Yield for each root whether it passes the filters.

        Roots with one pattern should be next to each other: the patterns are tested once for all of them, and
        what their providers hold only if several are needed for one amount.
        """
        for pattern, alike in groupby(roots, key=attrgetter("pattern")):
            self.deadline.check()
            splits = self._splits(pattern)
            if splits:
                for root in self.deadline.checked(alike):
                    yield self._passes(pattern, splits, root.held)
            else:
                passes = splits is not None and self._passes(pattern, splits, ())
                yield from (passes for _ in alike)

    def _splits(self, root: RootPattern) -> Mapping[int, PartSuppliers] | None:
        """Return the providers of parts for each demand, by position, that one provider cannot supply.

        None if no root with this pattern passes, whatever its providers hold.
        """
        if self.together & ~root.around:
            return None
        splits = {}
        for number, demand in enumerate(self.demands):
            if isinstance(demand, SplitTest):
                if (parts := demand.suppliers_of_parts(root)) is not None:
                    splits[number] = parts
            elif not demand.has_supplier(root):
                return None
        return splits

    def _passes(self, root: RootPattern, splits: Mapping[int, PartSuppliers], held: Held) -> bool:
        if not all(parts.suffice(held) for parts in splits.values()):
            return False
        if not self.together:
            return True
        found = []
        for number, demand in enumerate(self.demands):
            if number in splits:
                bits = splits[number].bits_together(held)
            else:
                whole = demand.whole if isinstance(demand, SplitTest) else demand
                bits = whole.suppliers(root)
            patterns = _maximal(each & self.together for each in bits)
            if self.together in patterns:
                return True
            found.append(patterns)
        reachable = {0}
        for patterns in found:
            products = (one | other for one in self.deadline.checked(reachable) for other in patterns)
            reachable = _maximal(products)
        return self.together in reachable


def _requires_tree(each: Filter) -> bool:
    return isinstance(each.condition, TreeCondition) and each.condition.root_id is not None


def _maximal(patterns: Iterable[int]) -> set[int]:
    """Return the patterns whose bits no other pattern contains."""
    distinct = set(patterns)
    if len(distinct) < 2:
        return distinct
    maximal: list[int] = []
    for pattern in sorted(distinct, key=int.bit_count, reverse=True):
        if not any(pattern & other == pattern for other in maximal):
            maximal.append(pattern)
    return set(maximal)


class GroupTests:
    """The tests of one group. Each tests some filters of the group: a mask with the bits of their conditions.

    The number of tests, and that of the classes in each, grow with the filters. So a test is built from
    masks of the group, not from its filters, and equal `DemandTest` objects of several tests are one object.
    """

    def __init__(self, group: GroupFilters, bits: Bits, deadline: Deadline, memory: MemoryBudget) -> None:
        self.group = group
        self._deadline = deadline
        self._memory = memory
        self._bits = {each: 1 << bits[each.condition] for each in group.filters}
        self._uses = Counter(self._bits.values())
        """The number of filters with each bit: filters with equal conditions have the same one."""
        self._all = self.mask(group.filters)
        self.filters = frozenset(group.filters)
        self.free = {each.resource_class: each for each in group.amounts}
        """The filter `free` of each class."""
        self._inventories = {
            each.resource_class: self._bits[each] for each in group.having([FilterCode.INVENTORY])
        }
        self._of_class = dict.fromkeys(self._inventories, 0)
        self._split_filters: dict[str | None, list[Filter]] = {
            name: [] for name in self._inventories if name in group.can_split
        }
        for each in group.having(AMOUNT_CODES):
            self._of_class[each.resource_class] |= self._bits[each]
            if each.resource_class in self._split_filters:
                self._split_filters[each.resource_class].append(each)
        self._of_parts = {each: 1 << bits[condition] for each, condition in group.part_conditions.items()}
        self._without_class = self.mask(group.without(*AMOUNT_CODES))
        self._of_suppliers = self._having(
            FilterCode.FORBIDDEN_TRAIT, FilterCode.FORBIDDEN_AGGREGATE, FilterCode.IN_TREE
        )
        self._of_root = self._having(FilterCode.FORBIDDEN_AGGREGATE, FilterCode.IN_TREE)
        self._own_or_root = self._having(FilterCode.MEMBER_OF)
        self._required = self._having(FilterCode.REQUIRED)
        self._in_required_tree = self.mask(filter(_requires_tree, group.filters))
        self._tests: dict[int, GroupTest] = {}
        self._demands: dict[tuple[int, int], DemandTest] = {}

    def _having(self, *codes: FilterCode) -> int:
        return self.mask(self.group.having(codes))

    def mask(self, filters: Iterable[Filter]) -> int:
        """Return the mask of some filters of the group."""
        return reduce(or_, map(self._bits.__getitem__, filters), 0)

    @cached_property
    def complete(self) -> GroupTest:
        """The test with all filters."""
        return self.test(self._all)

    def mask_without(self, untested: Iterable[Filter]) -> int:
        """Return the mask of all filters of the group but these."""
        unused = Counter(self._bits[each] for each in untested)
        return self._all & ~sum(bit for bit, uses in unused.items() if uses == self._uses[bit])

    def test(self, mask: int) -> GroupTest:
        """Return the test with only these filters, and the `inventory` filters that always belong to them."""
        if mask not in self._tests:
            build = self._suffixed if self.group.suffix else self._unsuffixed
            self._tests[mask] = build(mask)
        return self._tests[mask]

    def prefixes(self) -> Iterator[GroupTest]:
        """Yield the test with the first filter, that with the first two, and so on."""
        return map(self.test, accumulate(map(self._bits.__getitem__, self.group.filters), or_))

    def _tested_of_classes(self, mask: int) -> Iterator[tuple[str | None, int]]:
        """Yield the classes that have any bits to test: those in the mask, and that of `inventory`."""
        tests_all = mask & self._without_class
        for name, of_class in self._of_class.items():
            tested = mask & of_class
            if tested or tests_all:
                yield name, tested | self._inventories[name]

    def _suffixed(self, mask: int) -> GroupTest:
        needed = reduce(or_, (of_class for _, of_class in self._tested_of_classes(mask)), mask)
        return GroupTest((DemandTest(needed=needed),), 0, self._deadline)

    def _unsuffixed(self, mask: int) -> GroupTest:
        common, required = mask & self._without_class, mask & self._required
        demands = tuple(
            self._split(name, of_class, common, required)
            if name in self._split_filters
            else self._demand(of_class, common)
            for name, of_class in self._tested_of_classes(mask)
        )
        return GroupTest(demands, required, self._deadline)

    def _split(self, name: str | None, of_class: int, common: int, required: int) -> SplitTest:
        """Return the test of the suppliers of a class that may be split."""
        tested = [each for each in self._split_filters[name] if of_class & self._bits[each]]
        codes = frozenset(each.code for each in tested)
        amount = tested[-1].wanted or 0
        of_part = self._inventories[name]
        if FilterCode.UNIT in codes:
            of_part |= reduce(or_, (self._of_parts.get(each, 0) for each in tested))
        return SplitTest(
            whole=self._demand(of_class, common),
            part=self._demand(of_part, common),
            number=list(self._split_filters).index(name),
            amount=amount,
            codes=codes,
            required=required,
            part_limits=part_limits(codes, amount),
            deadline=self._deadline,
            memory=self._memory,
        )

    def _demand(self, of_class: int, common: int) -> DemandTest:
        """Return the test of the supplier of a class: `common` has the tested filters without a class."""
        key = of_class, common
        if key not in self._demands:
            self._demands[key] = DemandTest(
                needed=of_class | common & self._of_suppliers,
                needed_of_root=common & self._of_root,
                own_or_root=common & self._own_or_root,
                allows_shared=not common & self._in_required_tree,
            )
        return self._demands[key]
