"""The anchors: root providers around which every demand has a supplier (`spec/candidates.md 3.1`)."""

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import (
    ColumnElement,
    Connection,
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

from placement_svc.db.filters import fits, has_any_trait, in_any_aggregate, is_any
from placement_svc.db.search.requests import Needs, Search
from placement_svc.db.search.sharing import SharedSupply
from placement_svc.db.search.suppliers import suppliers, with_traits
from placement_svc.db.tables import inventories, provider_aggregates, resource_providers

Options = tuple[tuple[int, ...], ...]
"""The ids of the providers that can supply each demand around one anchor."""

roots = resource_providers.alias("roots")


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
    anchors = (
        select(roots.c.id)
        .where(roots.c.parent_id.is_(None), roots.c.id > after, *_conditions(search, shared))
        .order_by(roots.c.id)
        .limit(limit)
        .cte("anchors")
        .prefix_with("MATERIALIZED")
    )
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


def _conditions(search: Search, shared: Sequence[SharedSupply]) -> Iterable[ColumnElement[bool]]:
    yield from with_traits(roots.c.id, search.root_traits)
    if search.root_aggregates.forbidden:
        yield not_(in_any_aggregate(roots.c.id, search.root_aggregates.forbidden))
    for index, needs in enumerate(search.needs):
        reach = {supply.aggregate_id for supply in shared if supply.demand == index}
        yield _here_or_shared(suppliers(needs), reach)
    for number, clause in enumerate(search.clauses):
        reach = {s.aggregate_id for s in shared if number in s.clauses and search.needs[s.demand].unsuffixed}
        yield _here_or_shared(_suppliers_with(search, clause), reach)
    foreign = {supply.demand for supply in shared}
    for demands in search.same_subtrees:
        # A subtree of a sharing provider lies in another tree; the combining sees to that.
        if foreign.isdisjoint(demands):
            yield _covered([search.needs[index] for index in sorted(demands)])


def _here_or_shared(here: Select[int, int], aggregate_ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a root's tree has a row of `here`, or a member in an aggregate."""
    rows = here.subquery()
    own = exists().where(rows.c.root_id == roots.c.id)
    if not aggregate_ids:
        return own
    reached = provider_aggregates.alias()
    return or_(
        own, exists().where(reached.c.root_id == roots.c.id, is_any(reached.c.aggregate_id, aggregate_ids))
    )


def _suppliers_with(search: Search, clause: frozenset[int]) -> Select[int, int]:
    """Return the providers that have a trait of `clause` and stock of the unsuffixed group."""
    stock = inventories.alias()
    demanded = (item for needs in search.needs if needs.unsuffixed for item in needs.resources.items())
    return select(stock.c.provider_id, stock.c.root_id).where(
        or_(*(fits(stock, class_id, amount) for class_id, amount in demanded)),
        has_any_trait(stock.c.provider_id, clause),
    )


def _covered(all_needs: Sequence[Needs]) -> ColumnElement[bool]:
    """Return the condition that one supplier has, in its subtree, suppliers of all these demands.

    OFFSET keeps it a question asked of one root after the other: as a join, PostgreSQL would first
    work out the answer for the whole cloud.
    """
    covers = union_all(*(suppliers(needs) for needs in all_needs)).subquery()
    below = []
    for needs in all_needs:
        rows = suppliers(needs).subquery()
        provider = resource_providers.alias()
        below.append(
            exists()
            .where(rows.c.root_id == covers.c.root_id, provider.c.id == rows.c.provider_id)
            .where(covers.c.provider_id == any_(provider.c.path))
        )
    return exists(select(literal(1)).where(covers.c.root_id == roots.c.id, *below).offset(0))


def _supplies(
    search: Search, shared: Sequence[SharedSupply], anchor_id: ColumnElement[int]
) -> Iterable[Select[int, int]]:
    """Yield the queries of (demand, provider_id) of those that can supply an anchor."""
    for index, needs in enumerate(search.needs):
        rows = suppliers(needs).subquery()
        yield select(literal(index).label("demand"), rows.c.provider_id).where(rows.c.root_id == anchor_id)
    if shared:
        columns = zip(*((s.demand, s.provider_id, s.aggregate_id) for s in shared), strict=True)
        demand, provider_id, aggregate_id = (literal(list(c), ARRAY(Integer)) for c in columns)
        supply = (
            func.unnest(demand, provider_id, aggregate_id)
            .table_valued("demand", "provider_id", "aggregate_id")
            .render_derived()
        )
        reached = provider_aggregates.alias()
        yield (
            select(supply.c.demand, supply.c.provider_id)
            .join(reached, reached.c.aggregate_id == supply.c.aggregate_id)
            .where(reached.c.root_id == anchor_id)
        )
