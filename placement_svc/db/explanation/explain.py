"""The explanation of a request for allocation candidates (`docs/spec/extensions.md 3`)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from placement_svc.db.explanation.amounts import Amounts, read_amounts
from placement_svc.db.explanation.combinations import (
    CombinationFilter,
    Combinations,
    combination_filters,
)
from placement_svc.db.explanation.counts import Counts, RootCounts, count_roots
from placement_svc.db.explanation.filters import group_filters, root_conditions
from placement_svc.db.explanation.kind import find_kind
from placement_svc.db.explanation.patterns import Scope, has_more_roots, number_conditions, read_cloud
from placement_svc.db.search.criteria import resolve_criteria
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.explanation import FilterCode, GroupFilters, QueryTexts
from placement_svc.domain.groups import CandidatesRequest


@dataclass(frozen=True, kw_only=True)
class ExplanationOptions:
    """The settings of an explanation: it covers at most `max_roots` roots."""

    deadline: Deadline
    max_roots: int


def explain(
    connection: Connection, request: CandidatesRequest, texts: QueryTexts, options: ExplanationOptions
) -> dict[str, Any]:
    """Return the explanation of a request as the body of a response.

    Five statements without filters on combinations and without sharing providers; one more for sharing
    providers, two for combinations, and up to four for `kind`.
    """
    criteria = resolve_criteria(connection, request, one_provider_per_tree=False)
    groups = group_filters(request, criteria, texts)
    on_root = root_conditions(criteria)
    bits = number_conditions([*(each.condition for group in groups for each in group.filters), *on_root])
    scope = Scope(None, options.max_roots)
    cloud = read_cloud(connection, bits, criteria.sharing_trait_id, scope)
    counts = RootCounts(cloud, groups, on_root, options.deadline)
    filters = combination_filters(request, texts)
    combinations = Combinations(connection, counts, filters, criteria.rules, options.deadline)
    tree = _tree_counts(counts, texts.root_required, filters, combinations.count())
    amounts = read_amounts(connection, cloud, groups)
    of_groups = [counts.of_group(number) for number in range(len(groups))]
    failures = _first_failures(counts, tree)
    with_candidates = tree[-1][1].left
    has_candidates = with_candidates > 0
    blockers = [
        *(
            (each.code, of.sole_blocker)
            for group, all_of in zip(groups, of_groups, strict=True)
            for each, of in zip(group.filters, all_of, strict=True)
        ),
        *((each.code, of.sole_blocker) for each, of in tree),
    ]
    return {
        "has_candidates": has_candidates,
        "kind": None if has_candidates else find_kind(connection, counts, combinations),
        "code": _code(blockers, failures, has_candidates=has_candidates),
        "groups": [
            {"suffix": group.suffix, "filters": _group_entries(group, of, amounts)}
            for group, of in zip(groups, of_groups, strict=True)
        ],
        "tree": [{"code": each.code, "query": each.query, **vars(of)} for each, of in tree],
        "roots": {
            "total": count_roots(cloud.roots),
            "more": has_more_roots(connection, scope),
            "with_candidates": with_candidates,
            "by_first_failure": _by_key(failures),
        },
    }


TreeCounts = Sequence[tuple[CombinationFilter, Counts]]
"""The filters of `tree` with their counts."""

Failure = tuple[str, FilterCode, int]
"""The suffix and the code of a filter, and the number of roots that fail it first."""


def _tree_counts(
    counts: RootCounts, root_required: str, filters: Iterable[CombinationFilter], combined: Iterable[Counts]
) -> TreeCounts:
    tree = [(CombinationFilter(FilterCode.GROUPS, None), counts.of_groups())]
    if root_required:
        of_root = CombinationFilter(FilterCode.ROOT_REQUIRED, root_required)
        tree.append((of_root, counts.of_root_required()))
    return [*tree, *zip(filters, combined, strict=True)]


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


def _first_failures(counts: RootCounts, tree: TreeCounts) -> list[Failure]:
    """Return the filters at which roots fail first, in their order."""
    failures = [
        (group.suffix, each.code, count)
        for group, of_group in zip(counts.groups, counts.first_failures(), strict=True)
        for each, count in zip(group.filters, of_group, strict=True)
    ]
    left = tree[0][1].left
    for each, of in tree:
        failures.append(("", each.code, left - of.left))
        left = of.left
    return [failure for failure in failures if failure[2]]


def _by_key(failures: Iterable[Failure]) -> dict[str, int]:
    by_key = Counter[str]()
    for suffix, code, count in failures:
        by_key[f"{suffix} {code}" if suffix else code] += count
    return dict(by_key)


def _code(
    blockers: Sequence[tuple[FilterCode, int]], failures: Sequence[Failure], *, has_candidates: bool
) -> FilterCode | None:
    """Return the code of the greatest `sole_blocker`, or of the last filter at which roots fail first."""
    code, count = max(blockers, key=lambda each: each[1])
    if count:
        return code
    return failures[-1][1] if failures and not has_candidates else None
