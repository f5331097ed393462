"""The explanation of a request for allocation candidates (`docs/spec/extensions.md 3`)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from placement_svc.db.explanation.amounts import Amounts, read_amounts
from placement_svc.db.explanation.answer import NO_ANSWER, Answer, search_answer
from placement_svc.db.explanation.combinations import CombinationFilter, Combinations, combination_filters
from placement_svc.db.explanation.counts import Counts, RootCounts, count_roots
from placement_svc.db.explanation.filters import group_filters, root_conditions
from placement_svc.db.explanation.kind import find_kind
from placement_svc.db.explanation.patterns import (
    Scope,
    find_root,
    has_more_roots,
    number_conditions,
    read_cloud,
)
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.db.search.criteria import SearchCriteria, resolve_criteria
from placement_svc.domain.explanation import FilterCode, GroupFilters, QueryTexts
from placement_svc.domain.explanation_summary import summarize
from placement_svc.domain.groups import CandidatesRequest


@dataclass(frozen=True, kw_only=True)
class ExplanationOptions:
    """The settings of an explanation: it covers at most `max_roots` roots."""

    search: SearchOptions
    max_roots: int


@dataclass(frozen=True, kw_only=True)
class ExplainedRequest:
    """A request with the parts of its query that are its filters.

    `root` is the uuid or name of a provider of the only tree to explain (None: all).
    """

    request: CandidatesRequest
    texts: QueryTexts
    root: str | None = None


def explain(
    connection: Connection, explained: ExplainedRequest, options: ExplanationOptions
) -> dict[str, Any]:
    """Return the explanation of a request as the body of a response.

    Six statements without filters on combinations and without sharing providers; one more for sharing
    providers, two for combinations, up to four for `kind`, those of two searches if there are
    candidates, and one for `root`.
    """
    criteria = resolve_criteria(connection, explained.request, one_provider_per_tree=False)
    return _Explanation(connection, explained, criteria, options).body()


TreeCounts = Sequence[tuple[CombinationFilter, Counts]]
"""The filters of `tree` with their counts."""

Failure = tuple[str, FilterCode, int]
"""The suffix and the code of a filter, and the number of roots that fail it first."""


class _Explanation:
    """The parts of one explanation."""

    def __init__(
        self,
        connection: Connection,
        explained: ExplainedRequest,
        criteria: SearchCriteria,
        options: ExplanationOptions,
    ) -> None:
        self._connection = connection
        self._request = explained.request
        self._options = options
        deadline = options.search.deadline
        self._groups = group_filters(explained.request, criteria, explained.texts)
        on_root = root_conditions(criteria)
        bits = number_conditions(
            [*(each.condition for group in self._groups for each in group.filters), *on_root]
        )
        self._root = None if explained.root is None else find_root(connection, explained.root)
        self._scope = Scope(self._root and self._root.id, options.max_roots)
        cloud = read_cloud(connection, bits, criteria.sharing_trait_id, self._scope, options.search.memory)
        self._counts = RootCounts(cloud, self._groups, on_root, deadline)
        filters = combination_filters(explained.request, explained.texts)
        self._combinations = Combinations(connection, self._counts, filters, criteria.rules, options.search)
        self._tree = _tree_counts(
            self._counts, explained.texts.root_required, zip(filters, self._combinations.count(), strict=True)
        )
        self._of_groups = [self._counts.of_group(number) for number in range(len(self._groups))]

    def body(self) -> dict[str, Any]:
        """Return the body of the response."""
        amounts = read_amounts(self._connection, self._counts.cloud, self._groups)
        failures = self._first_failures()
        with_candidates = self._tree[-1][1].left
        more = has_more_roots(self._connection, self._scope)
        has_candidates = with_candidates > 0 or (more and self._has_candidates_elsewhere())
        kind = None if has_candidates else find_kind(self._connection, self._counts, self._combinations)
        body: dict[str, Any] = {
            "has_candidates": has_candidates,
            "kind": kind,
            "code": _code(self._blockers(), failures, has_candidates=has_candidates),
            "groups": [
                {"suffix": group.suffix, "filters": _group_entries(group, of, amounts)}
                for group, of in zip(self._groups, self._of_groups, strict=True)
            ],
            "tree": [{"code": each.code, "query": each.query, **vars(of)} for each, of in self._tree],
            "roots": {
                "total": count_roots(self._counts.cloud.roots),
                "more": more,
                "with_candidates": with_candidates,
                "by_first_failure": _by_key(failures),
            },
        }
        if self._root is None:
            answer = self._answer() if has_candidates else NO_ANSWER
            body["truncated_by"] = answer.truncated_by
            body["roots"]["returned"] = answer.returned_roots
        else:
            body["root"] = {"uuid": self._root.uuid, "name": self._root.name}
        return {**body, "summary": summarize(body)}

    def _answer(self) -> Answer:
        options = replace(self._options.search, summary_classes=frozenset())
        # Without sharing providers, no candidate is one of two roots.
        distinct = 0 if self._counts.cloud.sharing else self._tree[-1][1].left
        return search_answer(self._connection, self._request, options, min_candidates=distinct)

    def _has_candidates_elsewhere(self) -> bool:
        """Return whether a root that the explanation does not cover has candidates."""
        options = replace(self._options.search, summary_classes=frozenset(), max_candidates=None)
        answer = search_answer(self._connection, replace(self._request, limit=1), options)
        return answer.returned_roots > 0

    def _first_failures(self) -> list[Failure]:
        """Return the filters at which roots fail first, in their order."""
        failures = [
            (group.suffix, each.code, count)
            for group, of_group in zip(self._groups, self._counts.first_failures(), strict=True)
            for each, count in zip(group.filters, of_group, strict=True)
        ]
        left = self._tree[0][1].left
        for each, of in self._tree:
            failures.append(("", each.code, left - of.left))
            left = of.left
        return [failure for failure in failures if failure[2]]

    def _blockers(self) -> list[tuple[FilterCode, int]]:
        """Return the code and `sole_blocker` of each filter, in their order."""
        of_groups = [
            (each.code, of.sole_blocker)
            for group, counts in zip(self._groups, self._of_groups, strict=True)
            for each, of in zip(group.filters, counts, strict=True)
        ]
        return of_groups + [(each.code, of.sole_blocker) for each, of in self._tree]


def _tree_counts(
    counts: RootCounts, root_required: str, combined: Iterable[tuple[CombinationFilter, Counts]]
) -> TreeCounts:
    tree = [(CombinationFilter(FilterCode.GROUPS, None), counts.of_groups())]
    if root_required:
        of_root = CombinationFilter(FilterCode.ROOT_REQUIRED, root_required)
        tree.append((of_root, counts.of_root_required()))
    return [*tree, *combined]


def _group_entries(group: GroupFilters, counts: Iterable[Counts], amounts: Amounts) -> list[dict[str, Any]]:
    return [
        {
            "code": each.code,
            "query": each.query,
            **({"resource_class": each.resource_class} if each.resource_class else {}),
            **vars(of),
            **amounts.members(each),
        }
        for each, of in zip(group.filters, counts, strict=True)
    ]


def _by_key(failures: Iterable[Failure]) -> dict[str, int]:
    by_key = Counter[str]()
    for suffix, code, count in failures:
        by_key[f"{suffix} {code}" if suffix else str(code)] += count
    return dict(by_key)


def _code(
    blockers: Sequence[tuple[FilterCode, int]], failures: Sequence[Failure], *, has_candidates: bool
) -> FilterCode | None:
    """Return the code of the greatest `sole_blocker`, or of the last filter at which roots fail first."""
    code, count = max(blockers, key=lambda each: each[1])
    if count:
        return code
    return failures[-1][1] if failures and not has_candidates else None
