"""Sharing providers: what they can supply to trees other than their own (`docs/spec/candidates.md 3.5`)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Select, bindparam, literal, select, true, union_all
from sqlalchemy.types import Integer

from placement_svc.db.filters import in_each_aggregate_set
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.demand_rows import MAX_SUBQUERY_DEMANDS, demand_rows, is_supplier
from placement_svc.db.search.suppliers import supplier_query
from placement_svc.db.tables import provider_aggregates, provider_traits, resource_providers


@dataclass(frozen=True)
class SharedSupply:
    """A sharing provider that can supply a demand to every tree with a member in an aggregate.

    `demand` is the index of the demand. `satisfied_required` holds the indexes of those sets in
    `CombinationRules.unsuffixed_required` of which the provider has a trait.
    """

    demand: int
    provider_id: int
    root_id: int
    aggregate_id: int
    satisfied_required: frozenset[int]


_sharing_providers = (
    select(
        resource_providers.c.id,
        resource_providers.c.root_id,
        resource_providers.c.trait_ids,
        provider_aggregates.c.aggregate_id,
    )
    .join(provider_traits, provider_traits.c.provider_id == resource_providers.c.id)
    .join(provider_aggregates, provider_aggregates.c.provider_id == resource_providers.c.id)
    .where(provider_traits.c.trait_id == bindparam("sharing_trait_id", type_=Integer))
    .cte("sharing_providers")
    .prefix_with("MATERIALIZED")
)


def find_shared_supplies(connection: Connection, criteria: SearchCriteria) -> list[SharedSupply]:
    """Return what sharing providers can supply, once for each of their aggregates.

    One statement, or none if no provider shares; it starts from the few providers with the sharing trait.
    """
    if criteria.sharing_trait_id is None:
        return []
    unsuffixed_required = criteria.rules.unsuffixed_required
    by_demand = {
        demand: supplier_criteria
        for demand, supplier_criteria in enumerate(criteria.by_demand)
        if supplier_criteria.allows_sharing_providers
    }
    if not by_demand:
        return []
    if len(by_demand) > MAX_SUBQUERY_DEMANDS:
        query: Any = _select_by_rows(by_demand)
    else:
        query = union_all(*(_select_shared_supplies(*each) for each in by_demand.items()))
    rows = connection.execute(
        query.order_by("demand", "provider_id", "aggregate_id"),
        {"sharing_trait_id": criteria.sharing_trait_id},
    )
    return [
        SharedSupply(
            demand=demand,
            provider_id=provider_id,
            root_id=root_id,
            aggregate_id=aggregate_id,
            satisfied_required=frozenset(
                number
                for number, any_of in enumerate(unsuffixed_required)
                if not any_of.isdisjoint(trait_ids)
            ),
        )
        for demand, provider_id, root_id, aggregate_id, trait_ids in rows
    ]


def _select_shared_supplies(demand: int, criteria: SupplierCriteria) -> Select[Any]:
    matching = supplier_query(criteria)
    query = matching.query.with_only_columns(
        literal(demand).label("demand"),
        matching.provider_id.label("provider_id"),
        matching.root_id,
        _sharing_providers.c.aggregate_id,
        _sharing_providers.c.trait_ids,
    ).join(_sharing_providers, _sharing_providers.c.id == matching.provider_id)
    if criteria.is_unsuffixed:
        # For other trees, the aggregates of the sharing provider's own root do not count.
        query = query.where(in_each_aggregate_set(matching.provider_id, criteria.member_of.any_of))
    return query


def _select_by_rows(by_demand: Mapping[int, SupplierCriteria]) -> Select[Any]:
    """Return the same rows as `_select_shared_supplies` for all these demands."""
    # For other trees, the aggregates of the sharing provider's own root do not count.
    own_criteria = {demand: replace(each, is_unsuffixed=False) for demand, each in by_demand.items()}
    demands = demand_rows(own_criteria, {})
    return (
        select(
            demands.c.number.label("demand"),
            _sharing_providers.c.id.label("provider_id"),
            _sharing_providers.c.root_id,
            _sharing_providers.c.aggregate_id,
            _sharing_providers.c.trait_ids,
        )
        .select_from(demands.join(_sharing_providers, true()))
        .where(is_supplier(demands, _sharing_providers.c.id))
    )
