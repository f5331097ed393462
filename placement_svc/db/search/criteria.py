"""The criteria of a search: a request for allocation candidates with ids instead of names."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import os_traits
from sqlalchemy import Connection

from placement_svc.db.filters import ANY_PART
from placement_svc.db.search.ignored_consumers import (
    NOTHING_FREED,
    FreedInventories,
    providers_fitting_only_without,
    providers_giving_parts_only_without,
)
from placement_svc.db.search.name_lookup import RARITY_THRESHOLD, NameRow, NamesLookup, fetch_name_rows
from placement_svc.domain.demands import CombinationRules, Demand, combination_rules, demands_of
from placement_svc.domain.errors import UnknownName
from placement_svc.domain.groups import CandidatesRequest, Membership, RequestGroup
from placement_svc.domain.ordering import Ordering

MAX_JOINED_CLASSES = 4
"""The number of resource classes of a demand that become joins.

One condition checks the others: planning a join of 13 inventories takes PostgreSQL 0.1 s.
"""

MAX_JOINS_OF_DEMAND = 5
MAX_JOINS = 16
"""The joins of a demand, and of all demands, beyond which only one resource class of a demand becomes a join.

Each demand is in several subqueries, and PostgreSQL plans all orders of its joins. For two groups of ten
resource classes, one with three aggregates, in one subtree, this took 375 MB of memory.
"""

CRITERIA_CACHE_SIZE = 256
MAX_CACHED_GROUPS = 16
MAX_CACHED_NAMES = 100
"""The number of criteria that are cached, and the limits of a request whose criteria are.

A request with more groups, or with more rows of names, would need too much memory.
"""

UNKNOWN_TREE = 0
"""The root id that stands for the tree of an unknown provider: ids start at 1."""


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

    `is_rare` means that fewer than `RARITY_THRESHOLD` inventories can give one of the amounts of the group;
    `has_rare_traits`, that fewer providers have the traits of one of the sets that it requires.
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

    `by_demand` holds the supplier criteria of each of `rules.demands`. `root_required` is a condition on the
    traits of the anchor, and `root_member_of` on its own aggregates. The anchor is also in none of the
    aggregates `unsuffixed_forbidden` and is no root of the trees `unsuffixed_not_in_tree`: those that the
    unsuffixed group forbids. `split_amounts` are triples of the index of a demand, the id of its class and
    its amount, which several providers of a tree may supply. `summed_demands` are pairs of a class id and the
    indexes of the demands of which one provider may have to supply several; none if consumers are ignored, as
    stored amounts say nothing about their trees. Of the sets that the request requires one of,
    and of the single names that it forbids, `small_trait_sets` and `small_aggregate_sets` have so few
    providers that all their roots are best listed.
    """

    rules: CombinationRules
    by_demand: tuple[SupplierCriteria, ...]
    root_required: ResolvedMembership
    root_member_of: ResolvedMembership
    unsuffixed_forbidden: frozenset[int]
    unsuffixed_not_in_tree: frozenset[int]
    small_trait_sets: frozenset[frozenset[int]]
    small_aggregate_sets: frozenset[frozenset[int]]
    split_amounts: tuple[tuple[int, int, int], ...] = ()
    summed_demands: tuple[tuple[int, frozenset[int]], ...] = ()
    sharing_trait_id: int | None
    """The id of MISC_SHARES_VIA_AGGREGATE; None if no provider has it."""
    ordering: Ordering | None = field(default=None, compare=False)
    """The order of the candidates (None: any); no condition, so statements do not depend on it."""
    root_count: int = field(default=0, compare=False)
    """The approximate number of root providers (0: unknown); statements do not depend on it."""

    __hash__ = _hash_once

    @property
    def has_filters(self) -> bool:
        """Whether anything but amounts and the combination of suppliers can exclude a tree."""
        of_root = (self.root_required, self.root_member_of)
        return bool(
            self.rules.unsuffixed_required
            or self.unsuffixed_forbidden
            or self.unsuffixed_not_in_tree
            or any(each.any_of or each.forbidden for each in of_root)
            or any(each.has_filters for each in dict.fromkeys(self.by_demand))
        )

    def has_rare_criterion(self, shared: Collection[SupplierCriteria]) -> bool:
        """Return whether few trees have the amounts, and a lookup had best start from their inventories.

        Sharing providers can supply the demands with the criteria `shared`, so such criteria do not make the
        trees few.
        """
        return any(criteria.is_rare for criteria in dict.fromkeys(self.by_demand) if criteria not in shared)


