"""The criteria of a search: a request for allocation candidates with ids instead of names."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import os_traits
from sqlalchemy import Connection

from placement_svc.db.search.name_lookup import RARITY_THRESHOLD, NamesLookup, look_up_names
from placement_svc.domain.demands import CombinationRules, Demand, combination_rules, demands_of
from placement_svc.domain.errors import Invalid
from placement_svc.domain.groups import CandidatesRequest, Membership, RequestGroup

UNKNOWN_TREE = 0
"""The root id that stands for the tree of an unknown provider: ids start at 1."""


@dataclass(frozen=True)
class ResolvedMembership:
    """A `Membership` by id: at least one member of each set in `any_of`, no member of `forbidden`.

    An unknown aggregate has no id, so a set that names only unknown aggregates is empty and matches nothing.
    """

    any_of: tuple[frozenset[int], ...]
    forbidden: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class SupplierCriteria:
    """The conditions on a provider that supplies one demand.

    `resources` are pairs of class id and amount. `in_tree` is the root id of the only tree allowed (None:
    any tree). In the unsuffixed group (`is_unsuffixed`), the aggregates of a root count for its whole tree,
    and the traits that `required` demands concern all suppliers together: `required` has only the
    forbidden traits here, the others are in `CombinationRules.unsuffixed_required`.

    `is_rare` means that fewer than `RARITY_THRESHOLD` providers can match, for whatever reason;
    `has_rare_traits`, that this is so because of `required`.
    """

    resources: tuple[tuple[int, int], ...]
    required: ResolvedMembership
    member_of: ResolvedMembership
    in_tree: int | None
    is_unsuffixed: bool
    has_rare_traits: bool
    is_rare: bool

    @property
    def allows_sharing_providers(self) -> bool:
        """Whether a sharing provider of another tree can match (`docs/spec/candidates.md 3.2 and 3.3`)."""
        return not (self.is_unsuffixed and self.in_tree is not None)


@dataclass(frozen=True, kw_only=True)
class SearchCriteria:
    """Everything that the statements of one search depend on.

    `by_demand` holds the supplier criteria of each of `rules.demands`. `root_required` is a condition on the
    traits of the anchor, which is also in none of the aggregates `root_member_of_forbidden`: those that the
    unsuffixed group forbids. `frequent_traits` are the traits named in the request that are not rare.
    """

    rules: CombinationRules
    by_demand: tuple[SupplierCriteria, ...]
    root_required: ResolvedMembership
    root_member_of_forbidden: frozenset[int]
    frequent_traits: frozenset[int]
    sharing_trait_id: int | None
    """The id of MISC_SHARES_VIA_AGGREGATE; None if no provider has it."""

    def has_rare_criterion(self, shared: Collection[SupplierCriteria]) -> bool:
        """Return whether few trees can match, and a lookup had best start from what makes them few.

        Sharing providers can supply the demands with the criteria `shared`, so such criteria do not make the
        trees few.
        """
        return any(self.is_rare_set(any_of) for any_of in self.rules.unsuffixed_required) or any(
            criteria.is_rare for criteria in dict.fromkeys(self.by_demand) if criteria not in shared
        )

    def is_rare_set(self, any_of: frozenset[int]) -> bool:
        """Return whether all traits of a set are rare."""
        return any_of.isdisjoint(self.frequent_traits)


def resolve_criteria(
    connection: Connection, request: CandidatesRequest, *, one_provider_per_tree: bool
) -> SearchCriteria:
    """Return the criteria of a request; raises `Invalid` for an unknown trait or resource class.

    Unknown aggregates and trees are no error: they have no members.
    """
    names = look_up_names(connection, request)
    root_required = _resolve_traits(names, request.root_required)
    demands: list[Demand] = []
    by_demand: list[SupplierCriteria] = []
    unsuffixed_required: tuple[frozenset[int], ...] = ()
    root_member_of_forbidden: frozenset[int] = frozenset()
    for group in request.groups:
        resolved = _ResolvedGroup.of(names, group)
        for demand in demands_of(group):
            demands.append(demand)
            by_demand.append(resolved.supplier_criteria(demand))
        if not group.suffix:
            unsuffixed_required = resolved.required.any_of
            root_member_of_forbidden = resolved.member_of.forbidden
    sharing_trait_id = names.traits[os_traits.MISC_SHARES_VIA_AGGREGATE]
    return SearchCriteria(
        rules=combination_rules(
            request, demands, unsuffixed_required, one_provider_per_tree=one_provider_per_tree
        ),
        by_demand=tuple(by_demand),
        root_required=root_required,
        root_member_of_forbidden=root_member_of_forbidden,
        frequent_traits=names.frequent_traits,
        sharing_trait_id=sharing_trait_id if names.providers_by_trait[sharing_trait_id] else None,
    )


@dataclass(frozen=True, kw_only=True)
class _ResolvedGroup:
    """A request group with ids instead of names."""

    class_ids: Mapping[str, int]
    required: ResolvedMembership
    member_of: ResolvedMembership
    in_tree: int | None
    has_rare_traits: bool
    is_rare: bool

    @classmethod
    def of(cls, names: NamesLookup, group: RequestGroup) -> "_ResolvedGroup":
        """Return `group` with ids; raises `Invalid` for an unknown trait or resource class."""
        class_ids = _resolve_classes(names, group)
        required = _resolve_traits(names, group.required)
        member_of = _resolve(names.aggregates, group.member_of)
        in_tree = None if group.in_tree is None else names.root_ids.get(group.in_tree, UNKNOWN_TREE)
        has_rare_traits = any(any_of.isdisjoint(names.frequent_traits) for any_of in required.any_of)
        counts = [names.inventories_by_amount.get(resource, 0) for resource in group.resources.items()]
        counts += [sum(names.providers_by_aggregate[id_] for id_ in any_of) for any_of in member_of.any_of]
        return cls(
            class_ids=class_ids,
            required=required,
            member_of=member_of,
            in_tree=in_tree,
            has_rare_traits=has_rare_traits,
            is_rare=has_rare_traits
            or in_tree is not None
            or any(count < RARITY_THRESHOLD for count in counts),
        )

    def supplier_criteria(self, demand: Demand) -> SupplierCriteria:
        """Return the criteria for the suppliers of one of the group's demands."""
        return SupplierCriteria(
            resources=tuple((self.class_ids[name], amount) for name, amount in demand.resources),
            required=self.required if demand.suffix else ResolvedMembership((), self.required.forbidden),
            member_of=self.member_of,
            in_tree=self.in_tree,
            is_unsuffixed=not demand.suffix,
            has_rare_traits=self.has_rare_traits and bool(demand.suffix),
            is_rare=self.is_rare,
        )


def _resolve_classes(names: NamesLookup, group: RequestGroup) -> Mapping[str, int]:
    for name in group.resources:
        if name not in names.resource_classes:
            raise Invalid(f"Invalid resource class in resources parameter: No such resource class {name}.")
    return names.resource_classes


def _resolve_traits(names: NamesLookup, required: Membership) -> ResolvedMembership:
    for name in required.names:
        if name not in names.traits:
            raise Invalid(f"No such trait(s): {name}.")
    return _resolve(names.traits, required)


def _resolve(ids: Mapping[str, int], membership: Membership) -> ResolvedMembership:
    return ResolvedMembership(
        tuple(frozenset(ids[name] for name in any_of if name in ids) for any_of in membership.any_of),
        frozenset(ids[name] for name in membership.forbidden if name in ids),
    )
