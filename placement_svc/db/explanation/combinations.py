"""The counts of the filters on several groups: `same_subtree`, `group_policy`, `isolate` and `sum`.

Whether choices can be combined depends on the whole tree. So the trees of each group of equal roots are
combined once, as the search does, until the first combination is found.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from placement_svc.db.explanation.cloud import Cloud, EqualRoots
from placement_svc.db.explanation.counts import Counts, RootCounts
from placement_svc.db.explanation.trees import EqualRootsTree
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.combining.candidates import Candidate, combine_around
from placement_svc.domain.combining.interfaces import TreeSuppliers
from placement_svc.domain.demands import (
    CombinationRules,
    Demand,
    demands_of,
    indexes_of,
    splittable_indexes,
    subtree_rules,
)
from placement_svc.domain.explanation.filters import (
    AmountCondition,
    CombinationFilter,
    FilterCode,
    GroupFilters,
    QueryTexts,
    RequestFilters,
)
from placement_svc.domain.explanation.root_tests import GroupTest
from placement_svc.domain.explanation.supplier_tests import Bits
from placement_svc.domain.groups import CandidatesRequest, GroupPolicy, RequestGroup


def combination_filters(request: CandidatesRequest, texts: QueryTexts) -> tuple[CombinationFilter, ...]:
    """Return the filters on combinations, in their order."""
    filters = [
        CombinationFilter(FilterCode.SAME_SUBTREE, text, same_subtree=each)
        for text, each in zip(texts.same_subtree, request.same_subtree, strict=True)
    ]
    if request.group_policy is GroupPolicy.ISOLATE:
        filters.append(CombinationFilter(FilterCode.GROUP_POLICY, "group_policy=isolate"))
    if request.isolate:
        filters.append(CombinationFilter(FilterCode.ISOLATE, texts.isolate, request.isolate))
    names = [name for group in request.groups for name in group.resources]
    if len(names) > len(set(names)):
        filters.append(CombinationFilter(FilterCode.SUM, None))
    return tuple(filters)


def _demands(group: GroupFilters) -> list[Demand]:
    """Return the demands of a group of filters."""
    return demands_of(RequestGroup(group.suffix, dict(group.resources)))


class Combinations:
    """The combinations at the roots of a cloud, with the filters of a request."""

    def __init__(self, cloud: Cloud, filters: RequestFilters, options: SearchOptions) -> None:
        self._cloud = cloud
        self._filters = filters.combinations
        self._options = options
        self._demands = tuple(demand for group in filters.groups for demand in _demands(group))
        can_split = frozenset[str]().union(*(group.can_split for group in filters.groups))
        self._splittable = splittable_indexes(can_split, self._demands)
        class_names = {
            each.condition.class_id: each.resource_class
            for each in filters.amounts
            if isinstance(each.condition, AmountCondition)
        }
        self._summed_classes, self._split_classes = (
            [class_names[class_id] or "" for class_id in class_ids]
            for class_ids in (cloud.layout.limits, cloud.layout.split_amounts)
        )
        self._required = tuple(_required(filters.groups, cloud.layout.bits))
        self._rules: dict[frozenset[int], CombinationRules] = {}
        self._all = frozenset(range(len(self._filters)))
        self.first_failures: dict[int, CombinationFilter] = {}
        """The filter at which `left` ends, by the first id of each `EqualRoots` that fail one."""

    def _rules_of(self, active: frozenset[int]) -> CombinationRules:
        """Return the rules with only these filters."""
        if active not in self._rules:
            filters = [self._filters[number] for number in sorted(active)]
            codes = {each.code for each in filters}
            same_subtree, subtree_exclusions = subtree_rules(
                [each.same_subtree for each in filters if each.same_subtree], self._demands
            )
            self._rules[active] = CombinationRules(
                demands=self._demands,
                unsuffixed_required=self._required,
                same_subtree=same_subtree,
                subtree_exclusions=subtree_exclusions,
                group_policy=GroupPolicy.ISOLATE if FilterCode.GROUP_POLICY in codes else GroupPolicy.NONE,
                isolate=indexes_of(
                    frozenset[str]().union(*(each.suffixes for each in filters)), self._demands
                ),
                splittable=self._splittable,
                adds_amounts=FilterCode.SUM in codes,
            )
        return self._rules[active]

    def demand_number(self, suffix: str, resource_class: str) -> int:
        """Return the position of the demand with a class of a group."""
        return next(
            number
            for number, each in enumerate(self._demands)
            if each.suffix == suffix and resource_class in dict(each.resources)
        )

    def tree(
        self,
        root: EqualRoots,
        *,
        unused: bool = False,
        exceptions: Mapping[tuple[int, str], int] | None = None,
    ) -> EqualRootsTree:
        """Return the tree of equal roots."""
        return EqualRootsTree(
            self._cloud,
            root,
            self._summed_classes,
            self._split_classes,
            unused=unused,
            exceptions=exceptions,
        )

    def combines(
        self, tree: EqualRootsTree, suppliers: Sequence[Sequence[int]], active: frozenset[int] | None = None
    ) -> bool:
        """Return whether suppliers can be combined so that they meet these filters (None: all)."""
        return self.first_candidate(tree, suppliers, active) is not None

    def first_candidate(
        self, tree: EqualRootsTree, suppliers: Sequence[Sequence[int]], active: frozenset[int] | None = None
    ) -> Candidate | None:
        """Return a combination of suppliers that meets these filters (None: all); None if there is none."""
        rules = self._rules_of(self._all if active is None else active)
        deadline, memory = self._options.deadline, self._options.memory
        candidates = combine_around(TreeSuppliers(tree.root_id, rules, suppliers, tree, deadline, memory))
        return next(candidates, None)

    def any_if_unused(self, roots: Iterable[EqualRoots], tests: Sequence[GroupTest]) -> bool:
        """Return whether any of the roots, at which the tests pass, has a candidate if nothing is used."""
        if not self._filters:
            return any(True for _ in roots)
        trees = (self.tree(root, unused=True) for root in roots)
        return any(self.combines(tree, tree.suppliers(tests)) for tree in trees)

    def with_candidates(self, counts: RootCounts) -> int:
        """Return the number of roots with candidates."""
        tests = counts.all_tests()
        return sum(
            len(root.root_ids)
            for root in counts.in_root_filters
            if not self._filters or self.combines(tree := self.tree(root), tree.suppliers(tests))
        )

    def count(self, counts: RootCounts) -> list[Counts]:
        """Return the counts of each filter."""
        numbers = range(len(self._filters))
        alone, left, sole = ([0] * len(self._filters) for _ in range(3))
        if not self._filters:
            return []
        tests = counts.all_tests()
        in_root_filters = set(map(id, counts.in_root_filters))
        for root in counts.in_groups:
            passes_root = id(root) in in_root_filters
            result = self._test_root(self.tree(root), tests)
            count = len(root.root_ids)
            for number in numbers:
                alone[number] += count * result.alone[number]
                left[number] += count * (passes_root and result.left[number])
                sole[number] += count * (passes_root and result.sole[number])
            if passes_root and not all(result.left):
                self.first_failures[root.root_ids[0]] = self._filters[list(result.left).index(False)]
        return [Counts(*each) for each in zip(alone, left, sole, strict=True)]

    def _test_root(self, tree: EqualRootsTree, tests: Sequence[GroupTest]) -> "_RootResult":
        numbers = range(len(self._filters))
        suppliers = tree.suppliers(tests)
        if self.combines(tree, suppliers):
            every = [True for _ in numbers]
            return _RootResult(every, every, [False for _ in numbers])
        return _RootResult(
            alone=[self.combines(tree, suppliers, frozenset([n])) for n in numbers],
            left=[self.combines(tree, suppliers, frozenset(range(n + 1))) for n in numbers],
            sole=[self.combines(tree, suppliers, self._all - {n}) for n in numbers],
        )


def _required(groups: Collection[GroupFilters], bits: Bits) -> Iterable[frozenset[int]]:
    """Yield for each required clause of the unsuffixed group the number of its bit, as the only trait."""
    for group in groups:
        if not group.suffix:
            for each in group.having([FilterCode.REQUIRED]):
                yield frozenset([bits[each.condition]])


@dataclass(frozen=True)
class _RootResult:
    """For each filter whether a root counts as `alone`, `left` and `sole_blocker`."""

    alone: Sequence[bool]
    left: Sequence[bool]
    sole: Sequence[bool]