def resolve_criteria(
    connection: Connection,
    request: CandidatesRequest,
    *,
    one_provider_per_tree: bool,
    freed: FreedInventories = NOTHING_FREED,
) -> SearchCriteria:
    """Return the criteria of a request; raises `UnknownName` for an unknown trait or resource class.

    `freed` are the inventories from which consumers have allocations that the request ignores.

    Unknown aggregates and trees are no error: they have no members.
    """
    rows = fetch_name_rows(connection, request)
    if freed or len(request.groups) > MAX_CACHED_GROUPS or len(rows) > MAX_CACHED_NAMES:
        return _build_criteria(request, NamesLookup.of(rows), one_provider_per_tree, freed)
    return _cached_criteria(_Identical(request), rows, one_provider_per_tree)


def requiring_score(criteria: SearchCriteria, preferred: frozenset[int], score: int) -> SearchCriteria:
    """Return criteria that also require so many of the preferred traits of the unsuffixed group."""
    if not score:
        return criteria
    sets = _preferred_sets(preferred, score)
    rules = replace(criteria.rules, unsuffixed_required=(*criteria.rules.unsuffixed_required, *sets))
    return replace(criteria, rules=rules)


def _preferred_sets(preferred: frozenset[int], score: int) -> Iterator[frozenset[int]]:
    """Yield the sets of preferred traits of each of which a group with the score has a trait.

    If it lacks all traits of a set of `len(preferred) - score + 1`, it has less than the score.
    """
    return map(frozenset, combinations(sorted(preferred), len(preferred) - score + 1))


@dataclass(frozen=True, eq=False)
class _Identical:
    """A request that equals only itself: that of a repeated query is cached, so it is the same object."""

    request: CandidatesRequest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identical) and self.request is other.request

    def __hash__(self) -> int:
        return id(self.request)


@lru_cache(CRITERIA_CACHE_SIZE)
def _cached_criteria(
    identical: _Identical, rows: tuple[NameRow, ...], one_provider_per_tree: bool
) -> SearchCriteria:
    return _build_criteria(identical.request, NamesLookup.of(rows), one_provider_per_tree, NOTHING_FREED)


def _build_criteria(
    request: CandidatesRequest, names: NamesLookup, one_provider_per_tree: bool, freed: FreedInventories
) -> SearchCriteria:
    root_required = _resolve_traits(names, request.root_required)
    root_member_of = _resolve(names.aggregates, request.root_member_of)
    demands: list[Demand] = []
    by_demand: list[SupplierCriteria] = []
    unsuffixed_required: tuple[frozenset[int], ...] = ()
    unsuffixed_forbidden: frozenset[int] = frozenset()
    unsuffixed_not_in_tree: frozenset[int] = frozenset()
    trait_sets = set(root_required.sets)
    aggregate_sets = set(root_member_of.sets)
    for group in request.groups:
        resolved = _ResolvedGroup.of(names, group, request)
        trait_sets.update(resolved.required.sets)
        aggregate_sets.update(resolved.member_of.sets)
        for demand in demands_of(group):
            demands.append(demand)
            by_demand.append(resolved.supplier_criteria(demand, freed))
        if not group.suffix:
            unsuffixed_required = resolved.required.any_of
            unsuffixed_forbidden = resolved.member_of.forbidden
            unsuffixed_not_in_tree = resolved.not_in_tree
    sharing_trait_id = names.traits[os_traits.MISC_SHARES_VIA_AGGREGATE]
    rules = combination_rules(
        request, demands, unsuffixed_required, one_provider_per_tree=one_provider_per_tree
    )
    # Stored amounts say nothing about a tree in which consumers are ignored.
    split_amounts = () if freed else tuple(_split_amounts(rules, by_demand))
    summed_demands = () if freed else tuple(_summed_demands(rules, names))
    for number in rules.splittable:
        by_demand[number] = _split_criteria(by_demand[number], demands[number], freed)
    preferred_traits = Membership(tuple(frozenset([name]) for name in request.preferred))
    preferred = frozenset[int]().union(*_resolve_traits(names, preferred_traits).any_of)
    for score in range(1, len(preferred) + 1):
        trait_sets.update(_preferred_sets(preferred, score))
    return SearchCriteria(
        rules=rules,
        by_demand=tuple(_with_bounded_joins(by_demand)),
        root_required=root_required,
        root_member_of=root_member_of,
        unsuffixed_forbidden=unsuffixed_forbidden,
        unsuffixed_not_in_tree=unsuffixed_not_in_tree,
        small_trait_sets=frozenset(filter(names.has_few_providers, trait_sets)),
        small_aggregate_sets=frozenset(filter(names.has_few_members, aggregate_sets)),
        split_amounts=split_amounts,
        summed_demands=summed_demands,
        sharing_trait_id=sharing_trait_id if names.providers_by_trait[sharing_trait_id] else None,
        ordering=Ordering.of(rules, preferred, request.order_by),
        root_count=names.root_count,
    )


