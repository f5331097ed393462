"""Sharing providers: what they can supply to trees other than their own (`docs/spec/candidates.md 3.5`)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, literal, select, union_all
from sqlalchemy.types import Integer

from placement_svc.db.engine import each_driver_row
from placement_svc.db.filters import in_any_aggregate
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.suppliers import supplier_query
from placement_svc.db.tables import provider_aggregates, provider_traits, resource_providers
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.memory import MemoryBudget

SUPPLY_SIZE = 500
"""Bytes of memory that a `SharedSupply` needs, with its part of the statements, approximately."""


@dataclass(frozen=True, slots=True)
class SharedSupply:
    """A sharing provider that can supply a demand to every tree with a member in an aggregate.

    `satisfied_required` holds the indexes of those sets in `CombinationRules.unsuffixed_required` of which
    the provider has a trait.
    """

    provider_id: int
    root_id: int
    aggregate_id: int
    satisfied_required: frozenset[int]


SharedSupplies = Mapping[SupplierCriteria, tuple[SharedSupply, ...]]
"""What sharing providers can supply, by the criteria of a demand; without those that they cannot supply."""

_sharing_providers = (
    select(resource_providers.c.id, resource_providers.c.trait_ids, provider_aggregates.c.aggregate_id)
    .join(provider_traits, provider_traits.c.provider_id == resource_providers.c.id)
    .join(provider_aggregates, provider_aggregates.c.provider_id == resource_providers.c.id)
    .where(provider_traits.c.trait_id == bindparam("sharing_trait_id", type_=Integer))
    .cte("sharing_providers")
    .prefix_with("MATERIALIZED")
)


def find_shared_supplies(
    connection: Connection, criteria: SearchCriteria, deadline: Deadline, memory: MemoryBudget
) -> SharedSupplies:
    """Return what sharing providers can supply, once for each of their aggregates.

    One statement, or none if no provider shares; it starts from the few providers with the sharing trait.
    """
    if criteria.sharing_trait_id is None:
        return {}
    distinct = [each for each in dict.fromkeys(criteria.by_demand) if each.allows_sharing_providers]
    if not distinct:
        return {}
    queries = (
        _select_shared_supplies(number, each, criteria.rules.unsuffixed_required)
        for number, each in enumerate(distinct)
    )
    statement = union_all(*queries).order_by("number", "provider_id", "aggregate_id")
    values = {"sharing_trait_id": criteria.sharing_trait_id}
    supplies: defaultdict[SupplierCriteria, list[SharedSupply]] = defaultdict(list)
    for number, provider_id, root_id, aggregate_id, *has_traits in deadline.checked(
        each_driver_row(connection, statement, values)
    ):
        memory.reserve(SUPPLY_SIZE)
        satisfied = frozenset(index for index, has_trait in enumerate(has_traits) if has_trait)
        supplies[distinct[number]].append(SharedSupply(provider_id, root_id, aggregate_id, satisfied))
    return {each: tuple(found) for each, found in supplies.items()}


def _select_shared_supplies(
    number: int, criteria: SupplierCriteria, unsuffixed_required: Iterable[frozenset[int]]
) -> Select[Any]:
    matching = supplier_query(criteria)
    query = matching.query.with_only_columns(
        literal(number).label("number"),
        matching.provider_id.label("provider_id"),
        matching.root_id,
        _sharing_providers.c.aggregate_id,
        *(_sharing_providers.c.trait_ids.overlap(sorted(any_of)) for any_of in unsuffixed_required),
    ).join(_sharing_providers, _sharing_providers.c.id == matching.provider_id)
    if criteria.is_unsuffixed:
        # For other trees, the aggregates of the sharing provider's own root do not count.
        query = query.where(
            *(in_any_aggregate(matching.provider_id, ids) for ids in criteria.member_of.any_of)
        )
    return query
