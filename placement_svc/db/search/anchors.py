"""The anchors: root providers around which every demand has a supplier (`spec/candidates.md 3.1`)."""

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    and_,
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

from placement_svc.db.filters import has_traits, in_any_aggregate, is_any
from placement_svc.db.search.requests import Needs, Search
from placement_svc.db.search.sharing import SharedSupply
from placement_svc.db.search.suppliers import Suppliers, suppliers, suppliers_with_traits
from placement_svc.db.tables import provider_aggregates, resource_providers

JOINS = 5
"""How many demands are joined; the time to plan a query grows faster than the number of its joins."""

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
    of what is demanded where that is rarer: an index on (root_id, resource_class_id) serves the one,
    on (resource_class_id, room) the other.
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
    """Return the query of all anchors after an id, in the order of ids.

    What most likely rules out most roots is asked first, as joins. The rest is asked only of roots
    that have passed these, one after the other, as OFFSET makes PostgreSQL do: of many joins it
    would have to plan every order, and subtrees it would work out for the whole cloud. An ORDER BY
    of its own would make it look at all roots; they come in their order anyway.
    """
    needs = sorted(dict.fromkeys(search.needs), key=_commonness)
    foremost = (
        select(roots.c.id)
        .where(
            roots.c.parent_id.is_(None),
            roots.c.id > after,
            *has_traits(roots, search.root_traits.required, search.root_traits.forbidden),
            *(_in_reach(roots, suppliers(each), _reach(search, shared, each)) for each in needs[:JOINS]),
            *_rare_clause_met(search, shared),
        )
        .order_by(roots.c.id)
    )
    if search.root_aggregates:
        foremost = foremost.where(not_(in_any_aggregate(roots.c.id, search.root_aggregates)))
    passed = foremost.offset(0).subquery("passed")
    rest = [
        *(
            _in_reach(passed, suppliers(each).unjoined(), _reach(search, shared, each))
            for each in needs[JOINS:]
        ),
        *_clauses_met(passed, search, shared),
        *_subtrees_covered(passed, search, shared),
    ]
    return select(passed.c.id).where(*rest) if rest else foremost


def _commonness(needs: Needs) -> tuple[bool, bool]:
    """Return a sort key that puts those first that fewer providers may satisfy."""
    return (needs.tree is None and not needs.selective, not needs.traits and not needs.aggregates)


def _reach(search: Search, shared: Iterable[SharedSupply], needs: Needs) -> set[int]:
    """Return the aggregates through which sharing providers supply a demand."""
    return {supply.aggregate_id for supply in shared if search.needs[supply.demand] == needs}


def _in_reach(root: FromClause, able: Suppliers, aggregate_ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that a root's tree has one of those able, or a member in an aggregate."""
    here = able.query.where(able.root_id == root.c.id).exists()
    if not aggregate_ids:
        return here
    linked = exists().where(_reached.c.root_id == root.c.id, is_any(_reached.c.aggregate_id, aggregate_ids))
    return or_(here, linked)


def _rare_clause_met(search: Search, shared: Sequence[SharedSupply]) -> Iterable[ColumnElement[bool]]:
    """Yield the condition of one clause that few providers meet, as a join to start from."""
    for number, clause in enumerate(search.clauses):
        if clause.isdisjoint(search.common_traits):
            able = suppliers_with_traits(_unsuffixed(search), [clause])
            yield _in_reach(roots, able, _clause_reach(search, shared, number))
            return


def _clauses_met(
    root: FromClause, search: Search, shared: Sequence[SharedSupply]
) -> Iterable[ColumnElement[bool]]:
    """Yield the condition that the suppliers of the unsuffixed group have its required traits.

    Mostly one of them has them all, and nothing more needs to be looked at.
    """
    unsuffixed = _unsuffixed(search)
    each_met = [
        _in_reach(
            root,
            suppliers_with_traits(unsuffixed, [clause]).unjoined(),
            _clause_reach(search, shared, number),
        )
        for number, clause in enumerate(search.clauses)
    ]
    if len(each_met) < 2:
        yield from each_met
        return
    all_met = _in_reach(root, suppliers_with_traits(unsuffixed, search.clauses).unjoined(), ())
    yield or_(all_met, and_(*each_met))


def _unsuffixed(search: Search) -> list[Needs]:
    return [needs for needs in search.needs if needs.unsuffixed]


def _clause_reach(search: Search, shared: Iterable[SharedSupply], number: int) -> set[int]:
    """Return the aggregates through which sharing providers of the unsuffixed group meet a clause."""
    return {
        supply.aggregate_id
        for supply in shared
        if number in supply.clauses and search.needs[supply.demand].unsuffixed
    }


def _subtrees_covered(
    root: FromClause, search: Search, shared: Sequence[SharedSupply]
) -> Iterable[ColumnElement[bool]]:
    foreign = {supply.demand for supply in shared}
    for demands in search.same_subtrees:
        # A subtree of a sharing provider lies in another tree; the combining sees to that.
        if foreign.isdisjoint(demands):
            yield _covered(root, [search.needs[index] for index in sorted(demands)])


def _covered(root: FromClause, all_needs: Sequence[Needs]) -> ColumnElement[bool]:
    """Return the condition that one supplier has, in its subtree, suppliers of all these demands."""
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
