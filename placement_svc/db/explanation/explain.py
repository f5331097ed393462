"""The explanation of a request for allocation candidates (`docs/spec/extensions.md 3`)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from placement_svc.db.explanation.amounts import FilterAmounts, read_amounts
from placement_svc.db.explanation.answer import NO_ANSWER, Answer, has_candidate, search_answer
from placement_svc.db.explanation.cloud import Scope, find_root, has_more_roots
from placement_svc.db.explanation.combinations import Combinations, combination_filters
from placement_svc.db.explanation.counts import Counts, CountsReader, count_roots
from placement_svc.db.explanation.failures import NearestRoots, NearRoot, named, nearest_entry
from placement_svc.db.explanation.filters import group_filters, root_filters
from placement_svc.db.explanation.kind import find_kind
from placement_svc.db.explanation.layout import layout_of
from placement_svc.db.explanation.relaxations import Relaxations
from placement_svc.db.explanation.returned_roots import count_returned_roots, has_shared_suppliers
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.criteria_builder import resolve_criteria
from placement_svc.db.search.ignored_consumers import InventoryReader, read_freed_inventories
from placement_svc.db.serial_plans import use_serial_plans
from placement_svc.domain.explanation.filters import (
    CombinationFilter,
    Filter,
    FilterCode,
    GroupFilters,
    QueryTexts,
    RequestFilters,
    TreeFilter,
)
from placement_svc.domain.explanation.summary import summarize
from placement_svc.domain.groups import CandidatesRequest


@dataclass(frozen=True, kw_only=True)
class ExplanationOptions:
    """The settings of an explanation: it covers at most `max_roots` roots."""

    search: SearchOptions
    max_roots: int


@dataclass(frozen=True, kw_only=True)
class ExplainedRequest:
    """A request with the parts of its query that are its filters.

    `root` is the uuid or name of a provider of the only tree to explain (None: all). With `relaxes`, the
    explanation has relaxations.
    """

    request: CandidatesRequest
    texts: QueryTexts
    root: str | None = None
    relaxes: bool = True


def explain(
    connection: Connection, explained: ExplainedRequest, options: ExplanationOptions
) -> dict[str, Any]:
    """Return the explanation of a request as the body of a response.

    Eight statements without sharing providers: a setting, the names, whether there are further roots, the
    roots, the amounts unless no inventory fails a filter, and three for the nearest roots. At most three more
    for sharing providers, two for `kind`, one each for `root` and ignored consumers, those of two searches if
    there are candidates and a limit, and of one if there are roots that are not covered. Relaxations need at
    most six more, two for amounts that may be split, two for each further `BATCH_SIZE` changes, and a search
    for each that is listed.
    """
    search = options.search.with_own_memory()
    options = replace(options, search=search)
    use_serial_plans(connection)
    ignored = explained.request.ignore_consumer
    freed = read_freed_inventories(connection, ignored, search.deadline, search.memory)
    criteria = resolve_criteria(connection, explained.request, one_provider_per_tree=False, freed=freed)
    return _Explanation(InventoryReader(connection, freed), explained, criteria, options).body()


TreeCounts = Sequence[tuple[TreeFilter, Counts]]
"""The filters of `tree` with their counts."""

FirstFailure = tuple[str, FilterCode, int]
"""The suffix and the code of a filter, and the number of roots that fail it first."""


class _Explanation:
    """The parts of one explanation."""

    def __init__(
        self,
        reader: InventoryReader,
        explained: ExplainedRequest,
        criteria: SearchCriteria,
        options: ExplanationOptions,
    ) -> None:
        self._reader = reader
        self._explained = explained
        self._request = explained.request
        self._options = options
        filters = RequestFilters(
            group_filters(explained.request, criteria, explained.texts),
            root_filters(criteria, explained.texts),
            combination_filters(explained.request, explained.texts),
        )
        self._groups = filters.groups
        self._root = None if explained.root is None else find_root(reader, explained.root)
        self._has_more = self._root is None and has_more_roots(reader, options.max_roots)
        self._scope = Scope(self._root and self._root.id, options.max_roots if self._has_more else None)
        search = options.search
        self._counts_reader = CountsReader(reader, criteria.sharing_trait_id, filters, search)
        self._counts = self._counts_reader.read(layout_of(filters), self._scope)
        self._combinations = Combinations(self._counts.cloud, filters, search)
        combined = zip(filters.combinations, self._combinations.count(self._counts), strict=True)
        self._tree: TreeCounts = [
            (CombinationFilter(FilterCode.GROUPS, None), self._counts.of_groups()),
            *self._counts.of_root_filters(),
            *combined,
        ]
        self._of_groups = [self._counts.of_group(number) for number in range(len(self._groups))]

    def body(self) -> dict[str, Any]:
        """Return the body of the response."""
        amounts = read_amounts(self._reader, self._counts.cloud, self._groups)
        failures = self._first_failures()
        with_candidates = self._tree[-1][1].left
        has_candidates = with_candidates > 0 or (self._has_more and self._has_candidates_elsewhere())
        kind = None if has_candidates else find_kind(self._reader, self._counts, self._combinations)
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
                "more": self._has_more,
                "with_candidates": with_candidates,
                "by_first_failure": _by_key(failures),
            },
        }
        body["complete"] = not self._options.search.deadline.is_half_over()
        near = self._nearest() if body["complete"] else []
        body["nearest"] = [nearest_entry(each, with_has=self._root is not None) for each in near]
        if self._explained.relaxes:
            self._add_relaxations(body)
        if self._root is None:
            answer = self._answer() if has_candidates else NO_ANSWER
            body["truncated_by"] = answer.truncated_by
            body["roots"]["returned"] = answer.returned_roots
        else:
            body["root"] = {"uuid": self._root.uuid, "name": self._root.name}
            self._add_failures(body, near)
        return {**body, "summary": summarize(body, self._request.can_split)}

    def _add_relaxations(self, body: dict[str, Any]) -> None:
        if not body["complete"]:
            body["relaxations"] = []
            return
        counts = self._counts
        if self._has_more:
            # Relaxations consider the whole cloud.
            counts = self._counts_reader.read(counts.cloud.layout, Scope())
        relaxations = Relaxations(self._counts_reader, counts, self._request, self._explained.texts)
        before = None if self._has_more else self._tree[-1][1].left
        body["relaxations"] = [each.entry() for each in relaxations.find(before)]
        body["complete"] = relaxations.complete

    def _nearest(self) -> list[NearRoot]:
        return NearestRoots(
            self._reader,
            self._counts,
            self._combinations,
            self._options.search.deadline,
            self._options.search.memory,
        ).find()

    def _add_failures(self, body: dict[str, Any], near: Iterable[NearRoot]) -> None:
        """Add `has` and `provider` to the entries of the filters that the only root fails."""
        failures = [failure for each in near for failure in each.failures]
        by_filter = {(failure.suffix, failure.filter): failure for failure in failures}
        filters: list[tuple[str | None, Filter | TreeFilter]] = [
            *((group.suffix, each) for group in self._groups for each in group.filters),
            *((None, each) for each, _ in self._tree),
        ]
        entries = [*(each for group in body["groups"] for each in group["filters"]), *body["tree"]]
        for key, entry in zip(filters, entries, strict=True):
            if failure := by_filter.get(key):
                entry |= {"has": failure.has, "provider": named(failure.provider)}

    def _answer(self) -> Answer:
        deadline = self._options.search.deadline
        if (self._request.limit, self._options.search.max_candidates) == (None, None) and not self._has_more:
            return Answer(None, count_returned_roots(self._counts, self._combinations, deadline))
        tests = self._counts.all_tests()
        shares = any(has_shared_suppliers(root, tests) for root in deadline.checked(self._counts.in_groups))
        options = replace(self._options.search, summary_classes=frozenset())
        # Without suppliers of other trees, no candidate is one of two roots.
        distinct = 0 if shares else self._tree[-1][1].left
        return search_answer(self._reader.connection, self._request, options, min_candidates=distinct)

    def _has_candidates_elsewhere(self) -> bool:
        """Return whether a root that the explanation does not cover has candidates."""
        return has_candidate(self._reader.connection, self._request, self._options.search)

    def _first_failures(self) -> list[FirstFailure]:
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


def _group_entries(
    group: GroupFilters, counts: Iterable[Counts], amounts: FilterAmounts
) -> list[dict[str, Any]]:
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


def _by_key(failures: Iterable[FirstFailure]) -> dict[str, int]:
    by_key = Counter[str]()
    for suffix, code, count in failures:
        by_key[f"{suffix} {code}" if suffix else str(code)] += count
    return dict(by_key)


def _code(
    blockers: Sequence[tuple[FilterCode, int]], failures: Sequence[FirstFailure], *, has_candidates: bool
) -> FilterCode | None:
    """Return the code of the greatest `sole_blocker`, or of the last filter at which roots fail first."""
    code, count = max(blockers, key=lambda each: each[1])
    if count:
        return code
    return failures[-1][1] if failures and not has_candidates else None
