"""The anchors: root providers around which every demand has a supplier (`docs/spec/candidates.md 3.1`)."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Label,
    Select,
    and_,
    any_,
    bindparam,
    case,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    union,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Integer, String

from placement_svc.db.engine import driver_rows
from placement_svc.db.filters import has_traits, in_any_aggregate, is_any
from placement_svc.db.search.requests import Needs, Search
from placement_svc.db.search.sharing import SharedSupply
from placement_svc.db.search.suppliers import Suppliers, suppliers, suppliers_with_traits
from placement_svc.db.tables import provider_aggregates, resource_providers

KEPT = 128
"""Searches whose statements are kept: schedulers ask for the same flavors all day long."""

MOST_KEPT_NEEDS = 16
"""Demands of a search that is kept; the statements of larger ones would take up all memory."""

JOINS = 5
"""How many demands are joined; the time to plan a query grows faster than the number of its joins."""

_POSITION, _ID, _OPTIONS = 2, 3, 4
"""The places of columns in a row: behind the state of the walk comes the anchor, with its options."""

roots = resource_providers.alias("roots")
_below = resource_providers.alias("below")
_reached = provider_aggregates.alias("reached")
_start = bindparam("start", type_=String)
_from_start = roots.c.uuid > _start


class Anchor(NamedTuple):
    """A root around which every demand has its options: the ids of who can supply it, in order."""

    id: int
    options: tuple[tuple[int, ...], ...]


@dataclass
class Walk:
    """Where a search stands that goes from root to root.

    It goes by id; with a `start` by uuid from there on, and behind the last one on from the first. The
    *position* of a root tells its place in that order. All up to the position `after` have been looked
    at, so far `steps` roots one by one, and all there are once it has `ended`.
    """

    start: str | None = None
    after: int | str | None = None
    steps: int = 0
    ended: bool = False


def find_anchors(
    connection: Connection,
    search: Search,
    shared: Sequence[SharedSupply],
    walk: Walk,
    limit: int | None,
    steps: int | None = None,
) -> list[Anchor]:
    """Return the next anchors, at most `limit`, in the order of the walk, and move it on.

    An anchor here meets all that is asked of single providers; what is asked of them together (sums,
    isolation, and mostly subtrees) is left to the combining.

    One statement, of two kinds. With `steps` the roots are looked at one after the other, at most so
    many: that costs a few index entries for each demand, on (root_id, resource_class_id), however
    large the cloud is. In one of 10,000 hosts with 7 providers, 1000 anchors with 3 demands took 11 ms
    and 10 anchors 1 ms. Without `steps` PostgreSQL looks for all anchors that are left, and starts from
    the rarest of what is demanded: by the index on (resource_class_id, max_allocatable), of a trait, or of an
    aggregate.
    """
    make = _kept_statement if len(search.needs) <= MOST_KEPT_NEEDS else _statement
    needs, statement = make(search, tuple(shared), walking=steps is not None, shuffled=walk.start is not None)
    places = [_OPTIONS + needs.index(each) for each in search.needs]
    most = limit if steps is None else steps
    values = {"start": walk.start, "after": walk.after, "limit": limit, "most": most}
    rows = driver_rows(connection, statement, values)
    anchors = [
        Anchor(row[_ID], tuple([tuple(sorted(row[place])) for place in places]))
        for row in rows
        if row[_ID] is not None
    ]
    looked_at, last, *_ = rows[0]
    if steps is not None:
        walk.steps += looked_at
    if len(anchors) == limit:
        walk.after = rows[-1][_POSITION]
    elif looked_at == most:
        walk.after = last
    else:
        walk.ended = True
    return anchors


def _statement(
    search: Search, shared: tuple[SharedSupply, ...], *, walking: bool, shuffled: bool
) -> tuple[tuple[Needs, ...], Select[Any]]:
    """Return a statement and the distinct needs for whose suppliers it has a column, its last ones."""
    needs = tuple(dict.fromkeys(search.needs))
    query = (_walked if walking else _found)(search, shared, shuffled)
    looked_at = query.limit(bindparam("most", type_=Integer)).cte("looked_at").prefix_with("MATERIALIZED")
    columns = [
        func.array(_options(search, shared, each, looked_at.c.id)).label(f"options_{number}")
        for number, each in enumerate(needs)
    ]
    conditions = _clauses_met(looked_at, search, shared) if walking else ()
    # The OFFSET lets PostgreSQL work out each list once, and a root after the other.
    listed = select(looked_at, *columns).where(*conditions).offset(0).subquery("listed")
    met = (
        select(listed)
        .where(*(func.cardinality(listed.c[column.name]) > 0 for column in columns))
        .limit(bindparam("limit", type_=Integer))
        .subquery("met")
    )
    state = select(func.count().label("steps"), func.max(looked_at.c.position).label("last")).subquery()
    return needs, select(
        state, met.c.position, met.c.id, *(met.c[column.name] for column in columns)
    ).select_from(state.outerjoin(met, true())).order_by(met.c.position)


# To build one costs more than to run it.
_kept_statement = lru_cache(KEPT)(_statement)


def _options(
    search: Search, shared: Iterable[SharedSupply], needs: Needs, anchor_id: ColumnElement[int]
) -> Any:
    """Return the query of the ids of those that can supply a demand around an anchor."""
    able = suppliers(needs)
    own = able.query.with_only_columns(able.provider_id).where(able.root_id == anchor_id)
    foreign = sorted({(s.provider_id, s.aggregate_id) for s in shared if search.needs[s.demand] == needs})
    if not foreign:
        return own.scalar_subquery()
    supply = (
        func.unnest(*(literal(list(ids), ARRAY(Integer)) for ids in zip(*foreign, strict=True)))
        .table_valued("provider_id", "aggregate_id")
        .render_derived()
    )
    linked = (
        select(supply.c.provider_id)
        .join(_reached, _reached.c.aggregate_id == supply.c.aggregate_id)
        .where(_reached.c.root_id == anchor_id)
    )
    return union(own, linked).scalar_subquery()


def _of_anchors(search: Search, shared: Sequence[SharedSupply]) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions on the root itself."""
    yield roots.c.parent_id.is_(None)
    yield from has_traits(roots, search.root_required.any_of, search.root_required.forbidden)
    if search.root_aggregates:
        yield not_(in_any_aggregate(roots.c.id, search.root_aggregates))
    for needs in search.needs:
        if needs.tree is not None and not _reach(search, shared, needs):
            yield roots.c.id == needs.tree


