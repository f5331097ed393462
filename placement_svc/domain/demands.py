"""Demands: the parts of a request that one provider each must supply, and the rules for combining providers.

A *demand* is what one provider must supply whole: a suffixed group, or one resource class of the
unsuffixed group (`docs/spec/candidates.md 3`). Only a class in `can_split` may have several suppliers.
"""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from placement_svc.domain.groups import CandidatesRequest, GroupPolicy, RequestGroup, SameSubtree

TRAITS_CACHE_SIZE = 32
"""The sets of traits for which the result of `CombinationRules.has_unsuffixed_required` is cached.

Cached criteria keep them, and a set of a hundred traits has 11 kB.
"""

Resources = tuple[tuple[str, int], ...]
"""Amounts by resource class."""


@dataclass(frozen=True)
class Demand:
    """Amounts by resource class that one provider must supply completely; empty for a resourceless group."""

    suffix: str
    resources: Resources


@dataclass(frozen=True)
class SubtreeExclusion:
    """A subtree in which some demands have no supplier; both sets are indexes of demands.

    The subtree is that of the topmost supplier of `demands`.
    """

    demands: frozenset[int]
    excluded: frozenset[int]


@dataclass(frozen=True)
class CombinationRules:
    """The conditions on all suppliers of an allocation candidate together.

    `unsuffixed_required` holds the any-of sets of trait ids in the `required` of the unsuffixed group:
    for each set, at least one supplier of that group has one of its traits. Each member of
    `same_subtree` is a set of indexes into `demands`, and so is `isolate`: those of the demands whose
    suppliers supply no other suffixed demand. Several providers of one tree may supply each of the demands
    `splittable`, which have one class (`docs/spec/extensions.md 2.8`). With `one_provider_per_tree`, a
    candidate uses at most one provider of each tree (before microversion 1.29). Without `adds_amounts`,
    what one provider supplies to several demands is not added up; only explanations use that.
    """

    demands: tuple[Demand, ...]
    unsuffixed_required: tuple[frozenset[int], ...] = ()
    same_subtree: tuple[frozenset[int], ...] = ()
    group_policy: GroupPolicy = GroupPolicy.NONE
    isolate: frozenset[int] = frozenset()
    subtree_exclusions: tuple[SubtreeExclusion, ...] = ()
    splittable: frozenset[int] = frozenset()
    one_provider_per_tree: bool = False
    adds_amounts: bool = True

    @functools.cached_property
    def may_exclude(self) -> bool:
        """Whether any combination of suppliers can be excluded."""
        return bool(self.unsuffixed_required) or self.may_exclude_with_traits

    @functools.cached_property
    def may_exclude_with_traits(self) -> bool:
        """Whether any combination can be excluded that has the traits in `unsuffixed_required`."""
        return bool(
            self.same_subtree
            or self.isolated
            or self.subtree_exclusions
            or self.one_provider_per_tree
            or self.summed_classes
        )

    @functools.cached_property
    def has_other_rules(self) -> bool:
        """Whether there are rules besides `unsuffixed_required`, `same_subtree` and isolation."""
        return bool(
            self.splittable or self.subtree_exclusions or self.one_provider_per_tree or self.summed_classes
        )

    @functools.cached_property
    def suffixed(self) -> tuple[bool, ...]:
        """For each demand, whether it is a suffixed group; all others belong to the unsuffixed group."""
        return tuple(bool(demand.suffix) for demand in self.demands)

    @functools.cached_property
    def has_unsuffixed_required(self) -> Callable[[frozenset[int]], bool]:
        """The function that returns whether these trait ids have one of each set in `unsuffixed_required`.

        It caches its results, as most providers have the same traits.
        """
        # A reference to `self` would be a cycle, which keeps the cached sets until the next collection.
        required = self.unsuffixed_required

        @functools.lru_cache(TRAITS_CACHE_SIZE)
        def has_each(trait_ids: frozenset[int]) -> bool:
            return not any(map(trait_ids.isdisjoint, required))

        return has_each

    @functools.cached_property
    def isolated(self) -> frozenset[int]:
        """The indexes of the demands whose suppliers supply no other suffixed demand."""
        if self.group_policy is GroupPolicy.ISOLATE:
            return frozenset(index for index, is_suffixed in enumerate(self.suffixed) if is_suffixed)
        return self.isolate

    def least_suppliers(self, demands: Collection[int]) -> int:
        """Return how many different suppliers these demands need: only those that are not isolated share one.

        They are suffixed groups.
        """
        isolated = len(self.isolated.intersection(demands))
        return isolated + (isolated < len(demands))

    @functools.cached_property
    def splittable_classes(self) -> frozenset[str]:
        """The resource classes that several providers may supply to one demand."""
        return frozenset(name for index in self.splittable for name, _ in self.demands[index].resources)

    @functools.cached_property
    def summed_classes(self) -> frozenset[str]:
        """The resource classes of which one provider may have to supply several demands."""
        if not self.adds_amounts:
            return frozenset()
        # No other suffixed demand has the supplier of an isolated one.
        isolated = {name for index in self.isolated for name, _ in self.demands[index].resources}
        suffixed = Counter(
            name
            for index, demand in enumerate(self.demands)
            if demand.suffix and index not in self.isolated
            for name, _ in demand.resources
        )
        unsuffixed = {name for demand in self.demands if not demand.suffix for name, _ in demand.resources}
        return frozenset(name for name, count in suffixed.items() if count > 1) | (
            (suffixed.keys() | isolated) & unsuffixed
        )

    @functools.cached_property
    def summed_amounts(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """For each demand, its amounts of `summed_classes`."""
        return tuple(
            tuple((name, amount) for name, amount in demand.resources if name in self.summed_classes)
            for demand in self.demands
        )


def demands_of(group: RequestGroup) -> list[Demand]:
    """Return the demands of a request group: one for a suffixed group, else one for each resource class."""
    resources = tuple(group.resources.items())
    if group.suffix:
        return [Demand(group.suffix, resources)]
    return [Demand("", (resource,)) for resource in resources]


def combination_rules(
    request: CandidatesRequest,
    demands: Sequence[Demand],
    unsuffixed_required: tuple[frozenset[int], ...] = (),
    *,
    one_provider_per_tree: bool = False,
) -> CombinationRules:
    """Return the rules for combining suppliers of `demands`, which are those of the request's groups."""
    same_subtree, subtree_exclusions = subtree_rules(request.same_subtree, demands)
    return CombinationRules(
        demands=tuple(demands),
        unsuffixed_required=unsuffixed_required,
        same_subtree=same_subtree,
        subtree_exclusions=subtree_exclusions,
        group_policy=request.group_policy,
        isolate=indexes_of(request.isolate, demands),
        splittable=splittable_indexes(request.can_split, demands),
        one_provider_per_tree=one_provider_per_tree,
    )


def indexes_of(suffixes: Collection[str], demands: Sequence[Demand]) -> frozenset[int]:
    """Return the indexes of the demands of the groups with these suffixes."""
    return frozenset(index for index, demand in enumerate(demands) if demand.suffix in suffixes)


def splittable_indexes(can_split: Collection[str], demands: Sequence[Demand]) -> frozenset[int]:
    """Return the indexes of the demands of the unsuffixed group for these resource classes."""
    return frozenset(
        index
        for index, demand in enumerate(demands)
        if not demand.suffix and not dict(demand.resources).keys().isdisjoint(can_split)
    )


def subtree_rules(
    same_subtree: Collection[SameSubtree], demands: Sequence[Demand]
) -> tuple[tuple[frozenset[int], ...], tuple[SubtreeExclusion, ...]]:
    """Return the fields `same_subtree` and `subtree_exclusions` of `CombinationRules`."""
    return (
        tuple(indexes_of(each.suffixes, demands) for each in same_subtree if len(each.suffixes) > 1),
        tuple(
            SubtreeExclusion(indexes_of(each.suffixes, demands), indexes_of(each.excluded, demands))
            for each in same_subtree
            if each.excluded
        ),
    )


def allocations_of(demands: Sequence[Demand], uuids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the amounts to claim, summed over all demands, by provider uuid and resource class.

    `uuids` holds the supplier's uuid for each demand.
    """
    amounts: dict[str, dict[str, int]] = {}
    for demand, uuid in zip(demands, uuids, strict=True):
        for name, amount in demand.resources:
            amounts_of_supplier = amounts.setdefault(uuid, {})
            amounts_of_supplier[name] = amounts_of_supplier.get(name, 0) + amount
    return amounts


def mappings_of(demands: Sequence[Demand], uuids: Sequence[str]) -> dict[str, list[str]]:
    """Return the uuids of the providers that supply each request group, by suffix.

    `uuids` holds the supplier's uuid for each demand.
    """
    mappings: dict[str, list[str]] = {}
    for demand, uuid in zip(demands, uuids, strict=True):
        uuids_of_group = mappings.setdefault(demand.suffix, [])
        if uuid not in uuids_of_group:
            uuids_of_group.append(uuid)
    return mappings
