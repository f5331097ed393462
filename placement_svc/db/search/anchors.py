"""Anchors: root providers around which every demand has a supplier (`docs/spec/candidates.md 3.1`)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, literal, select, true, union
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Integer

from placement_svc.db.engine import each_driver_row
from placement_svc.db.search import root_scan, selective_lookup
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.sharing import SharedSupplies, SharedSupply
from placement_svc.db.search.suppliers import supplier_query
from placement_svc.db.search.tree_conditions import tree_aggregates
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.memory import MemoryBudget

STATEMENT_CACHE_SIZE = 128
"""Searches whose statements are cached: schedulers repeat the requests for the same flavors."""

MAX_CACHED_DEMANDS = 16
"""Demands of a search whose statement is cached: larger statements would need too much memory."""


ANCHOR_SIZE = 200
"""Bytes of memory that an anchor needs besides the ids of the suppliers, approximately."""

ID_SIZE = 48
"""Bytes of memory that the id of a supplier needs, approximately."""


class Anchor(NamedTuple):
    """A root provider, and for each demand the ascending ids of the providers that can supply it."""

    id: int
    supplier_ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ScanCursor:
    """The position of a search in the sequence of all root providers.

    The roots are in the order of their ids. With `start`, they are in the order of their uuids: from `start`
    on, and behind the last uuid from the first. `after` is the position (a column of the statements) of the
    last root that was examined (None: no root was). `exhausted` means that no roots are left.
    """

    start: str | None = None
    after: int | str | None = None
    exhausted: bool = False
    roots_scanned: int = 0
    """How many roots the strategy `root_scan` has examined."""


def find_anchors(
    connection: Connection,
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    cursor: ScanCursor,
    *,
    max_anchors: int | None,
    roots_to_scan: int | None = None,
    deadline: Deadline,
    memory: MemoryBudget,
) -> tuple[list[Anchor], ScanCursor]:
    """Return the next anchors behind `cursor`, at most `max_anchors`, and the cursor behind them.

    An anchor meets all conditions on single suppliers. The conditions on several suppliers (summed amounts,
    `group_policy`, `same_subtree`, traits of the unsuffixed group) are always checked by
    `placement_svc.domain.constraints`. The SQL for `same_subtree` in `selective_lookup`, and that for the
    traits of the unsuffixed group, are extra filters: they only exclude roots that cannot yield a candidate.

    One statement. It scans at most `roots_to_scan` roots in order (`root_scan`); if that is None, it
    searches all roots that are left (`selective_lookup`).
    """
    build = _cached_statement if len(criteria.by_demand) <= MAX_CACHED_DEMANDS else _build_statement
    scans = roots_to_scan is not None
    statement = build(
        criteria, tuple(shared_supplies.items()), scans=scans, randomized=cursor.start is not None
    )
    max_examined = roots_to_scan if scans else max_anchors
    values = {
        "start": cursor.start,
        "after": cursor.after,
        "max_anchors": max_anchors,
        "max_examined": max_examined,
    }
    anchors: list[Anchor] = []
    for row in each_driver_row(connection, statement.query, values):
        examined_count, last_examined, last_anchor, root_id, *id_lists = row
        if root_id is not None:
            deadline.check()
            memory.reserve(ANCHOR_SIZE + ID_SIZE * sum(map(len, id_lists)) + 8 * len(criteria.by_demand))
            anchors.append(_anchor(root_id, id_lists, statement.id_list_of_demand))
    if scans:
        cursor = replace(cursor, roots_scanned=cursor.roots_scanned + examined_count)
    if len(anchors) == max_anchors:
        return anchors, replace(cursor, after=last_anchor)
    if examined_count == max_examined:
        return anchors, replace(cursor, after=last_examined)
    return anchors, replace(cursor, exhausted=True)


def _anchor(root_id: int, id_lists: Iterable[list[int]], id_list_of_demand: Iterable[int]) -> Anchor:
    # Demands with the same criteria share one tuple.
    supplier_ids = [tuple(sorted(ids)) for ids in id_lists]
    return Anchor(root_id, tuple([supplier_ids[index] for index in id_list_of_demand]))


class _Statement(NamedTuple):
    """A statement that finds anchors.

    The statement examines roots in their order: `root_scan` those that are next, `selective_lookup` those
    that PostgreSQL has found by their rarest criterion. Each row has the number of examined roots, the
    position of the last one, the position and the id of an anchor, and the lists of the ids of its
    suppliers: one list for each distinct supplier criteria. If there is no anchor, there is one row without
    one. `id_list_of_demand` holds the index of the list for each demand.
    """

    query: Select[Any]
    id_list_of_demand: tuple[int, ...]


def _build_statement(
    criteria: SearchCriteria,
    supplies: tuple[tuple[SupplierCriteria, tuple[SharedSupply, ...]], ...],
    *,
    scans: bool,
    randomized: bool,
) -> _Statement:
    shared_supplies = dict(supplies)
    distinct = tuple(dict.fromkeys(criteria.by_demand))
    number_of = {each: number for number, each in enumerate(distinct)}
    select_examined = root_scan.select_roots if scans else selective_lookup.select_anchors
    examined_roots = (
        select_examined(criteria, shared_supplies, randomized)
        .limit(bindparam("max_examined", type_=Integer))
        .cte("examined_roots")
        .prefix_with("MATERIALIZED")
    )
    id_lists = [
        func.array(_supplier_ids_query(shared_supplies, each, examined_roots.c.id)).label(
            f"supplier_ids_{number}"
        )
        for number, each in enumerate(distinct)
    ]
    conditions = root_scan.conditions_on_roots(examined_roots, criteria, shared_supplies) if scans else ()
    # The OFFSET makes PostgreSQL compute each list once, root after root.
    with_supplier_ids = (
        select(examined_roots, *id_lists).where(*conditions).offset(0).subquery("with_supplier_ids")
    )
    anchors = (
        select(with_supplier_ids)
        .where(*(func.cardinality(with_supplier_ids.c[each.name]) > 0 for each in id_lists))
        .limit(bindparam("max_anchors", type_=Integer))
        .subquery("anchors")
    )
    examined = select(
        func.count().label("examined_count"), func.max(examined_roots.c.position).label("last_examined")
    ).subquery()
    query = (
        select(examined, anchors.c.position, anchors.c.id, *(anchors.c[each.name] for each in id_lists))
        .select_from(examined.outerjoin(anchors, true()))
        .order_by(anchors.c.position)
    )
    return _Statement(query, tuple(map(number_of.__getitem__, criteria.by_demand)))


# Building a statement costs more than running it.
_cached_statement = lru_cache(STATEMENT_CACHE_SIZE)(_build_statement)


def _supplier_ids_query(
    shared_supplies: SharedSupplies,
    supplier_criteria: SupplierCriteria,
    anchor_id: ColumnElement[int],
) -> Any:
    """Return the query for the ids of the providers that can supply a demand around an anchor."""
    matching = supplier_query(supplier_criteria)
    in_tree = matching.query.with_only_columns(matching.provider_id).where(matching.root_id == anchor_id)
    supplies = sorted(
        {(supply.provider_id, supply.aggregate_id) for supply in shared_supplies.get(supplier_criteria, ())}
    )
    if not supplies:
        return in_tree.scalar_subquery()
    supply = (
        func.unnest(*(literal(list(ids), ARRAY(Integer)) for ids in zip(*supplies, strict=True)))
        .table_valued("provider_id", "aggregate_id")
        .render_derived()
    )
    sharing = (
        select(supply.c.provider_id)
        .join(tree_aggregates, tree_aggregates.c.aggregate_id == supply.c.aggregate_id)
        .where(tree_aggregates.c.root_id == anchor_id)
    )
    return union(in_tree, sharing).scalar_subquery()
