"""Sharing providers: what they can supply to trees other than their own (`docs/spec/candidates.md 3.5`)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    Select,
    Text,
    bindparam,
    func,
    literal,
    literal_column,
    select,
    true,
    union_all,
)
from sqlalchemy.types import Integer

from placement_svc.db.filters import in_each_aggregate_set
from placement_svc.db.prepared import CompiledQuery, each_row
from placement_svc.db.repeated import RepeatedCache
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.demand_rows import MAX_SUBQUERY_DEMANDS, demand_rows, is_supplier
from placement_svc.db.search.list_texts import joined, members
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


def _select_sharing_providers(*, with_traits: bool) -> CTE:
    """Return the sharing providers, with the aggregates and the traits of each as texts.

    Without `with_traits`, the texts of traits are empty.
    """
    held, provider = provider_traits.c, resource_providers.c
    query = (
        select(
            held.provider_id.label("id"),
            held.root_id,
            joined(provider_aggregates.c.aggregate_id).label("aggregate_ids"),
        )
        .join(provider_aggregates, provider_aggregates.c.provider_id == held.provider_id)
        .where(held.trait_id == bindparam("sharing_trait_id", type_=Integer))
    )
    trait_ids: ColumnElement[str] = literal_column("''", Text)
    if with_traits:
        query = query.join(resource_providers, provider.id == held.provider_id)
        trait_ids = func.array_to_string(provider.trait_ids, literal_column("','", Text))
        query = query.group_by(provider.id)
    query = query.add_columns(trait_ids.label("trait_ids")).group_by(held.provider_id, held.root_id)
    return query.cte("sharing_providers").prefix_with("MATERIALIZED")


# To read the traits of each takes a third of the time.
_sharing_providers = {
    with_traits: shared(_select_sharing_providers(with_traits=with_traits)) for with_traits in (False, True)
}


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
    preferred = criteria.ordering.preferred if criteria.ordering else frozenset[int]()
    relevant = preferred.union(*criteria.rules.unsuffixed_required)
    build = _cached_statement if criteria.is_common else _build_statement
    statement = build(distinct, criteria.sharing_trait_id, bool(relevant))
    return {
        distinct[number]: tuple(deadline.checked(_supplies(texts, relevant, memory)))
        for number, *texts in each_row(connection, statement)
    }


def _supplies(texts: Iterable[str], relevant: frozenset[int], memory: MemoryBudget) -> Iterator[SharedSupply]:
    """Yield what sharing providers can supply to one demand, from the texts of a row."""
    provider_ids, root_ids, *lists = texts
    columns = members(provider_ids), members(root_ids), *(text.split(";") for text in lists)
    for provider_id, root_id, aggregates, traits in zip(*columns, strict=True):
        ids = tuple(members(aggregates))
        memory.reserve(SUPPLY_SIZE + AGGREGATE_ID_SIZE * len(ids))
        trait_ids = relevant.intersection(members(traits)) if traits else frozenset[int]()
        yield SharedSupply(provider_id, root_id, ids, trait_ids)


def supplies_of_class(criteria: SearchCriteria, shared_supplies: SharedSupplies) -> dict[int, SharedSupply]:
    """Return the sharing providers that can supply the class of `order_by`, by their ids."""
    return {
        supply.provider_id: supply
        for demand in (criteria.ordering.class_demands if criteria.ordering else ())
        for supply in shared_supplies.get(criteria.by_demand[demand], ())
    }


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


def _build_statement(distinct: tuple[SupplierCriteria, ...], sharing_trait_id: int, with_traits: bool) -> str:
    """Return the SQL for the sharing providers that can supply these criteria.

    A row for each criteria that some can supply has its number, and lists of these providers as texts: their
    ids, their roots, and with semicolons between them the aggregates and the traits of each. Without
    `with_traits`, no provider has traits.
    """
    sharing = _sharing_providers[with_traits]
    # Only the providers of one tree share a demand among them.
    numbered = {number: each.whole or each for number, each in enumerate(distinct)}
    if len(distinct) > MAX_SUBQUERY_DEMANDS:
        query: Any = _select_by_rows(numbered, sharing)
    else:
        query = union_all(*(_select_shared_supplies(*each, sharing) for each in numbered.items()))
    # The members of each list are in this order.
    found = query.order_by("number", "provider_id").subquery("found").c
    lists = joined(found.provider_id), joined(found.root_id)
    texts = joined(found.aggregate_ids, ";"), joined(found.trait_ids, ";")
    by_number = select(found.number, *lists, *texts).group_by(found.number)
    return CompiledQuery.of(by_number).with_literals({"sharing_trait_id": sharing_trait_id})


# Building a statement costs more than running it.
_cached_statement = RepeatedCache(_build_statement, STATEMENT_CACHE_SIZE)


def _select_shared_supplies(number: int, criteria: SupplierCriteria, sharing: CTE) -> Select[Any]:
    matching = supplier_query(criteria)
    query = matching.query.with_only_columns(
        literal(number).label("number"),
        matching.provider_id.label("provider_id"),
        sharing.c.root_id,
        sharing.c.aggregate_ids,
        sharing.c.trait_ids,
    ).join(sharing, sharing.c.id == matching.provider_id)
    if criteria.is_unsuffixed:
        # For other trees, the aggregates of the sharing provider's own root do not count.
        query = query.where(in_each_aggregate_set(matching.provider_id, criteria.member_of.any_of))
    return query


def _select_by_rows(numbered: Mapping[int, SupplierCriteria], sharing: CTE) -> Select[Any]:
    """Return the same rows as `_select_shared_supplies` for all these criteria."""
    # For other trees, the aggregates of the sharing provider's own root do not count.
    own_criteria = {number: replace(each, is_unsuffixed=False) for number, each in numbered.items()}
    demands = demand_rows(own_criteria)
    return (
        select(
            demands.c.number,
            sharing.c.id.label("provider_id"),
            sharing.c.root_id,
            sharing.c.aggregate_ids,
            sharing.c.trait_ids,
        )
        .select_from(demands.join(sharing, true()))
        .where(is_supplier(demands, sharing.c.id))
    )
