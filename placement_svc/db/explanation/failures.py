"""The members `nearest`, and `has` and `provider` of failing filters (`docs/spec/extensions.md 3.6`)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from placement_svc.db.explanation.cloud import EqualRoots, SharingProvider
from placement_svc.db.explanation.combinations import Combinations
from placement_svc.db.explanation.counts import RootCounts
from placement_svc.db.explanation.details import ExplainedProvider, read_details
from placement_svc.db.explanation.nearest import RootFailures, select_nearest, with_fewest
from placement_svc.db.search.ignored_consumers import InventoryReader
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.filters import (
    AggregateCondition,
    AmountCondition,
    Filter,
    FilterCode,
    TraitCondition,
    TreeFilter,
)
from placement_svc.domain.explanation.root_failures import GroupFailures, ProviderFailures, UnsuppliedDemand

Has = int | str | list[str] | None


@dataclass(frozen=True)
class Failure:
    """A filter that a root fails, with the provider that comes closest to passing it (None: none does).

    `best` is the amount that this provider has, or for `unit` the allowed one nearest to the requested one.
    `has` is `best`, its traits, its aggregates or its tree. `suffix` is None for filters on the root and on
    combinations.
    """

    suffix: str | None
    filter: Filter | TreeFilter
    provider: ExplainedProvider | None
    best: int | None = None
    has: Has = None


@dataclass(frozen=True)
class NearRoot:
    """A root without candidates, and the filters that it fails."""

    root: ExplainedProvider
    failures: tuple[Failure, ...]


class NearestRoots:
    """The search for the roots that come closest to having candidates."""

    def __init__(
        self,
        reader: InventoryReader,
        counts: RootCounts,
        combinations: Combinations,
        deadline: Deadline,
        memory: MemoryBudget,
    ) -> None:
        self._reader = reader
        self._counts = counts
        self._cloud = counts.cloud
        self._combinations = combinations
        self._deadline = deadline
        self._memory = memory
        self._bits = counts.cloud.layout.bits
        self._of_providers = [ProviderFailures(tests, self._bits) for tests in counts.tests]

    def find(self) -> list[NearRoot]:
        """Return at most `MAX_NEAREST` roots without candidates, the nearest first.

        Five statements if sharing providers come closest to supplying something, otherwise three.
        """
        nearest = with_fewest(self._failures())
        if not nearest:
            return []
        chosen = select_nearest(self._reader, self._bits, nearest, self._shared_gaps(nearest))
        sharing = {
            provider.id for _, each in chosen for provider in self._cloud.serving_from_elsewhere(each.root)
        }
        root_ids = [root_id for root_id, _ in chosen]
        details = read_details(self._reader, self._bits, root_ids, sharing, self._memory)
        return [
            NearRoot(details[root_id], tuple(self._at_root(each, root_id, details)))
            for root_id, each in chosen
        ]

    def _failures(self) -> Iterator[RootFailures]:
        """Yield what the roots without candidates fail."""
        roots = self._cloud.roots
        results = zip(*(test.results(roots) for test in self._counts.all_tests()), strict=True)
        for root, passes in zip(roots, results, strict=True):
            groups = tuple(
                of_providers.at_root(root)
                for of_providers, passes_group in zip(self._of_providers, passes, strict=True)
                if not passes_group
            )
            of_root = tuple(self._counts.failing_root_filters(root))
            combination = self._combinations.first_failures.get(root.root_ids[0])
            if groups or of_root or combination:
                yield RootFailures(root, groups, of_root, combination)

    def _shared_gaps(self, nearest: Sequence[RootFailures]) -> list[dict[UnsuppliedDemand, Fraction]]:
        """Return for each of these roots the smallest gap of the sharing providers of each demand."""
        serving: Sequence[SharingProvider] = ()
        if any(demand.shared and demand.lacks_amounts for each in nearest for demand in each.demands):
            serving = self._cloud.serving
        ids = {provider.id for provider in serving}
        details = read_details(self._reader, self._bits, (), ids, self._memory) if ids else {}
        by_aggregates: dict[frozenset[int], list[SharingProvider]] = {}
        ranked: dict[tuple[UnsuppliedDemand, int, frozenset[int]], list[tuple[Fraction, int]]] = {}
        gaps = []
        for each in self._deadline.checked(nearest):
            served = each.root.aggregate_ids
            if served not in by_aggregates:
                checked = self._deadline.checked(serving)
                by_aggregates[served] = [one for one in checked if one.aggregate_ids & served]
            of_root: dict[UnsuppliedDemand, Fraction] = {}
            for demand in each.demands:
                key = demand, each.root.pattern.root, served
                if key not in ranked:
                    ranked[key] = self._ranked(demand, each.root, by_aggregates[served], details)
                # Those in the tree of the only root of the group do not serve it from elsewhere.
                elsewhere = (gap for gap, root_id in ranked[key] if each.root.root_ids != (root_id,))
                if (smallest := next(elsewhere, None)) is not None:
                    of_root[demand] = smallest
            gaps.append(of_root)
        return gaps

    def _ranked(
        self,
        demand: UnsuppliedDemand,
        root: EqualRoots,
        serving: Sequence[SharingProvider],
        details: Mapping[int, ExplainedProvider],
    ) -> list[tuple[Fraction, int]]:
        """Return the gaps of the providers closest to a demand, with their roots, smallest first."""
        failing = self._failing(demand, root, is_shared=True)
        return sorted(
            (details[provider.id].gap(failing[provider.node.pattern]), provider.root_id)
            for provider in self._deadline.checked(serving)
            if provider.node.pattern in failing
        )

    def _failing(
        self, demand: UnsuppliedDemand, root: EqualRoots, *, is_shared: bool
    ) -> dict[int, tuple[Filter, ...]]:
        """Return the filters that the providers closest to a demand fail, by pattern."""
        of_providers = self._of_providers[self._counts.groups.index(demand.group)]
        return {
            pattern: of_providers.failing(
                root.pattern.root,
                pattern,
                demand.resource_class,
                is_shared=is_shared,
                is_split=demand.is_split,
            )
            for pattern in (demand.shared if is_shared else demand.own)
        }

    def _at_root(
        self, failures: RootFailures, root_id: int, details: Mapping[int, ExplainedProvider]
    ) -> Iterator[Failure]:
        """Yield what one root fails, in the order of the filters."""
        root = details[root_id]
        for group in failures.groups:
            found = self._of_group(group, failures.root, root, details)
            yield from (found[each] for each in group.demands[0].group.filters if each in found)
        for each in failures.root_filters:
            held = root.traits if each.code is FilterCode.ROOT_REQUIRED else root.aggregates
            yield Failure(None, each, root, has=held)
        if failures.combination is not None:
            yield Failure(None, failures.combination, None)

    def _of_group(
        self,
        group: GroupFailures,
        roots: EqualRoots,
        root: ExplainedProvider,
        details: Mapping[int, ExplainedProvider],
    ) -> dict[Filter, Failure]:
        """Return what a group fails at a root."""
        own = [(each, False) for each in self._deadline.checked(details.values()) if each.root_id == root.id]
        sharing = [
            (details[each.id], True)
            for each in self._cloud.serving_from_elsewhere(roots)
            if each.root_id != root.id
        ]
        found: dict[Filter, Failure] = {}
        first: ExplainedProvider | None = None
        for demand in group.demands:
            failing_of = {
                is_shared: self._failing(demand, roots, is_shared=is_shared) for is_shared in (False, True)
            }
            choices = [
                (each.gap(failing), each.uuid, each, failing)
                for each, is_shared in self._deadline.checked((*own, *sharing))
                if (failing := failing_of[is_shared].get(each.pattern)) is not None
            ]
            if not choices:
                missing = _inventory_filter(demand)
                found[missing] = Failure(demand.group.suffix, missing, None, has=0)
                continue
            _, _, provider, failing = min(choices, key=lambda choice: choice[:2])
            first = first or provider
            for each in failing:
                around = [other for other, _ in (*own, *sharing)]
                found.setdefault(each, _failure(demand.group.suffix, each, provider, root, around))
        for each in group.common:
            found[each] = Failure("", each, first, has=first.traits if first else [])
        return found


def _failure(
    suffix: str,
    failing: Filter,
    provider: ExplainedProvider,
    root: ExplainedProvider,
    around: Iterable[ExplainedProvider],
) -> Failure:
    """Return the failure of a provider; a missing inventory has none if no provider `around` has it."""
    condition = failing.condition
    if failing.has_gap:
        best = provider.best(failing)
        return Failure(suffix, failing, provider, best, has=best)
    if isinstance(condition, AmountCondition):
        exists = any(condition.class_id in each.inventories for each in around)
        return Failure(suffix, failing, provider if exists else None, has=0)
    if isinstance(condition, TraitCondition):
        return Failure(suffix, failing, provider, has=provider.traits)
    if isinstance(condition, AggregateCondition):
        # The aggregates of the root count for the unsuffixed group.
        held = {*provider.aggregates, *([] if suffix else root.aggregates)}
        return Failure(suffix, failing, provider, has=sorted(held))
    return Failure(suffix, failing, provider, has=provider.root_uuid)


def _inventory_filter(demand: UnsuppliedDemand) -> Filter:
    return next(
        each
        for each in demand.group.having([FilterCode.INVENTORY])
        if demand.resource_class in (None, each.resource_class)
    )


def named(provider: ExplainedProvider | None) -> dict[str, str] | None:
    """Return the members that name a provider."""
    return None if provider is None else {"uuid": provider.uuid, "name": provider.name}


def nearest_entry(near: NearRoot, *, with_has: bool) -> dict[str, Any]:
    """Return an entry of `nearest`."""
    return {
        "root": named(near.root),
        "fails": [_fails_entry(failure, with_has=with_has) for failure in near.failures],
    }


def _fails_entry(failure: Failure, *, with_has: bool) -> dict[str, Any]:
    failing = failure.filter
    entry: dict[str, Any] = {"suffix": failure.suffix, "code": failing.code}
    if isinstance(failing, Filter) and failing.resource_class:
        entry["resource_class"] = failing.resource_class
    else:
        entry["query"] = failing.query
    if isinstance(failing, Filter) and failing.has_gap:
        entry |= {"wanted": failing.wanted, "best": failure.best}
    entry["provider"] = named(failure.provider)
    return {**entry, "has": failure.has} if with_has else entry
