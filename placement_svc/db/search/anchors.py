"""The anchors: root providers around which every demand has a supplier (`spec/candidates.md 3.1`)."""

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    any_,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Integer

from placement_svc.db.filters import in_any_aggregate, is_any
from placement_svc.db.search.requests import Needs, Search
from placement_svc.db.search.sharing import SharedSupply
from placement_svc.db.search.suppliers import Suppliers, suppliers, suppliers_with_any_trait, with_traits
from placement_svc.db.tables import provider_aggregates, resource_providers

Options = tuple[tuple[int, ...], ...]
"""The ids of the providers that can supply each demand around one anchor."""

roots = resource_providers.alias("roots")
_below = resource_providers.alias("below")
_reached = provider_aggregates.alias("reached")


def find_anchors(
    connection: Connection,
    search: Search,
    shared: Sequence[SharedSupply],
    limit: int | None,
    after: int,
) -> list[tuple[int, Options]]:
    """Return the next `limit` anchors after an id, each with its options, in the order of ids.

    An anchor here meets all that is asked of single providers; what is asked of them together
    (sums, isolation) is left to the combining.

    One statement. With a limit PostgreSQL walks the roots and stops early, or starts from the rarest
    of what is demanded where that is rarer: every demand is a semi-join that an index on
    (root_id, resource_class_id) or (resource_class_id, room) serves.
    """
    anchors = _query(search, shared, after).limit(limit).cte("anchors").prefix_with("MATERIALIZED")
    supplies = union_all(*_supplies(search, shared, anchors.c.id)).lateral()
    query = (
        select(anchors.c.id, supplies.c.demand, func.array_agg(supplies.c.provider_id.distinct()))
        .join(supplies, true())
        .group_by(anchors.c.id, supplies.c.demand)
        .order_by(anchors.c.id, supplies.c.demand)
    )
    found: dict[int, list[tuple[int, ...]]] = {}
    for anchor, _, provider_ids in connection.execute(query):
        found.setdefault(anchor, []).append(tuple(provider_ids))
    return [(anchor, tuple(options)) for anchor, options in found.items()]


def _query(search: Search, shared: Sequence[SharedSupply], after: int) -> Select[int]:
    able = (
        select(roots.c.id)
        .where(roots.c.parent_id.is_(None), roots.c.id > after, *_conditions(search, shared))
        .order_by(roots.c.id)
    )
    foreign = {supply.demand for supply in shared}
    subtrees = [
        [search.needs[index] for index in sorted(demands)]
        for demands in search.same_subtrees
        # A subtree of a sharing provider lies in another tree; the combining sees to that.
        if foreign.isdisjoint(demands)
    ]
    if not subtrees:
        return able
    # Subtrees are dear: OFFSET lets only those roots come to it that have passed all the rest. They
    # keep their order, and an ORDER BY of its own would make PostgreSQL look at all of them.
    candidates = able.offset(0).subquery("candidates")
    return select(candidates.c.id).where(*(_covered(candidates, needs) for needs in subtrees))


def _conditions(search: Search, shared: Sequence[SharedSupply]) -> Iterable[ColumnElement[bool]]:
    yield from with_traits(roots.c.id, search.root_traits)
    if search.root_aggregates.forbidden:
        yield not_(in_any_aggregate(roots.c.id, search.root_aggregates.forbidden))
    for needs in dict.fromkeys(search.needs):
        reach = {s.aggregate_id for s in shared if search.needs[s.demand] == needs}
        yield _in_reach(suppliers(needs), reach)
    unsuffixed = {index for index, needs in enumerate(search.needs) if needs.unsuffixed}
    for number, clause in enumerate(search.clauses):
        yield _in_reach(
            suppliers_with_any_trait((search.needs[index] for index in unsuffixed), clause),
            {s.aggregate_id for s in shared if number in s.clauses and s.demand in unsuffixed},
        )


def _in_reach(able: Suppliers, aggregate_ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a root's tree has one of those able, or a member in an aggregate."""
    here = able.query.where(able.root_id == roots.c.id).exists()
    if not aggregate_ids:
        return here
    linked = exists().where(_reached.c.root_id == roots.c.id, is_any(_reached.c.aggregate_id, aggregate_ids))
    return or_(here, linked)


def _covered(root: FromClause, all_needs: Sequence[Needs]) -> ColumnElement[bool]:
    """Return the condition that one supplier has, in its subtree, suppliers of all these demands.

    OFFSET keeps it a question asked of one root after the other: as a join, PostgreSQL would first
    work out the answer for the whole cloud.
    """
    able = [suppliers(needs) for needs in all_needs]
    covers = union_all(*(each.query for each in able)).subquery("covers")
    below = (
        each.query.join(_below, _below.c.id == each.provider_id)
        .where(each.root_id == covers.c.root_id, covers.c.provider_id == any_(_below.c.path))
        .correlate(covers)
        .exists()
        for each in able
    )
    return exists(select(literal(1)).where(covers.c.root_id == root.c.id, *below).offset(0))


def _supplies(
    search: Search, shared: Sequence[SharedSupply], anchor_id: ColumnElement[int]
) -> Iterable[Select[int, int]]:
    """Yield the queries of (demand, provider_id) of those that can supply an anchor."""
    for index, needs in enumerate(search.needs):
        able = suppliers(needs)
        yield able.query.with_only_columns(
            literal(index).label("demand"), able.provider_id.label("provider_id")
        ).where(able.root_id == anchor_id)
    if shared:
        columns = zip(*((s.demand, s.provider_id, s.aggregate_id) for s in shared), strict=True)
        supply = (
            func.unnest(*(literal(list(column), ARRAY(Integer)) for column in columns))
            .table_valued("demand", "provider_id", "aggregate_id")
            .render_derived()
        )
        yield (
            select(supply.c.demand, supply.c.provider_id)
            .join(_reached, _reached.c.aggregate_id == supply.c.aggregate_id)
            .where(_reached.c.root_id == anchor_id)
        )
