"""Sharing providers: what they supply to trees other than their own (`docs/spec/candidates.md 3.5`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, literal, select, union_all
from sqlalchemy.types import Integer

from placement_svc.db.filters import in_any_aggregate
from placement_svc.db.search.requests import Needs, Search
from placement_svc.db.search.suppliers import suppliers
from placement_svc.db.tables import provider_aggregates, provider_traits, resource_providers


@dataclass(frozen=True)
class SharedSupply:
    """A sharing provider that can supply a demand to every tree with a member in an aggregate.

    `demand` is the index of the demand, `clauses` those of the search whose traits it has.
    """

    demand: int
    provider_id: int
    root_id: int
    aggregate_id: int
    clauses: frozenset[int]


_sharing_trait = bindparam("sharing_trait", type_=Integer)
_sharers = (
    select(resource_providers.c.id, resource_providers.c.trait_ids, provider_aggregates.c.aggregate_id)
    .join(provider_traits, provider_traits.c.provider_id == resource_providers.c.id)
    .join(provider_aggregates, provider_aggregates.c.provider_id == resource_providers.c.id)
    .where(provider_traits.c.trait_id == _sharing_trait)
    .cte("sharers")
    .prefix_with("MATERIALIZED")
)


def find_shared(connection: Connection, search: Search) -> list[SharedSupply]:
    """Return what sharing providers can supply, once for each of their aggregates.

    One statement, none if nothing is shared; it starts from the few holders of the sharing trait.
    """
    if search.sharing_trait is None:
        return []
    queries = [
        _supplied_by_sharers(index, needs, search.terms.clauses)
        for index, needs in enumerate(search.needs)
        if needs.may_be_foreign
    ]
    if not queries:
        return []
    rows = connection.execute(
        union_all(*queries).order_by("demand", "provider_id", "aggregate_id"),
        {"sharing_trait": search.sharing_trait},
    )
    return [
        SharedSupply(demand, provider_id, root_id, aggregate_id, frozenset(n for n, m in enumerate(met) if m))
        for demand, provider_id, root_id, aggregate_id, *met in rows
    ]


def _supplied_by_sharers(index: int, needs: Needs, clauses: Iterable[frozenset[int]]) -> Select[Any]:
    able = suppliers(needs)
    query = able.query.with_only_columns(
        literal(index).label("demand"),
        able.provider_id.label("provider_id"),
        able.root_id,
        _sharers.c.aggregate_id,
        *(_sharers.c.trait_ids.overlap(sorted(clause)) for clause in clauses),
    ).join(_sharers, _sharers.c.id == able.provider_id)
    if needs.unsuffixed:
        # To other trees it is of use only if it is in the aggregates itself.
        query = query.where(*(in_any_aggregate(able.provider_id, ids) for ids in needs.member_of.any_of))
    return query
