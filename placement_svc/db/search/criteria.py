"""The criteria of a search: a request for allocation candidates with ids instead of names."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import Any

from placement_svc.domain.combining.ordering import Ordering
from placement_svc.domain.demands import CombinationRules

MAX_JOINED_CLASSES = 4
"""The number of resource classes of a demand that become joins.

One condition checks the others: planning a join of 13 inventories takes PostgreSQL 0.1 s.
"""

MAX_COMMON_DEMANDS = 16
"""Demands of a search whose statements are cached: larger statements would need too much memory."""


def _hash_once(self: Any) -> int:
    """Return the hash of a dataclass; it is computed once, as searches find their statements by it."""
    value: int | None = self.__dict__.get("_hash")
    if value is None:
        value = hash(tuple(getattr(self, each.name) for each in fields(self) if each.compare))
        self.__dict__["_hash"] = value
    return value


@dataclass(frozen=True)
class ResolvedMembership:
    """A `Membership` by id: at least one member of each set in `any_of`, no member of `forbidden`.

    An unknown aggregate has no id, so a set that names only unknown aggregates is empty and matches nothing.
    """

    any_of: tuple[frozenset[int], ...]
    forbidden: frozenset[int]

    @property
    def sets(self) -> Iterator[frozenset[int]]:
        """The sets in `any_of`, and a set of each forbidden member."""
        yield from self.any_of
        yield from (frozenset([id_]) for id_ in self.forbidden)


@dataclass(frozen=True, kw_only=True)
class SupplierCriteria:
    """The conditions on a provider that supplies one demand.

    `resources` are pairs of class id and amount. `in_tree` is the root id of the only tree allowed (None: any
    tree), and `not_in_tree` are those of excluded trees. In the unsuffixed group (`is_unsuffixed`), the
    aggregates of a root count for its whole tree, and the traits that `required` demands concern all
    suppliers together: `required` has only the forbidden traits here, the others are in
    `CombinationRules.unsuffixed_required`.

    `added` are pairs of class id and provider id: inventories that can give the amount of `resources` only
    because consumers are ignored.

    If several providers of a tree may supply the demand, its amount is `ANY_PART`, and `whole` has the
    criteria for a provider that supplies it alone, as sharing providers of other trees must.

    `is_rare` means that fewer than `RARITY_THRESHOLD` inventories can give one of the amounts, and
    `has_rare_traits` that fewer providers have each of the traits of one of the sets that it requires.
    `max_joined_classes` is the number of its resource classes that may become joins.
    """

    resources: tuple[tuple[int, int], ...]
    required: ResolvedMembership
    member_of: ResolvedMembership
    in_tree: int | None
    is_unsuffixed: bool
    has_rare_traits: bool
    is_rare: bool
    not_in_tree: frozenset[int] = frozenset()
    added: frozenset[tuple[int, int]] = frozenset()
    whole: "SupplierCriteria | None" = None
    max_joined_classes: int = MAX_JOINED_CLASSES

    __hash__ = _hash_once

    def added_providers(self, class_id: int) -> list[int]:
        """Return the providers whose inventories of a class are in `added`."""
        return [provider_id for id_, provider_id in self.added if id_ == class_id]

    @property
    def is_uncommon(self) -> bool:
        """Whether hardly any other request has the same criteria, so that keeping a statement is useless."""
        return bool(self.added or self.not_in_tree)

    @property
    def join_count(self) -> int:
        """The number of resource classes and filters that PostgreSQL may plan as joins."""
        return (
            min(len(self.resources), self.max_joined_classes)
            + len(self.member_of.any_of)
            + bool(self.member_of.forbidden)
            + bool(self.required.any_of or self.required.forbidden)
        )

    @property
    def has_filters(self) -> bool:
        """Whether anything but amounts is required of the provider."""
        memberships = (self.required, self.member_of)
        has_trees = self.in_tree is not None or bool(self.not_in_tree)
        return has_trees or any(each.any_of or each.forbidden for each in memberships)

    @property
    def allows_sharing_providers(self) -> bool:
        """Whether a sharing provider of another tree can match (`docs/spec/candidates.md 3.2 and 3.3`)."""
        return not (self.is_unsuffixed and self.in_tree is not None)


@dataclass(frozen=True, kw_only=True)
class SearchCriteria:
    """Everything that the statements of one search depend on.

    A *set* of traits or aggregates is one of which the request requires a member, or a single forbidden one.
    """

    rules: CombinationRules
    by_demand: tuple[SupplierCriteria, ...]
    """The criteria of each of `rules.demands`, in the same order."""

    root_required: ResolvedMembership
    """The condition on the traits of the anchor itself."""

    root_member_of: ResolvedMembership
    """The condition on the aggregates of the anchor itself."""

    unsuffixed_forbidden_aggregates: frozenset[int]
    """The aggregates that the unsuffixed group forbids: the anchor is in none of them either."""

    unsuffixed_not_in_tree: frozenset[int]
    """The roots of the trees that the unsuffixed group excludes: the anchor is none of them either."""

    small_trait_sets: frozenset[frozenset[int]]
    """The sets of traits with so few providers that the search lists all their roots."""

    small_aggregate_sets: frozenset[frozenset[int]]
    """The sets of aggregates with so few members that the search lists all their roots."""

    sufficient_trait_sets: frozenset[frozenset[int]]
    """The sets of traits whose roots are examined in less time than a large set takes to be read."""

    sufficient_aggregate_sets: frozenset[frozenset[int]]
    """The sets of aggregates whose roots are examined in less time than a large set takes to be read."""

    holder_classes: frozenset[int] = frozenset()
    """The classes of the unsuffixed group of which the first batch reads providers without a forbidden trait.

    Each of some providers with these traits has one of the classes.
    """

    split_amounts: tuple[tuple[int, int, int], ...] = ()
    """The number of a demand, its class and its amount, which several providers of a tree may supply.

    There are none if consumers are ignored: stored amounts say nothing about their trees.
    """

    summed_demands: tuple[tuple[int, frozenset[int]], ...] = ()
    """A class, and the numbers of the demands for it of which one provider may have to supply several.

    There are none if consumers are ignored, as for `split_amounts`.
    """

    sharing_trait_id: int | None
    """The id of MISC_SHARES_VIA_AGGREGATE; None if no provider has it."""

    # No statement depends on the following.

    ordering: Ordering | None = field(default=None, compare=False)
    """The order of the candidates; None: any."""

    root_count: int = field(default=0, compare=False)
    """The approximate number of root providers; 0: unknown."""

    providers_by_trait: Mapping[int, int] = field(default_factory=dict, compare=False)
    """How many providers have each trait, at least for those in small sets."""

    providers_by_aggregate: Mapping[int, int] = field(default_factory=dict, compare=False)
    """How many providers are in each aggregate, at least for those in small sets."""

    __hash__ = _hash_once

    @property
    def is_common(self) -> bool:
        """Whether a statement is kept for other searches: they may have the same one, and it is not large."""
        return len(self.by_demand) <= MAX_COMMON_DEMANDS and not any(
            each.is_uncommon for each in self.by_demand
        )

    @property
    def has_filters(self) -> bool:
        """Whether anything but amounts and the combination of suppliers can exclude a tree."""
        of_root = (self.root_required, self.root_member_of)
        return bool(
            self.rules.unsuffixed_required
            or self.unsuffixed_forbidden_aggregates
            or self.unsuffixed_not_in_tree
            or any(each.any_of or each.forbidden for each in of_root)
            or any(each.has_filters for each in dict.fromkeys(self.by_demand))
        )

    def different(self, demands: Iterable[int]) -> tuple[int, ...]:
        """Return one of the demands with each criteria: others with the same have the same suppliers."""
        return tuple({self.by_demand[demand]: demand for demand in demands}.values())

    @property
    def ordered_amounts(self) -> Iterator[tuple[int, int]]:
        """The id of the class of `order_by` and the least amount, for each demand that asks for the class."""
        if self.ordering is None:
            return
        for demand in self.ordering.class_demands:
            of_demand = self.rules.demands[demand].resources
            for (name, amount), (class_id, _) in zip(
                of_demand, self.by_demand[demand].resources, strict=True
            ):
                if name == self.ordering.resource_class:
                    yield class_id, 1 if demand in self.rules.splittable else amount

    def trait_set_size(self, trait_ids: frozenset[int]) -> int | None:
        """Return how many providers have a trait of a set at most; None if the set is not small."""
        return _size(trait_ids, self.small_trait_sets, self.providers_by_trait)

    def aggregate_set_size(self, aggregate_ids: frozenset[int]) -> int | None:
        """Return how many members the aggregates of a set have at most; None if the set is not small."""
        return _size(aggregate_ids, self.small_aggregate_sets, self.providers_by_aggregate)

    def has_rare_criterion(self, shared: Collection[SupplierCriteria]) -> bool:
        """Return whether few trees have the amounts, and a lookup had best start from their inventories.

        Sharing providers can supply the demands with the criteria `shared`, so such criteria do not make the
        trees few.
        """
        return any(criteria.is_rare for criteria in dict.fromkeys(self.by_demand) if criteria not in shared)


def _size(ids: frozenset[int], small: Collection[frozenset[int]], counts: Mapping[int, int]) -> int | None:
    return sum(counts[id_] for id_ in ids) if ids in small else None


def requiring_score(criteria: SearchCriteria, preferred: frozenset[int], score: int) -> SearchCriteria:
    """Return criteria that also require so many of the preferred traits of the unsuffixed group."""
    if not score:
        return criteria
    sets = preferred_sets(preferred, score)
    rules = replace(criteria.rules, unsuffixed_required=(*criteria.rules.unsuffixed_required, *sets))
    return replace(criteria, rules=rules)


def preferred_sets(preferred: frozenset[int], score: int) -> Iterator[frozenset[int]]:
    """Yield the sets of preferred traits of each of which a group with the score has a trait.

    If it lacks all traits of a set of `len(preferred) - score + 1`, it has less than the score.
    """
    return map(frozenset, combinations(sorted(preferred), len(preferred) - score + 1))