@dataclass(frozen=True, kw_only=True)
class _ResolvedGroup:
    """A request group with ids instead of names."""

    class_ids: Mapping[str, int]
    required: ResolvedMembership
    member_of: ResolvedMembership
    in_tree: int | None
    not_in_tree: frozenset[int]
    has_rare_traits: bool
    is_rare: bool

    @classmethod
    def of(cls, names: NamesLookup, group: RequestGroup, request: CandidatesRequest) -> "_ResolvedGroup":
        """Return a group of `request` with ids; raises `UnknownName` for an unknown trait or class."""
        class_ids = _resolve_classes(names, group)
        required = _resolve_traits(names, group.required)
        member_of = _resolve(names.aggregates, group.member_of)
        in_tree = None if group.in_tree is None else names.root_ids.get(group.in_tree, UNKNOWN_TREE)
        has_rare_traits = any(any_of.isdisjoint(names.frequent_traits) for any_of in required.any_of)
        amounts = request.least_amounts(group).items()
        counts = (names.inventories_by_amount.get(resource, 0) for resource in amounts)
        return cls(
            class_ids=class_ids,
            required=required,
            member_of=member_of,
            in_tree=in_tree,
            not_in_tree=frozenset(
                names.root_ids[uuid] for uuid in group.not_in_tree if uuid in names.root_ids
            ),
            has_rare_traits=has_rare_traits,
            is_rare=any(count < RARITY_THRESHOLD for count in counts),
        )

    def supplier_criteria(self, demand: Demand, freed: FreedInventories) -> SupplierCriteria:
        """Return the criteria for the suppliers of one of the group's demands."""
        return SupplierCriteria(
            resources=tuple((self.class_ids[name], amount) for name, amount in demand.resources),
            required=self.required if demand.suffix else ResolvedMembership((), self.required.forbidden),
            member_of=self.member_of,
            in_tree=self.in_tree,
            not_in_tree=self.not_in_tree,
            is_unsuffixed=not demand.suffix,
            has_rare_traits=self.has_rare_traits and bool(demand.suffix),
            is_rare=self.is_rare,
            added=providers_fitting_only_without(freed, demand.resources) if freed else frozenset(),
        )


def _with_bounded_joins(by_demand: Sequence[SupplierCriteria]) -> Iterator[SupplierCriteria]:
    """Yield the criteria with fewer joins where the joins are too many."""
    total = sum(each.join_count for each in dict.fromkeys(by_demand))
    for each in by_demand:
        is_bounded = total <= MAX_JOINS and each.join_count <= MAX_JOINS_OF_DEMAND
        yield each if is_bounded else replace(each, max_joined_classes=1)


def _split_amounts(
    rules: CombinationRules, by_demand: Sequence[SupplierCriteria]
) -> Iterator[tuple[int, int, int]]:
    """Yield the values of `SearchCriteria.split_amounts`."""
    for number in sorted(rules.splittable):
        [(class_id, amount)] = by_demand[number].resources
        yield number, class_id, amount


def _summed_demands(rules: CombinationRules, names: NamesLookup) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield the values of `SearchCriteria.summed_demands`."""
    for name in sorted(rules.summed_classes - rules.splittable_classes):
        demands = (index for index, each in enumerate(rules.demands) if name in dict(each.resources))
        yield names.resource_classes[name], frozenset(demands)


def _split_criteria(whole: SupplierCriteria, demand: Demand, freed: FreedInventories) -> SupplierCriteria:
    """Return the criteria of a provider that can supply the demand alone, or a part of it."""
    [(class_id, _)], [(name, _)] = whole.resources, demand.resources
    added = providers_giving_parts_only_without(freed, name)
    return replace(whole, resources=((class_id, ANY_PART),), added=added, whole=whole)


def _resolve_classes(names: NamesLookup, group: RequestGroup) -> Mapping[str, int]:
    for name in group.resources:
        if name not in names.resource_classes:
            raise UnknownName(
                f"Invalid resource class in resources parameter: No such resource class {name}."
            )
    return names.resource_classes


def _resolve_traits(names: NamesLookup, required: Membership) -> ResolvedMembership:
    for name in required.names:
        if name not in names.traits:
            raise UnknownName(f"No such trait(s): {name}.")
    return _resolve(names.traits, required)


def _resolve(ids: Mapping[str, int], membership: Membership) -> ResolvedMembership:
    return ResolvedMembership(
        tuple(frozenset(ids[name] for name in any_of if name in ids) for any_of in membership.any_of),
        frozenset(ids[name] for name in membership.forbidden if name in ids),
    )
