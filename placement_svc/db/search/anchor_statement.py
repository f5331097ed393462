"""The statement that finds anchors (`placement_svc.db.search.anchors`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import chain
from typing import Any

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    Text,
    bindparam,
    cast,
    func,
    literal_column,
    or_,
    select,
    true,
)
from sqlalchemy.types import Integer

from placement_svc.db.prepared import MAX_TEXT_LENGTH, CompiledQuery, FixedStatement
from placement_svc.db.repeated import RepeatedCache
from placement_svc.db.search import root_scan, selective_lookup
from placement_svc.db.search.criteria import MAX_COMMON_DEMANDS, SearchCriteria, SupplierCriteria
from placement_svc.db.search.criteria_shape import has_only_placeholders, shape_of, with_numbers
from placement_svc.db.search.demand_rows import (
    MAX_SUBQUERY_DEMANDS,
    demand_rows,
    has_all_suppliers,
    supplier_id_lists,
)
from placement_svc.db.search.root_selection import RootSelection, Strategy
from placement_svc.db.search.serving import ServingSet, is_served, serving_sets_of, with_serving_aggregates
from placement_svc.db.search.sharing import SharedSupplies, Supplies
from placement_svc.db.search.suppliers import supplier_lists_query, supplier_query
from placement_svc.db.search.tree_conditions import (
    has_amounts_to_split,
    has_unsuffixed_required,
    sharing_aggregates,
)

STATEMENT_CACHE_SIZE = 128
"""Searches, and shapes of searches, whose statements are cached: schedulers repeat their requests."""

MAX_SINGLE_PARTS = 3
"""Parts whose suppliers are listed only if the parts before have some; each lengthens the statement."""

ROOTS_PER_ROW = 200
"""The examined roots whose anchors share a row: the driver takes three times as long for a row each."""

IDS_COLUMN = 4
"""The column of the ids of anchors in a row of an `AnchorStatement`; the lists of their suppliers follow."""

MAX_TEXTS = 6
"""Texts that are kept of a cached statement, for different limits."""

_MAX_ANCHORS = bindparam("max_anchors", type_=Integer)

_Limits = tuple[int | None, int | None]
"""The values of `max_anchors` and `max_examined`."""


@dataclass(frozen=True)
class AnchorStatement:
    """A statement that finds anchors, and ends when it has found `max_anchors`.

    The statement examines roots in their order: `root_scan` those that are next, `selective_lookup` those
    that PostgreSQL has found by their rarest criterion. Each row has the number of examined roots and the
    position of the last one (0 and null if there are `max_anchors`), and the anchors among up to
    `ROOTS_PER_ROW` roots in their order: the position of the last anchor, the number of roots examined up to
    it, the ids of the anchors as a text, such as `7 9`, and for each distinct supplier criteria the ids of
    the suppliers of each anchor, such as `7 9,10`. If there is no anchor, there is one row without any.
    `id_list_of_demand` holds the index of the supplier criteria of each demand.

    If sharing providers can supply a demand, the lists have the suppliers in the anchor's own tree only, and
    the last column has the aggregates of the `serving_sets` that serve each anchor.
    """

    query: CompiledQuery
    id_list_of_demand: tuple[int, ...]
    has_text: bool
    """Whether one column has all lists of an anchor, as a text for `parse_id_lists`."""
    serving_sets: tuple[ServingSet, ...]
    texts: dict[_Limits, str] = field(default_factory=dict)
    """The texts without parameters, by limits."""
    fixed: dict[_Limits, FixedStatement] = field(default_factory=dict)
    """The statements with parameters, by limits."""

    def with_values(self, values: Mapping[str, Any]) -> str:
        """Return the statement without parameters; keep it for other searches."""
        key = _limits(values)
        text = self.texts.get(key)
        if text is None:
            text = self.query.with_literals(values)
            if len(self.texts) < MAX_TEXTS and len(text) <= MAX_TEXT_LENGTH:
                self.texts[key] = text
        return text

    def with_parameters(self, types: Mapping[str, str], values: Mapping[str, Any]) -> FixedStatement:
        """Return the statement that has only the parameters with these types; keep it for other searches."""
        key = _limits(values)
        fixed = self.fixed.get(key)
        if fixed is None:
            fixed = FixedStatement(self.query, types, values, prepares_at_first_use=False)
            if len(self.fixed) < MAX_TEXTS and len(fixed.text) <= MAX_TEXT_LENGTH:
                self.fixed[key] = fixed
        return fixed

    def with_numbers(self, numbers: Sequence[int]) -> "AnchorStatement":
        """Return the statement of a search whose shape this one has, with its numbers."""
        values = {name: with_numbers(value, numbers) for name, value in self.query.values.items()}
        query = replace(self.query, values=values)
        return replace(self, query=query, texts={}, fixed={})


def _limits(values: Mapping[str, Any]) -> _Limits:
    return values["max_anchors"], values["max_examined"]


def anchor_statement(
    criteria: SearchCriteria, shared_supplies: SharedSupplies, selection: RootSelection
) -> AnchorStatement:
    """Return the statement of a search, cached unless it is large, or hardly any other search has it."""
    if len(criteria.by_demand) > MAX_COMMON_DEMANDS:
        find: Callable[..., AnchorStatement] = _build_statement
    else:
        # An ordered search has the statement for given roots for several batches.
        is_repeated = selection.strategy is Strategy.GIVEN or criteria.is_common
        find = _cached_statement if is_repeated else _find_statement
    return find(criteria, tuple(shared_supplies.items()), selection)


def _find_statement(
    criteria: SearchCriteria, supplies: Supplies, selection: RootSelection
) -> AnchorStatement:
    """Return the statement of a search, if possible from that of its shape."""
    shape = shape_of(criteria, supplies)
    if shape is not None:
        statement = _cached_shape(shape.criteria, shape.supplies, selection, len(shape.numbers))
        if statement is not None:
            return statement.with_numbers(shape.numbers)
    return _build_statement(criteria, supplies, selection)


def _build_shape(
    criteria: SearchCriteria, supplies: Supplies, selection: RootSelection, placeholders: int
) -> AnchorStatement | None:
    """Return the statement of a shape with so many placeholders; None if some cannot be replaced in it."""
    statement = _build_statement(criteria, supplies, selection)
    query = statement.query
    is_replaceable = has_only_placeholders(query.text, query.values.values(), placeholders)
    return statement if is_replaceable else None


def _build_statement(
    criteria: SearchCriteria, supplies: Supplies, selection: RootSelection
) -> AnchorStatement:
    shared_supplies = dict(supplies)
    distinct = tuple(dict.fromkeys(criteria.by_demand))
    serving_sets = serving_sets_of(distinct, shared_supplies)
    demands = None
    if len(distinct) > MAX_SUBQUERY_DEMANDS:
        demands = _demand_rows(distinct, shared_supplies)
    examined_roots = _examined_roots(criteria, shared_supplies, demands, selection)
    roots = with_serving_aggregates(examined_roots, serving_sets) if serving_sets else examined_roots
    # PostgreSQL numbers the roots one by one, until it has found as many anchors as are needed. Nothing sorts
    # the roots again: each condition has an OFFSET, so it cannot become a join, which would change the order.
    numbered = select(roots, func.row_number().over().label("number")).subquery("numbered_roots")
    # `selective_lookup` has these conditions itself.
    adds_conditions = selection.strategy is not Strategy.LOOKUP
    conditions = has_amounts_to_split(numbered, criteria, shared_supplies) if adds_conditions else ()
    if demands is not None:
        if adds_conditions:
            conditions = [
                *has_unsuffixed_required(numbered, criteria, shared_supplies),
                *conditions,
                has_all_suppliers(demands, numbered.c.id),
            ]
        anchors = _select_by_rows(demands, numbered, conditions)
        texts: list[ColumnElement[str]] = [anchors.c.supplier_ids]
    else:
        anchors, id_lists = _select_by_subqueries(
            criteria, shared_supplies, serving_sets, numbered, conditions, checks_required=adds_conditions
        )
        texts = [_comma_separated(anchors.c[name]) for name in id_lists]
    if serving_sets:
        texts.append(_comma_separated(anchors.c.serving_aggregates))
    query = _select_rows(examined_roots, anchors, texts)
    number_of = {each: number for number, each in enumerate(distinct)}
    id_list_of_demand = tuple(map(number_of.__getitem__, criteria.by_demand))
    return AnchorStatement(CompiledQuery.of(query), id_list_of_demand, demands is not None, serving_sets)


def _examined_roots(
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    demands: FromClause | None,
    selection: RootSelection,
) -> FromClause:
    """Return the roots that are examined, in their order."""
    match selection.strategy:
        case Strategy.GIVEN:
            query = root_scan.select_given_roots(criteria, shared_supplies)
        case Strategy.SCAN:
            query = root_scan.select_roots(criteria, shared_supplies, selection)
        case Strategy.LOOKUP:
            query = selective_lookup.select_anchors(criteria, shared_supplies, demands, selection)
    limited = query.limit(bindparam("max_examined", type_=Integer))
    return limited.cte("examined_roots").prefix_with("MATERIALIZED")


def _select_rows(
    examined_roots: FromClause, anchors: FromClause, texts: Iterable[ColumnElement[str]]
) -> Select[Any]:
    """Return the query for the rows of an `AnchorStatement`, which end with these texts of each anchor."""
    # PostgreSQL examines no further roots once it has found as many anchors as are needed.
    anchor_count = select(func.count()).select_from(anchors).scalar_subquery()
    examined = (
        select(
            func.count().label("examined_count"), func.max(examined_roots.c.position).label("last_examined")
        )
        .where(anchor_count.is_distinct_from(_MAX_ANCHORS))
        .subquery()
    )
    separator = literal_column("' '", Text)
    rows = (
        select(
            func.max(anchors.c.position).label("last_anchor"),
            func.max(anchors.c.number).label("examined_to_anchor"),
            *(
                func.string_agg(text, separator).aggregate_order_by(anchors.c.position)
                for text in (cast(anchors.c.id, Text), *texts)
            ),
        )
        .group_by(anchors.c.number.op("/")(literal_column(str(ROOTS_PER_ROW))))
        .subquery("anchors_of_rows")
    )
    return (
        select(examined, rows)
        .select_from(examined.outerjoin(rows, true()))
        .order_by(rows.c.examined_to_anchor)
    )


def _comma_separated(ids: ColumnElement[Any]) -> ColumnElement[str]:
    return func.coalesce(func.array_to_string(ids, literal_column("','")), literal_column("''"))


def _demand_rows(distinct: Sequence[SupplierCriteria], shared_supplies: SharedSupplies) -> FromClause:
    """Return the different demands as a table, with the aggregates through which they are shared."""
    aggregate_ids = {
        number: sharing_aggregates(shared_supplies, each)
        for number, each in enumerate(distinct)
        if each in shared_supplies
    }
    return demand_rows(dict(enumerate(distinct)), aggregate_ids)


def _select_by_subqueries(
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    serving_sets: Sequence[ServingSet],
    roots: FromClause,
    conditions: Iterable[ColumnElement[bool]],
    *,
    checks_required: bool,
) -> tuple[FromClause, list[str]]:
    """Return the query for anchors, and the names of its columns of supplier ids: one for each criteria.

    All criteria of the unsuffixed group that no sharing provider matches are one part, and each of the others
    is a part. The parts with filters come first, as these most likely have no supplier; among them those with
    the fewest resource classes, which cost least. Up to `MAX_SINGLE_PARTS` of them are computed one after the
    other, until a list is empty; the others at once. An empty list suffices if a sharing provider serves the
    root with the demand. With `checks_required`, suppliers in the lists have the traits that the unsuffixed
    group requires, which takes half the time of finding them anew.
    """
    number_of = {each: number for number, each in enumerate(dict.fromkeys(criteria.by_demand))}
    names = {each: f"supplier_ids_{number}" for each, number in number_of.items()}
    unsuffixed = [each for each in names if each.is_unsuffixed and each not in shared_supplies]
    parts = [[each] for each in names if each not in unsuffixed]
    if unsuffixed:
        parts.append(unsuffixed)
    parts.sort(key=lambda part: (not part[0].has_filters, len(part[0].resources)))
    single_count = min(sum(part[0].has_filters for part in parts), MAX_SINGLE_PARTS)
    single = [[part] for part in parts[:single_count]]
    query = select(roots).where(*conditions)
    for together in filter(None, [*single, parts[single_count:]]):
        roots = query.subquery()
        joined: FromClause = roots
        id_lists: list[ColumnElement[Any]] = []
        for part in together:
            lists: Iterable[ColumnElement[Any]]
            if part is unsuffixed:
                in_tree = supplier_lists_query(unsuffixed, roots.c.id).subquery().lateral()
                joined = joined.join(in_tree, true())
                lists = in_tree.c
            else:
                lists = [func.array(supplier_query(part[0]).ids_in_tree(roots.c.id))]
            id_lists += [ids.label(names[each]) for each, ids in zip(part, lists, strict=True)]
        # The OFFSET makes PostgreSQL compute each list once, root after root.
        with_ids = select(roots, *id_lists).select_from(joined).offset(0).subquery()
        query = select(with_ids)
        for each in chain.from_iterable(together):
            has_supplier = func.cardinality(with_ids.c[names[each]]) > 0
            if each in shared_supplies:
                has_supplier = or_(has_supplier, is_served(with_ids, serving_sets, number_of[each]))
            query = query.where(has_supplier)
    if checks_required and criteria.rules.unsuffixed_required:
        found = query.offset(0).subquery()
        id_arrays: Iterator[ColumnElement[Any]] = (
            found.c[names[each]] for each in names if each.is_unsuffixed
        )
        all_ids = reduce(lambda some, others: func.array_cat(some, others), id_arrays)
        query = select(found).where(
            *has_unsuffixed_required(found, criteria, shared_supplies, supplier_ids=all_ids)
        )
    anchors = query.limit(_MAX_ANCHORS).cte("anchors").prefix_with("MATERIALIZED")
    return anchors, list(names.values())


def _select_by_rows(
    demands: FromClause, roots: FromClause, conditions: Iterable[ColumnElement[bool]]
) -> FromClause:
    """Return the query for anchors with the column `supplier_ids`, the lists of all demands as one text."""
    found = select(roots).where(*conditions).offset(0).limit(_MAX_ANCHORS).subquery("found")
    lists = supplier_id_lists(demands, found.c.id)
    anchors = select(found, lists.label("supplier_ids"))
    return anchors.cte("anchors").prefix_with("MATERIALIZED")


# Building a statement costs more than running it.
_cached_statement = RepeatedCache(_find_statement, STATEMENT_CACHE_SIZE)
_cached_shape = lru_cache(STATEMENT_CACHE_SIZE)(_build_shape)
