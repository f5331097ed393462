"""Build the criteria of a search (`placement_svc.db.search.criteria`) from a request."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

import os_traits
from sqlalchemy import Connection

from placement_svc.db.search.criteria import (
    ResolvedMembership,
    SearchCriteria,
    SupplierCriteria,
    preferred_sets,
)
from placement_svc.db.search.ignored_consumers import (
    NOTHING_FREED,
    FreedInventories,
    providers_fitting_only_without,
    providers_giving_parts_only_without,
)
from placement_svc.db.search.name_lookup import RARITY_THRESHOLD, NameRow, NamesLookup, fetch_name_rows
from placement_svc.domain.combining.ordering import Ordering
from placement_svc.domain.demands import CombinationRules, Demand, combination_rules, demands_of
from placement_svc.domain.errors import UnknownName
from placement_svc.domain.groups import CandidatesRequest, Membership, RequestGroup
from placement_svc.domain.inventory import ANY_PART

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
    root_required = _resolve_traits(names, request.root_required, "root_required")
    root_member_of = _resolve(names.aggregates, request.root_member_of)
    groups = [_ResolvedGroup.of(names, group, request) for group in request.groups]
    demands = [demand for group in request.groups for demand in demands_of(group)]
    resolved_by_suffix = {group.suffix: group for group in groups}
    by_demand = [resolved_by_suffix[demand.suffix].supplier_criteria(demand, freed) for demand in demands]
    unsuffixed = resolved_by_suffix.get("")
    sharing_trait_id = names.traits[os_traits.MISC_SHARES_VIA_AGGREGATE]
    rules = combination_rules(
        request,
        demands,
        unsuffixed.required.any_of if unsuffixed else (),
        one_provider_per_tree=one_provider_per_tree,
    )
    # Stored amounts say nothing about a tree in which consumers are ignored.
    split_amounts = () if freed else tuple(_split_amounts(rules, by_demand))
    summed_demands = () if freed else tuple(_summed_demands(rules, names))
    for number in rules.splittable:
        by_demand[number] = _split_criteria(by_demand[number], demands[number], freed)
    preferred_traits = Membership(tuple(frozenset([name]) for name in request.preferred))
    preferred = frozenset[int]().union(*_resolve_traits(names, preferred_traits, "preferred").any_of)
    of_scores = (preferred_sets(preferred, score) for score in range(1, len(preferred) + 1))
    of_groups = (group.required.sets for group in groups)
    trait_sets = set(chain(root_required.sets, *of_groups, *of_scores))
    aggregate_sets = set(chain(root_member_of.sets, *(group.member_of.sets for group in groups)))
    return SearchCriteria(
        rules=rules,
        by_demand=tuple(_with_bounded_joins(by_demand)),
        root_required=root_required,
        root_member_of=root_member_of,
        unsuffixed_forbidden_aggregates=unsuffixed.member_of.forbidden if unsuffixed else frozenset(),
        unsuffixed_not_in_tree=unsuffixed.not_in_tree if unsuffixed else frozenset(),
        small_trait_sets=frozenset(filter(names.is_small_trait_set, trait_sets)),
        small_aggregate_sets=frozenset(filter(names.is_small_aggregate_set, aggregate_sets)),
        sufficient_trait_sets=frozenset(filter(names.is_sufficient_trait_set, trait_sets)),
        sufficient_aggregate_sets=frozenset(filter(names.is_sufficient_aggregate_set, aggregate_sets)),
        holder_classes=names.holder_classes,
        split_amounts=split_amounts,
        summed_demands=summed_demands,
        sharing_trait_id=sharing_trait_id if names.providers_by_trait[sharing_trait_id] else None,
        ordering=Ordering.of(rules, preferred, request.order_by),
        root_count=names.root_count,
        providers_by_trait=names.providers_by_trait,
        providers_by_aggregate=names.providers_by_aggregate,
    )


@dataclass(frozen=True, kw_only=True)
class _ResolvedGroup:
    """A request group with ids instead of names."""

    suffix: str
    class_ids: Mapping[str, int]
    required: ResolvedMembership
    member_of: ResolvedMembership
    in_tree: int | None
    not_in_tree: frozenset[int]
    has_rare_traits: bool
    rare_classes: frozenset[str]
    """The classes of which fewer than `RARITY_THRESHOLD` inventories can give the amount."""

    @classmethod
    def of(cls, names: NamesLookup, group: RequestGroup, request: CandidatesRequest) -> "_ResolvedGroup":
        """Return a group of `request` with ids; raises `UnknownName` for an unknown trait or class."""
        class_ids = _resolve_classes(names, group)
        required = _resolve_traits(names, group.required, f"required{group.suffix}")
        member_of = _resolve(names.aggregates, group.member_of)
        in_tree = None if group.in_tree is None else names.root_ids.get(group.in_tree, UNKNOWN_TREE)
        has_rare_traits = any(any_of.isdisjoint(names.frequent_traits) for any_of in required.any_of)
        amounts = request.least_amounts(group).items()
        counts = ((item[0], names.inventories_by_amount.get(item, 0)) for item in amounts)
        return cls(
            suffix=group.suffix,
            class_ids=class_ids,
            required=required,
            member_of=member_of,
            in_tree=in_tree,
            not_in_tree=frozenset(
                names.root_ids[uuid] for uuid in group.not_in_tree if uuid in names.root_ids
            ),
            has_rare_traits=has_rare_traits,
            rare_classes=frozenset(name for name, count in counts if count < RARITY_THRESHOLD),
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
            is_rare=any(name in self.rare_classes for name, _ in demand.resources),
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
            hint = " Remove the blanks around it." if name != name.strip() else ""
            raise UnknownName(
                f"Invalid resource class in resources parameter: No such resource class {name}.{hint}",
                key=f"resources{group.suffix}",
            )
    return {name: names.resource_classes[name] for name in group.resources}


def _resolve_traits(names: NamesLookup, required: Membership, key: str) -> ResolvedMembership:
    """Return the condition on traits of a query key with ids; raises `UnknownName`."""
    for name in required.names:
        if name not in names.traits:
            raise UnknownName(f"No such trait(s): {name}.", key=key)
    return _resolve(names.traits, required)


def _resolve(ids: Mapping[str, int], membership: Membership) -> ResolvedMembership:
    return ResolvedMembership(
        tuple(frozenset(ids[name] for name in any_of if name in ids) for any_of in membership.any_of),
        frozenset(ids[name] for name in membership.forbidden if name in ids),
    )
