"""Anchors: root providers around which every demand has a supplier (`docs/spec/candidates.md 3.1`)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, literal, select, true, union
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Integer

from placement_svc.db.engine import driver_rows
from placement_svc.db.search import root_scan, selective_lookup
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.sharing import SharedSupply
from placement_svc.db.search.suppliers import suppliers
from placement_svc.db.search.tree_conditions import tree_aggregates

STATEMENT_CACHE_SIZE = 128
"""Searches whose statements are cached: schedulers repeat the requests for the same flavors."""

MAX_CACHED_DEMANDS = 16
"""Demands of a search whose statement is cached: larger statements would need too much memory."""


class Anchor(NamedTuple):
    """A root provider, and for each demand the ascending ids of the providers that can supply it."""

    id: int
    suppliers: tuple[tuple[int, ...], ...]


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
    shared: Sequence[SharedSupply],
    cursor: ScanCursor,
    *,
    max_anchors: int | None,
    roots_to_scan: int | None = None,
) -> tuple[list[Anchor], ScanCursor]:
    """Return the next anchors behind `cursor`, at most `max_anchors`, and the cursor behind them.

    An anchor meets all conditions on single suppliers. Conditions on several suppliers (summed amounts,
    `group_policy`, in most cases `same_subtree`) are left to `placement_svc.domain.constraints`.

    One statement. It scans at most `roots_to_scan` roots in order (`root_scan`); if that is None, it finds
    all anchors that are left (`selective_lookup`).
    """
    build = _cached_statement if len(criteria.suppliers) <= MAX_CACHED_DEMANDS else _build_statement
    scans = roots_to_scan is not None
    statement = build(criteria, tuple(shared), scans=scans, randomized=cursor.start is not None)
    batch_limit = roots_to_scan if scans else max_anchors
    values = {
        "start": cursor.start,
        "after": cursor.after,
        "max_anchors": max_anchors,
        "batch_limit": batch_limit,
    }
    rows = driver_rows(connection, statement.query, values)
    anchors = [
        Anchor(root_id, tuple([tuple(sorted(id_lists[index])) for index in statement.id_list_of_demand]))
        for _, _, _, root_id, *id_lists in rows
        if root_id is not None
    ]
    batch_size, last_of_batch, last_of_anchors, *_ = rows[-1]
    if scans:
        cursor = replace(cursor, roots_scanned=cursor.roots_scanned + batch_size)
    if len(anchors) == max_anchors:
        return anchors, replace(cursor, after=last_of_anchors)
    if batch_size == batch_limit:
        return anchors, replace(cursor, after=last_of_batch)
    return anchors, replace(cursor, exhausted=True)


class _Statement(NamedTuple):
    """A statement that finds anchors.

    Each row has the size of the batch, the position of its last root, the position and the id of an anchor,
    and the lists of the ids of its suppliers: one list for each distinct supplier criteria. If there is no
    anchor, there is one row without one. `id_list_of_demand` holds the index of the list for each demand.
    """

    query: Select[Any]
    id_list_of_demand: tuple[int, ...]


def _build_statement(
    criteria: SearchCriteria, shared: tuple[SharedSupply, ...], *, scans: bool, randomized: bool
) -> _Statement:
    distinct = tuple(dict.fromkeys(criteria.suppliers))
    select_batch = root_scan.select_roots if scans else selective_lookup.select_anchors
    batch = (
        select_batch(criteria, shared, randomized)
        .limit(bindparam("batch_limit", type_=Integer))
        .cte("batch")
        .prefix_with("MATERIALIZED")
    )
    id_lists = [
        func.array(_supplier_ids(criteria, shared, each, batch.c.id)).label(f"suppliers_{number}")
        for number, each in enumerate(distinct)
    ]
    conditions = root_scan.conditions_on_batch(batch, criteria, shared) if scans else ()
    # The OFFSET makes PostgreSQL compute each list once, root after root.
    with_suppliers = select(batch, *id_lists).where(*conditions).offset(0).subquery("with_suppliers")
    anchors = (
        select(with_suppliers)
        .where(*(func.cardinality(with_suppliers.c[each.name]) > 0 for each in id_lists))
        .limit(bindparam("max_anchors", type_=Integer))
        .subquery("anchors")
    )
    batch_state = select(
        func.count().label("batch_size"), func.max(batch.c.position).label("last_of_batch")
    ).subquery()
    query = (
        select(batch_state, anchors.c.position, anchors.c.id, *(anchors.c[each.name] for each in id_lists))
        .select_from(batch_state.outerjoin(anchors, true()))
        .order_by(anchors.c.position)
    )
    return _Statement(query, tuple(distinct.index(each) for each in criteria.suppliers))


# Building a statement costs more than running it.
_cached_statement = lru_cache(STATEMENT_CACHE_SIZE)(_build_statement)


def _supplier_ids(
    criteria: SearchCriteria,
    shared: Iterable[SharedSupply],
    supplier_criteria: SupplierCriteria,
    anchor_id: ColumnElement[int],
) -> Any:
    """Return the query for the ids of the providers that can supply a demand around an anchor."""
    matching = suppliers(supplier_criteria)
    in_tree = matching.query.with_only_columns(matching.provider_id).where(matching.root_id == anchor_id)
    supplies = sorted(
        {(s.provider_id, s.aggregate_id) for s in shared if criteria.suppliers[s.demand] == supplier_criteria}
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
