"""The counts of the filters on several groups: `same_subtree`, `group_policy` and `sum`.

Whether options can be combined depends on the whole tree. So each root at which every group passes is
combined by itself, as the search does, until the first combination is found.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from placement_svc.db.explanation.counts import Counts, RootCounts
from placement_svc.db.explanation.patterns import RootGroup
from placement_svc.db.explanation.trees import ExplainedTrees, read_trees, suppliers_by_demand
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.domain.candidates import combine
from placement_svc.domain.demands import CombinationRules
from placement_svc.domain.explanation import FilterCode, QueryTexts
from placement_svc.domain.groups import CandidatesRequest, GroupPolicy
from placement_svc.domain.root_tests import GroupTest


@dataclass(frozen=True)
class CombinationFilter:
    """A filter on combinations; `suffixes` are those of a `same_subtree`."""

    code: FilterCode
    query: str | None
    suffixes: frozenset[str] = frozenset()


def combination_filters(request: CandidatesRequest, texts: QueryTexts) -> list[CombinationFilter]:
    """Return the filters on combinations, in their order."""
    filters = [
        CombinationFilter(FilterCode.SAME_SUBTREE, text, suffixes)
        for text, suffixes in zip(texts.same_subtree, request.same_subtree, strict=True)
    ]
    if request.group_policy is GroupPolicy.ISOLATE:
        filters.append(CombinationFilter(FilterCode.GROUP_POLICY, "group_policy=isolate"))
    names = [name for group in request.groups for name in group.resources]
    if len(names) > len(set(names)):
        filters.append(CombinationFilter(FilterCode.SUM, None))
    return filters


class Combinations:
    """The combinations at the roots at which every group passes some tests."""

    def __init__(
        self,
        connection: Connection,
        counts: RootCounts,
        filters: Sequence[CombinationFilter],
        rules: CombinationRules,
        options: SearchOptions,
    ) -> None:
        self._connection = connection
        self._counts = counts
        self._filters = filters
        self._options = options
        self._rules = rules
        self._rules_by_filters: dict[frozenset[int], CombinationRules] = {}
        self._all = frozenset(range(len(filters)))

    def _rules_of(self, active: frozenset[int]) -> CombinationRules:
        """Return the rules with only these filters."""
        rules = self._rules_by_filters.get(active)
        if rules is None:
            filters = [self._filters[number] for number in sorted(active)]
            codes = {each.code for each in filters}
            rules = replace(
                self._rules,
                same_subtree=tuple(
                    frozenset(
                        n for n, demand in enumerate(self._rules.demands) if demand.suffix in each.suffixes
                    )
                    for each in filters
                    if len(each.suffixes) > 1
                ),
                group_policy=(GroupPolicy.ISOLATE if FilterCode.GROUP_POLICY in codes else GroupPolicy.NONE),
                adds_amounts=FilterCode.SUM in codes,
            )
            self._rules_by_filters[active] = rules
        return rules

    def _summed_classes(self) -> frozenset[str]:
        """Return the classes that some of the rules add up."""
        sums = frozenset(n for n, each in enumerate(self._filters) if each.code is FilterCode.SUM)
        return self._rules_of(sums).summed_classes

    def read_trees(self, roots: Sequence[RootGroup], *, unused: bool = False) -> ExplainedTrees:
        """Return the trees of the roots."""
        return read_trees(
            self._connection,
            self._counts.cloud,
            roots,
            self._summed_classes(),
            self._options.memory,
            unused=unused,
        )

    def combines(
        self, trees: ExplainedTrees, suppliers: Sequence[Sequence[int]], active: frozenset[int]
    ) -> bool:
        """Return whether suppliers can be combined so that they meet these filters."""
        candidates = combine(
            self._rules_of(active), suppliers, trees, self._options.deadline, self._options.memory
        )
        return next(candidates, None) is not None

    def any_if_unused(self, roots: Sequence[RootGroup], tests: Sequence[GroupTest]) -> bool:
        """Return whether any of the roots, at which the tests pass, has a candidate if nothing is used."""
        if not self._filters or not roots:
            return bool(roots)
        trees = self.read_trees(roots, unused=True)
        return any(
            self.combines(trees, suppliers_by_demand(self._counts.cloud, trees, root, id_, tests), self._all)
            for root in roots
            for id_ in root.root_ids
        )

    def count(self) -> list[Counts]:
        """Return the counts of each filter."""
        numbers = range(len(self._filters))
        alone, left, sole = ([0] * len(self._filters) for _ in range(3))
        if not self._filters or not self._counts.in_groups:
            return [Counts(0, 0, 0) for _ in numbers]
        trees = self.read_trees(self._counts.in_groups)
        tests = self._counts.all_tests()
        in_root_filters = set(map(id, self._counts.in_root_filters))
        for root in self._counts.in_groups:
            passes_root = id(root) in in_root_filters
            for root_id in root.root_ids:
                suppliers = suppliers_by_demand(self._counts.cloud, trees, root, root_id, tests)
                result = self._test_root(trees, suppliers)
                for number in numbers:
                    alone[number] += result.alone[number]
                    left[number] += passes_root and result.left[number]
                    sole[number] += passes_root and result.sole[number]
        return [Counts(*each) for each in zip(alone, left, sole, strict=True)]

    def _test_root(self, trees: ExplainedTrees, suppliers: Sequence[Sequence[int]]) -> "_RootResult":
        numbers = range(len(self._filters))
        if self.combines(trees, suppliers, self._all):
            every = [True for _ in numbers]
            return _RootResult(every, every, [False for _ in numbers])
        return _RootResult(
            alone=[self.combines(trees, suppliers, frozenset([n])) for n in numbers],
            left=[self.combines(trees, suppliers, frozenset(range(n + 1))) for n in numbers],
            sole=[self.combines(trees, suppliers, self._all - {n}) for n in numbers],
        )


@dataclass(frozen=True)
class _RootResult:
    """For each filter whether a root counts as `alone`, `left` and `sole_blocker`."""

    alone: Sequence[bool]
    left: Sequence[bool]
    sole: Sequence[bool]


def with_candidates(counts: RootCounts, combination_counts: Iterable[Counts]) -> int:
    """Return the number of roots with candidates: those that are left after the last filter."""
    left = [each.left for each in combination_counts]
    return left[-1] if left else sum(len(root.root_ids) for root in counts.in_root_filters)
