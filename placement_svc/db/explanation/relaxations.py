"""The changes of a request that give it more candidates (`docs/spec/extensions.md 3.5`).

The patterns around the roots show how many roots a change wins. Each change that is listed is verified by the
search. `BATCH_SIZE` changes with an amount need one more pass over the cloud.
Most changes of a large request win nothing, because another filter fails as well. They are recognized by the
filters that they leave untested, without a test of the whole request.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any

from placement_svc.db.explanation.amount_search import AmountSearch
from placement_svc.db.explanation.answer import has_candidate
from placement_svc.db.explanation.combinations import Combinations
from placement_svc.db.explanation.counts import CountsReader, RootCounts, count_roots
from placement_svc.db.explanation.layout import layout_of
from placement_svc.domain.errors import Invalid
from placement_svc.domain.explanation.filters import Filter, QueryTexts, RequestFilters, RootFilter
from placement_svc.domain.explanation.relaxations import (
    MAX_PAIRS,
    AmountChange,
    Change,
    Removal,
    is_valid,
    pairs,
    single_changes,
)
from placement_svc.domain.groups import CandidatesRequest

BATCH_SIZE = 50
"""The number of changes whose amounts one pass over the cloud tests."""


@dataclass(frozen=True)
class Trial:
    """A change of the request: the removals, and another value of one amount."""

    removals: tuple[Removal, ...]
    amount: AmountChange | None = None
    value: int | None = None

    def untested(self, filters: RequestFilters) -> frozenset[Filter | RootFilter]:
        """Return the filters on single providers that the changed request does not have."""
        changes = (*self.removals, *([self.amount] if self.amount else []))
        return frozenset[Filter | RootFilter]().union(*(each.untested(filters) for each in changes))

    def filters(self, filters: RequestFilters) -> RequestFilters:
        """Return the filters of the changed request."""
        filters = self.without(filters)
        return filters if self.amount is None else self.amount.apply(filters, self.value)

    def without(self, filters: RequestFilters) -> RequestFilters:
        """Return the filters after the removals only."""
        # From the last to the first, because removals have positions.
        for removal in reversed(self.removals):
            filters = removal.apply(filters)
        return filters

    def request(self, request: CandidatesRequest, texts: QueryTexts) -> CandidatesRequest:
        """Return the changed request."""
        for removal in reversed(self.removals):
            request = removal.change(request, texts)
        if self.amount is not None and self.value is not None:
            request = self.amount.change(request, self.value)
        return request


@dataclass(frozen=True)
class Relaxation:
    """A change with which more roots have candidates."""

    trial: Trial
    roots: int

    def entry(self) -> dict[str, Any]:
        """Return the members of the relaxation in the response."""
        entry: dict[str, Any] = {}
        queries = [removal.query for removal in self.trial.removals]
        if queries:
            entry["without"] = queries[0] if len(queries) == 1 else queries
        if self.trial.amount is not None and self.trial.value is not None:
            entry["instead"] = replace(self.trial.amount, wanted=self.trial.value).query
        return {**entry, "roots": self.roots}


class Relaxations:
    """The search for relaxations of one request.

    `complete` is False if half the time of the request was over before all changes were tried.
    """

    def __init__(
        self,
        reader: CountsReader,
        counts: RootCounts,
        request: CandidatesRequest,
        texts: QueryTexts,
    ) -> None:
        """Search the roots of `counts`, which `reader` has read."""
        self._reader = reader
        self._counts = counts
        self._filters = reader.filters
        self._request = request
        self._texts = texts
        self._options = reader.options
        self.complete = True

    def find(self, before: int | None) -> list[Relaxation]:
        """Return the relaxations, that of most roots first.

        `before` is the number of roots with candidates of the request itself, None if it is not known. Pairs
        of changes are tried only if no single change is a relaxation.
        """
        if before is None:
            before = self._with_candidates(self._counts, self._filters)
        changes = single_changes(self._filters)
        values = AmountSearch(self._reader, self._counts)
        found = self._better(before, (_trial((each,)) for each in changes), values)
        if not found:
            found = self._better(before, self._first_pairs(changes), values)
        return sorted(found, key=lambda each: -each.roots)

    def _first_pairs(self, changes: Sequence[Change]) -> Iterator[Trial]:
        """Yield the pairs to try."""
        trials = (_trial(pair) for pair in pairs(changes))
        in_time = takewhile(lambda _: not self._is_out_of_time(), trials)
        return islice(filter(self._is_valid, in_time), MAX_PAIRS)

    def _is_valid(self, trial: Trial) -> bool:
        return is_valid(trial.request(self._request, self._texts))

    def _better(self, before: int, trials: Iterable[Trial], values: AmountSearch) -> list[Relaxation]:
        """Return the trials with which more roots than `before` have candidates, in their order."""
        valued = self._with_values(before, trials, values)
        found: list[Relaxation] = []
        while batch := list(islice(valued, BATCH_SIZE)):
            found += self._better_of_batch(before, batch)
        return found

    def _better_of_batch(self, before: int, trials: Sequence[Trial]) -> Iterator[Relaxation]:
        changed = [trial.filters(self._filters) for trial in trials]
        counts = self._counts
        if any(trial.amount for trial in trials):
            counts = self._reader.read(layout_of(self._filters, *changed), counts.cloud.scope)
        for trial, filters in zip(trials, changed, strict=True):
            if self._is_out_of_time():
                return
            try:
                roots = self._with_candidates(counts.changed(filters), filters)
                is_better = roots > before and self._is_verified(trial)
            except Invalid:
                # The search refuses the changed request: it needs too much memory or too many attempts.
                continue
            if is_better:
                yield Relaxation(trial, roots)

    def _with_values(self, before: int, trials: Iterable[Trial], values: AmountSearch) -> Iterator[Trial]:
        """Yield the trials that can be sent, with the other value of their amount.

        They are only those that can have more roots with candidates than `before`.
        """
        for trial in filter(self._is_valid, trials):
            if self._is_out_of_time():
                return
            if count_roots(self._counts.passing_without(trial.untested(self._filters))) <= before:
                continue
            if trial.amount is None:
                yield trial
                continue
            try:
                value = values.find(trial.amount, trial.without(self._filters))
            except Invalid:
                continue
            if value is not None and not self._is_out_of_time():
                yield replace(trial, value=value)

    def _is_out_of_time(self) -> bool:
        if self._options.deadline.is_half_over():
            self.complete = False
        return not self.complete

    def _with_candidates(self, counts: RootCounts, filters: RequestFilters) -> int:
        """Return the number of roots with candidates of these filters, which are those of `counts`."""
        return Combinations(counts.cloud, filters, self._options).with_candidates(counts)

    def _is_verified(self, trial: Trial) -> bool:
        """Return whether the search finds a candidate of the changed request."""
        changed = trial.request(self._request, self._texts)
        return has_candidate(self._reader.inventories.connection, changed, self._options)


def _trial(changes: Iterable[Change]) -> Trial:
    removals = tuple(each for each in changes if not isinstance(each, AmountChange))
    return Trial(removals, next((each for each in changes if isinstance(each, AmountChange)), None))
