"""Sharing providers: what they supply to trees other than their own (`spec/candidates.md 3.5`)."""

from dataclasses import dataclass

from sqlalchemy import Connection, and_, literal, select, union_all

from placement_svc.db.filters import has_any_trait, in_any_aggregate
from placement_svc.db.search.requests import Search
from placement_svc.db.search.suppliers import suppliers
from placement_svc.db.tables import provider_aggregates, provider_traits


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


def find_shared(connection: Connection, search: Search) -> list[SharedSupply]:
    """Return what sharing providers can supply, once for each of their aggregates.

    One statement; it starts from the few holders of the sharing trait.
    """
    sharers = (
        select(provider_traits.c.provider_id, provider_aggregates.c.aggregate_id)
        .join(provider_aggregates, provider_aggregates.c.provider_id == provider_traits.c.provider_id)
        .where(provider_traits.c.trait_id == search.sharing_trait)
        .cte("sharers")
        .prefix_with("MATERIALIZED")
    )
    queries = []
    for index, needs in enumerate(search.needs):
        if not needs.may_be_foreign:
            continue
        able = suppliers(needs).subquery()
        query = select(
            literal(index).label("demand"),
            able.c.provider_id,
            able.c.root_id,
            sharers.c.aggregate_id,
            *(has_any_trait(able.c.provider_id, clause) for clause in search.clauses),
        ).join(sharers, sharers.c.provider_id == able.c.provider_id)
        if needs.unsuffixed and needs.aggregates.required:
            # To other trees it is of use only if it is in the aggregates itself.
            query = query.where(
                and_(*(in_any_aggregate(able.c.provider_id, ids) for ids in needs.aggregates.required))
            )
        queries.append(query)
    if not queries:
        return []
    rows = connection.execute(union_all(*queries).order_by("demand", "provider_id", "aggregate_id"))
    return [
        SharedSupply(demand, provider_id, root_id, aggregate_id, frozenset(n for n, m in enumerate(met) if m))
        for demand, provider_id, root_id, aggregate_id, *met in rows
    ]
