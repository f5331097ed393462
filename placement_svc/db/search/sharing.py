"""Sharing providers: what they can supply to trees other than their own (`docs/spec/candidates.md 3.5`)."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, literal, select, true, union_all
from sqlalchemy.types import Integer

from placement_svc.db.filters import in_each_aggregate_set
from placement_svc.db.prepared import CompiledQuery, each_row
from placement_svc.db.repeated import RepeatedCache
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.demand_rows import MAX_SUBQUERY_DEMANDS, demand_rows, is_supplier
from placement_svc.db.search.suppliers import supplier_query
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import provider_aggregates, provider_traits, resource_providers
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget

STATEMENT_CACHE_SIZE = 128
"""Searches whose statements are cached: schedulers repeat their requests."""

SUPPLY_SIZE = 500
"""Bytes of memory that a `SharedSupply` needs, with its part of the statements, approximately."""

AGGREGATE_ID_SIZE = 50
"""Bytes of memory that each of its aggregates needs besides, approximately."""


@dataclass(frozen=True, slots=True)
class SharedSupply:
    """A sharing provider that can supply a demand to every tree with a member in one of its aggregates.

    `trait_ids` are those of its traits that the unsuffixed group requires or prefers.
    """

    provider_id: int
    root_id: int
    aggregate_ids: tuple[int, ...]
    trait_ids: frozenset[int]


SharedSupplies = Mapping[SupplierCriteria, tuple[SharedSupply, ...]]
"""The supplies of sharing providers by the criteria of a demand; criteria that none can meet are absent."""

Supplies = tuple[tuple[SupplierCriteria, tuple[SharedSupply, ...]], ...]
"""The items of `SharedSupplies`, as the key of a cache."""

_sharing_providers = shared(
    select(
        resource_providers.c.id,
        resource_providers.c.root_id,
        resource_providers.c.trait_ids,
        func.array_agg(provider_aggregates.c.aggregate_id).label("aggregate_ids"),
    )
    .join(provider_traits, provider_traits.c.provider_id == resource_providers.c.id)
    .join(provider_aggregates, provider_aggregates.c.provider_id == resource_providers.c.id)
    .where(provider_traits.c.trait_id == bindparam("sharing_trait_id", type_=Integer))
    .group_by(resource_providers.c.id)
    .cte("sharing_providers")
    .prefix_with("MATERIALIZED")
)


def find_shared_supplies(
    connection: Connection, criteria: SearchCriteria, deadline: Deadline, memory: MemoryBudget
) -> SharedSupplies:
    """Return what sharing providers can supply.

    One statement, or none if no provider shares; it starts from the few providers with the sharing trait.
    """
    if criteria.sharing_trait_id is None:
        return {}
    distinct = tuple(each for each in dict.fromkeys(criteria.by_demand) if each.allows_sharing_providers)
    if not distinct:
        return {}
    build = _cached_statement if criteria.is_common else _build_statement
    statement = build(distinct, criteria.sharing_trait_id)
    preferred = criteria.ordering.preferred if criteria.ordering else frozenset[int]()
    relevant = preferred.union(*criteria.rules.unsuffixed_required)
    supplies: defaultdict[SupplierCriteria, list[SharedSupply]] = defaultdict(list)
    for number, provider_id, root_id, aggregate_ids, trait_ids in deadline.checked(
        each_row(connection, statement)
    ):
        memory.reserve(SUPPLY_SIZE + AGGREGATE_ID_SIZE * len(aggregate_ids))
        supply = SharedSupply(provider_id, root_id, tuple(aggregate_ids), relevant.intersection(trait_ids))
        supplies[distinct[number]].append(supply)
    return {each: tuple(found) for each, found in supplies.items()}


def aggregates_serving_required(shared_supplies: SharedSupplies, any_of: frozenset[int]) -> set[int]:
    """Return the aggregates through which a supplier of the unsuffixed group has one of these traits.

    The unsuffixed group requires or prefers them.
    """
    return {
        aggregate_id
        for supplier_criteria, supplies in shared_supplies.items()
        if supplier_criteria.is_unsuffixed
        for supply in supplies
        if not any_of.isdisjoint(supply.trait_ids)
        for aggregate_id in supply.aggregate_ids
    }


def _build_statement(distinct: tuple[SupplierCriteria, ...], sharing_trait_id: int) -> str:
    """Return the SQL for the sharing providers that can supply these criteria, with their numbers."""
    # Only the providers of one tree share a demand among them.
    numbered = {number: each.whole or each for number, each in enumerate(distinct)}
    if len(distinct) > MAX_SUBQUERY_DEMANDS:
        query: Any = _select_by_rows(numbered)
    else:
        query = union_all(*(_select_shared_supplies(*each) for each in numbered.items()))
    ordered = query.order_by("number", "provider_id")
    return CompiledQuery.of(ordered).with_literals({"sharing_trait_id": sharing_trait_id})


# Building a statement costs more than running it.
_cached_statement = RepeatedCache(_build_statement, STATEMENT_CACHE_SIZE)


def _select_shared_supplies(number: int, criteria: SupplierCriteria) -> Select[Any]:
    matching = supplier_query(criteria)
    query = matching.query.with_only_columns(
        literal(number).label("number"),
        matching.provider_id.label("provider_id"),
        matching.root_id,
        _sharing_providers.c.aggregate_ids,
        _sharing_providers.c.trait_ids,
    ).join(_sharing_providers, _sharing_providers.c.id == matching.provider_id)
    if criteria.is_unsuffixed:
        # For other trees, the aggregates of the sharing provider's own root do not count.
        query = query.where(in_each_aggregate_set(matching.provider_id, criteria.member_of.any_of))
    return query


def _select_by_rows(numbered: Mapping[int, SupplierCriteria]) -> Select[Any]:
    """Return the same rows as `_select_shared_supplies` for all these criteria."""
    # For other trees, the aggregates of the sharing provider's own root do not count.
    own_criteria = {number: replace(each, is_unsuffixed=False) for number, each in numbered.items()}
    demands = demand_rows(own_criteria)
    return (
        select(
            demands.c.number,
            _sharing_providers.c.id.label("provider_id"),
            _sharing_providers.c.root_id,
            _sharing_providers.c.aggregate_ids,
            _sharing_providers.c.trait_ids,
        )
        .select_from(demands.join(_sharing_providers, true()))
        .where(is_supplier(demands, _sharing_providers.c.id))
    )