def _position(shuffled: bool) -> Label[Any]:
    """Return a root's place in the order of the walk, a number or a text."""
    if not shuffled:
        return roots.c.id.label("position")
    return func.concat(case((_from_start, "0"), else_="1"), roots.c.uuid).label("position")


def _is_next(position: Label[Any]) -> ColumnElement[bool]:
    """Return the condition that a root has not been looked at."""
    after = bindparam("after", type_=position.type)
    return or_(after.is_(None), position > after)


def _walked(search: Search, shared: Sequence[SharedSupply], shuffled: bool) -> Select[Any]:
    """Return the query of the next roots, whatever they have, by an index on their id or their uuid."""
    position = _position(shuffled)
    query = select(roots.c.id, position).where(*_of_anchors(search, shared), _is_next(position))
    if not shuffled:
        return query.order_by(roots.c.id)
    most = bindparam("most", type_=Integer)
    parts = (
        query.where(part).order_by(roots.c.uuid).limit(most) for part in (_from_start, not_(_from_start))
    )
    return select(union_all(*(part.subquery().select() for part in parts)).subquery())


def _found(search: Search, shared: Sequence[SharedSupply], shuffled: bool) -> Select[Any]:
    """Return the query of all anchors that are left, in the order of the walk.

    What most likely rules out most roots is asked first, as joins. The rest is asked only of roots
    that have passed these, one after the other, as OFFSET makes PostgreSQL do: of many joins it
    would have to plan every order, and subtrees it would work out for the whole cloud.
    """
    needs = sorted(dict.fromkeys(search.needs), key=lambda each: not each.scarce)
    position = _position(shuffled)
    foremost = (
        select(roots.c.id, position)
        .where(
            *_of_anchors(search, shared),
            _is_next(position),
            *(_in_reach(roots, suppliers(each), _reach(search, shared, each)) for each in needs[:JOINS]),
            *_rare_clause_met(search, shared),
        )
        .order_by(position)
    )
    passed = foremost.offset(0).subquery("passed")
    rest = [
        *(
            _in_reach(passed, suppliers(each).unjoined(), _reach(search, shared, each))
            for each in needs[JOINS:]
        ),
        *_clauses_met(passed, search, shared),
        *_subtrees_covered(passed, search, shared),
    ]
    return select(passed).where(*rest) if rest else foremost


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
    for number, clause in enumerate(search.terms.clauses):
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
        for number, clause in enumerate(search.terms.clauses)
    ]
    if len(each_met) < 2:
        yield from each_met
        return
    all_met = _in_reach(root, suppliers_with_traits(unsuffixed, search.terms.clauses).unjoined(), ())
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
    for demands in search.terms.same_subtree:
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
