"""Sharing providers in the statements that find anchors."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from sqlalchemy import FromClause, column, func, literal, select, union
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Integer

from placement_svc.db.filters import is_any
from placement_svc.db.search.criteria import SupplierCriteria
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.db.search.suppliers import supplier_query
from placement_svc.db.search.tree_conditions import tree_aggregates


def with_serving_ids(examined_roots: FromClause, shared_supplies: SharedSupplies) -> FromClause:
    """Return the examined roots with the column `serving_ids`: the sharing providers that serve each.

    One join for all roots and demands, because each demand would otherwise scan all sharing providers for
    each root. Aggregates with the same sharing providers are joined as one: a root with 20 aggregates of the
    same 500 providers would otherwise yield 10,000 rows.
    """
    providers_by_aggregate: dict[int, set[int]] = {}
    for supply in chain.from_iterable(shared_supplies.values()):
        for aggregate_id in supply.aggregate_ids:
            providers_by_aggregate.setdefault(aggregate_id, set()).add(supply.provider_id)
    aggregates_by_providers: dict[tuple[int, ...], list[int]] = {}
    for aggregate_id, provider_ids in sorted(providers_by_aggregate.items()):
        aggregates_by_providers.setdefault(tuple(sorted(provider_ids)), []).append(aggregate_id)
    aggregate = _table_of_pairs(enumerate(aggregates_by_providers.values()), "number", "aggregate_id")
    provider = _table_of_pairs(enumerate(aggregates_by_providers), "number", "provider_id")
    served = (
        select(examined_roots, aggregate.c.number)
        .select_from(
            examined_roots.outerjoin(
                tree_aggregates.join(aggregate, aggregate.c.aggregate_id == tree_aggregates.c.aggregate_id),
                tree_aggregates.c.root_id == examined_roots.c.id,
            )
        )
        .distinct()
        .subquery("served")
    )
    # The groups are made in the joined rows. PostgreSQL would join a table of groups by reading it anew for
    # each root, because it expects few roots.
    return (
        select(
            served.c.id,
            served.c.position,
            func.array_agg(provider.c.provider_id.distinct())
            .filter(provider.c.provider_id.is_not(None))
            .label("serving_ids"),
        )
        .select_from(served.outerjoin(provider, provider.c.number == served.c.number))
        .group_by(served.c.position, served.c.id)
        .order_by(served.c.position)
        .subquery("served_roots")
    )


def supplier_ids_query(
    shared_supplies: SharedSupplies, supplier_criteria: SupplierCriteria, anchors: FromClause
) -> Any:
    """Return the query for the ids of the providers that can supply a demand around an anchor."""
    matching = supplier_query(supplier_criteria)
    in_tree = matching.query.with_only_columns(matching.provider_id).where(matching.root_id == anchors.c.id)
    supplies = shared_supplies.get(supplier_criteria)
    if not supplies:
        return in_tree.scalar_subquery()
    serving = (
        func.unnest(anchors.c.serving_ids).table_valued(column("id", Integer)).render_derived(name="serving")
    )
    sharing = select(serving.c.id).where(is_any(serving.c.id, [supply.provider_id for supply in supplies]))
    return union(in_tree, sharing).scalar_subquery()


def _table_of_pairs(lists: Iterable[tuple[int, Iterable[int]]], *names: str) -> FromClause:
    """Return the pairs of each number and the members of its list as a table with two columns."""
    pairs = [(number, member) for number, members in lists for member in members]
    columns = (literal(list(values), ARRAY(Integer)) for values in zip(*pairs, strict=True))
    return func.unnest(*columns).table_valued(*names).render_derived()
