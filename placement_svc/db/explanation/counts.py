"""The counts of the filters of groups and of the root, from the patterns around the roots.

`docs/spec/extensions.md 3.3` defines them. The filters on combinations are in `combinations`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import compress

from placement_svc.db.explanation.cloud import Cloud, EqualRoots, Scope, read_cloud
from placement_svc.db.explanation.layout import Layout
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.db.search.ignored_consumers import InventoryReader
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.filters import (
    Filter,
    FilterCode,
    GroupFilters,
    RequestFilters,
    RootFilter,
)
from placement_svc.domain.explanation.relaxations import MAX_CHANGES
from placement_svc.domain.explanation.root_tests import GroupTest, GroupTests


@dataclass(frozen=True)
class Counts:
    """The numbers of roots of one filter."""

    alone: int
    left: int
    sole_blocker: int


@dataclass(frozen=True)
class CountsReader:
    """Reads the roots of the cloud and counts them for the filters of a request."""

    inventories: InventoryReader
    sharing_trait_id: int | None
    filters: RequestFilters
    options: SearchOptions

    def read(self, layout: Layout, scope: Scope) -> "RootCounts":
        """Return the counts of the roots that a scope covers."""
        memory = self.options.memory
        cloud = read_cloud(self.inventories, layout, self.sharing_trait_id, scope, memory)
        return RootCounts(cloud, self.filters, self.options.deadline, memory)


class RootCounts:
    """The counts of all filters but those on combinations."""

    def __init__(
        self,
        cloud: Cloud,
        filters: RequestFilters,
        deadline: Deadline,
        memory: MemoryBudget,
        known: Mapping[GroupFilters, GroupTests] | None = None,
    ) -> None:
        """Count the roots of a cloud; `known` are the tests of groups that the caller has for this cloud."""
        bits = cloud.layout.bits
        self.cloud = cloud
        self.groups = filters.groups
        self._deadline = deadline
        self._memory = memory
        known = known or {}
        self.tests = [
            known.get(group) or GroupTests(group, bits, deadline, memory) for group in filters.groups
        ]
        self.root_masks = {
            each: sum({1 << bits[condition] for condition in each.conditions})
            for each in filters.root_filters
        }
        """The bits that a root with each filter on the root has."""
        self.in_groups: list[EqualRoots] = []
        """The roots at which every group passes all its filters."""
        self._with_few_failing: list[tuple[EqualRoots, frozenset[int]]] = []
        """The roots at which at most `MAX_CHANGES` groups fail, with the indexes of these groups."""
        self._sort_roots()
        self.in_root_filters = self.meeting_root_filters(self.in_groups)
        """Those of them that also pass the filters on the root."""

    def _sort_roots(self) -> None:
        remaining: list[tuple[EqualRoots, list[int]]] = [(root, []) for root in self.cloud.roots]
        for number, test in enumerate(self.all_tests()):
            results = test.results([root for root, _ in remaining])
            for (_, failing), passes in zip(remaining, results, strict=True):
                if not passes:
                    failing.append(number)
            remaining = [each for each in remaining if len(each[1]) <= MAX_CHANGES]
        self._with_few_failing = [(root, frozenset(failing)) for root, failing in remaining]
        self.in_groups = [root for root, failing in remaining if not failing]

    def all_tests(self) -> list[GroupTest]:
        """Return the test of each group with all its filters."""
        return [tests.complete for tests in self.tests]

    def tests_if_unused(self) -> list[GroupTest]:
        """Return the test of each group with all its filters but `free`."""
        return [tests.test(tests.mask_without(tests.group.amounts)) for tests in self.tests]

    def changed(self, filters: RequestFilters) -> "RootCounts":
        """Return the counts for a changed request, in which unchanged groups are the same objects."""
        known = {tests.group: tests for tests in self.tests}
        return RootCounts(self.cloud, filters, self._deadline, self._memory, known)

    def passing_without(self, untested: Set[Filter | RootFilter]) -> list[EqualRoots]:
        """Return the roots that pass all filters but these, which are of at most `MAX_CHANGES` groups."""
        changed = {
            number: tests.test(tests.mask_without(of_group))
            for number, tests in enumerate(self.tests)
            if (of_group := tests.filters & untested)
        }
        roots = [
            root
            for root, failing in self._with_few_failing
            if failing <= changed.keys() and untested >= set(self.failing_root_filters(root))
        ]
        return self.passing(list(changed.values()), roots)

    def passing(
        self, tests: Sequence[GroupTest], among: Iterable[EqualRoots] | None = None
    ) -> list[EqualRoots]:
        """Return the roots, of all or of those given, that pass all tests."""
        roots = list(self.cloud.roots if among is None else among)
        for test in tests:
            roots = list(compress(roots, test.results(roots)))
        return roots

    def meeting_root_filters(self, roots: Iterable[EqualRoots]) -> list[EqualRoots]:
        """Return those roots that pass the filters on the root."""
        return [root for root in roots if not self.failing_root_filters(root)]

    def failing_root_filters(self, root: EqualRoots) -> list[RootFilter]:
        """Return the filters on the root that it fails."""
        return [each for each, mask in self.root_masks.items() if root.pattern.root & mask != mask]

    def of_group(self, index: int) -> list[Counts]:
        """Return the counts of each filter of a group."""
        tests = self.tests[index]
        blocked = self.meeting_root_filters(
            root for root, failing in self._with_few_failing if failing == {index}
        )
        counts = []
        remaining: Sequence[EqualRoots] = self.cloud.roots
        for each, prefix in zip(tests.group.filters, tests.prefixes(), strict=True):
            left = self.passing([prefix], remaining)
            if not tests.group.can_split:
                # A root that fails these filters also fails them together with the next ones.
                remaining = left
            counts.append(
                Counts(
                    alone=count_roots(self.passing([tests.test(tests.mask([each]))])),
                    left=count_roots(left),
                    sole_blocker=self._sole_blocker(tests, each, blocked),
                )
            )
        return counts

    def _sole_blocker(self, tests: GroupTests, blocking: Filter, roots: Sequence[EqualRoots]) -> int:
        """Return how many of the roots, at which only this group fails, pass without one filter."""
        if blocking.code is FilterCode.INVENTORY or not roots:
            return 0
        untested: list[Filter] = []
        if blocking.code is FilterCode.CAPACITY:
            # An amount that exceeds the capacity also exceeds the free amount.
            untested = [tests.free[blocking.resource_class]]
        with_it = tests.test(tests.mask_without(untested))
        without = tests.test(tests.mask_without([*untested, blocking]))
        passing = self.passing([without], roots)
        return count_roots(passing) - count_roots(self.passing([with_it], passing))

    def of_groups(self) -> Counts:
        """Return the counts of the tree filter `groups`."""
        count = count_roots(self.in_groups)
        return Counts(count, count, 0)

    def of_root_filters(self) -> list[tuple[RootFilter, Counts]]:
        """Return the filters on the root, each with its counts."""
        alone, left, sole = (Counter[RootFilter]() for _ in range(3))
        for root in self.cloud.roots:
            failing = self.failing_root_filters(root)
            alone.update({each: len(root.root_ids) for each in self.root_masks if each not in failing})
        for root in self.in_groups:
            failing = self.failing_root_filters(root)
            before = list(self.root_masks)
            if failing:
                before = before[: before.index(failing[0])]
            left.update(dict.fromkeys(before, len(root.root_ids)))
            if len(failing) == 1:
                sole[failing[0]] += len(root.root_ids)
        return [(each, Counts(alone[each], left[each], sole[each])) for each in self.root_masks]

    def first_failures(self) -> list[list[int]]:
        """Return for each filter of each group how many roots fail it first."""
        failures = []
        remaining = list(self.cloud.roots)
        for tests in self.tests:
            of_group = []
            passing_all: list[EqualRoots] = []
            if tests.group.can_split:
                # These may fail some filter nevertheless: the next one can exclude the provider of a whole
                # amount, which several others can supply.
                passing_all = self.passing([tests.complete], remaining)
                passing_ids = set(map(id, passing_all))
                remaining = [root for root in remaining if id(root) not in passing_ids]
            for prefix in tests.prefixes():
                passing = self.passing([prefix], remaining)
                of_group.append(count_roots(remaining) - count_roots(passing))
                remaining = passing
            remaining = [*passing_all, *remaining]
            failures.append(of_group)
        return failures


def count_roots(roots: Iterable[EqualRoots]) -> int:
    """Return the number of roots."""
    return sum(len(root.root_ids) for root in roots)
