"""The counts of the filters of groups and of the root, from the patterns around the roots.

`docs/spec/extensions.md 3.3` defines them. The filters on combinations are in `combinations`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from placement_svc.db.explanation.patterns import Cloud, RootGroup
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.explanation import Condition, Filter, FilterCode, GroupFilters
from placement_svc.domain.root_tests import GroupTest, GroupTests


@dataclass(frozen=True)
class Counts:
    """The numbers of roots of one filter."""

    alone: int
    left: int
    sole_blocker: int


class RootCounts:
    """The counts of all filters but those on combinations."""

    def __init__(
        self,
        cloud: Cloud,
        groups: Sequence[GroupFilters],
        root_conditions: Iterable[Condition],
        deadline: Deadline,
    ) -> None:
        self.cloud = cloud
        self.groups = groups
        self.tests = [GroupTests(group, cloud.bits, deadline) for group in groups]
        self._root_mask = sum({1 << cloud.bits[condition] for condition in root_conditions})
        self.in_groups: list[RootGroup] = []
        """The roots at which every group passes all its filters."""
        self._failing_once: dict[int, list[RootGroup]] = {}
        """The roots at which only one group does not pass all its filters, by the index of the group."""
        self._sort_roots()
        self.in_root_filters = self.meeting_root_filters(self.in_groups)
        """Those of them that also pass the filters on the root."""

    def _sort_roots(self) -> None:
        all_tests = self.all_tests()
        for root in self.cloud.roots:
            failing = [number for number, test in enumerate(all_tests) if not test.passes(root.pattern)]
            if not failing:
                self.in_groups.append(root)
            elif len(failing) == 1:
                self._failing_once.setdefault(failing[0], []).append(root)

    def all_tests(self, omitted: Collection[FilterCode] = ()) -> list[GroupTest]:
        """Return the test of each group with all its filters but those with the codes `omitted`."""
        return [tests.test(tests.group.without(*omitted)) for tests in self.tests]

    def passing(
        self, tests: Sequence[GroupTest], among: Iterable[RootGroup] | None = None
    ) -> list[RootGroup]:
        """Return the roots, of all or of those given, that pass all tests."""
        roots = self.cloud.roots if among is None else among
        return [root for root in roots if all(test.passes(root.pattern) for test in tests)]

    def meeting_root_filters(self, roots: Iterable[RootGroup]) -> list[RootGroup]:
        """Return those roots that pass the filters on the root."""
        return [root for root in roots if root.pattern.root & self._root_mask == self._root_mask]

    def of_group(self, index: int) -> list[Counts]:
        """Return the counts of each filter of a group."""
        tests = self.tests[index]
        filters = tests.group.filters
        blocked = self.meeting_root_filters(self._failing_once.get(index, []))
        return [
            Counts(
                alone=count_roots(self.passing([tests.test([each])])),
                left=count_roots(self.passing([tests.test(filters[: number + 1])])),
                sole_blocker=self._sole_blocker(tests, each, blocked),
            )
            for number, each in enumerate(filters)
        ]

    def _sole_blocker(self, tests: GroupTests, blocking: Filter, roots: Iterable[RootGroup]) -> int:
        """Return how many of the roots, at which only this group fails, pass without one filter."""
        if blocking.code is FilterCode.INVENTORY:
            return 0
        remaining = [each for each in tests.group.filters if each != blocking]
        blocked: Sequence[Filter] = tests.group.filters
        if blocking.code is FilterCode.CAPACITY:
            # What exceeds the capacity also exceeds what is free of it.
            remaining, blocked = (
                [
                    each
                    for each in filters
                    if each.code is not FilterCode.FREE or each.resource_class != blocking.resource_class
                ]
                for filters in (remaining, blocked)
            )
        without, with_it = tests.test(remaining), tests.test(blocked)
        return sum(
            len(root.root_ids)
            for root in roots
            if without.passes(root.pattern) and not with_it.passes(root.pattern)
        )

    def of_groups(self) -> Counts:
        """Return the counts of the tree filter `groups`."""
        count = count_roots(self.in_groups)
        return Counts(count, count, 0)

    def of_root_required(self) -> Counts:
        """Return the counts of `root_required`."""
        left = count_roots(self.in_root_filters)
        alone = count_roots(self.meeting_root_filters(self.cloud.roots))
        return Counts(alone, left, count_roots(self.in_groups) - left)

    def first_failures(self) -> list[list[int]]:
        """Return for each filter of each group how many roots fail it first."""
        failures = []
        remaining = list(self.cloud.roots)
        for tests in self.tests:
            of_group = []
            for number in range(len(tests.group.filters)):
                passing = self.passing([tests.test(tests.group.filters[: number + 1])], remaining)
                of_group.append(count_roots(remaining) - count_roots(passing))
                remaining = passing
            failures.append(of_group)
        return failures


def count_roots(roots: Iterable[RootGroup]) -> int:
    """Return the number of roots."""
    return sum(len(root.root_ids) for root in roots)
