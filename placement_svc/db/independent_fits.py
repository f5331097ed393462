"""How often a request can be claimed whose demands never affect each other: one statement.

The statement reads the inventories of the whole cloud and aggregates them by root. That is cheaper than to
find the suppliers root by root, unless the roots are few.
"""

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    and_,
    false,
    func,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by

from placement_svc.db.arrays import join_texts
from placement_svc.db.connections.engine import each_driver_row
from placement_svc.db.filters import MAX_SINGLE_CONDITIONS, free_amount, has_traits
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.root_sets import has_small_set
from placement_svc.db.search.suppliers import can_be_subqueries, supplier_query
from placement_svc.db.search.tree_conditions import is_allowed_root, roots
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import resource_providers
from placement_svc.domain.fits import OTHER, CountedRoots, FitsRequest, RootFits, requested_amounts
from placement_svc.domain.simulated_claims.independent_claims import are_independent, independent_claims

ROOT_SIZE = 1000
"""Bytes of memory that a root needs, approximately."""

_Row = tuple[int, str, str, tuple[str, ...]]
"""A root: its id, uuid and name, and the quotients of the suppliers of each demand as a text."""

_provider = shared(resource_providers.alias("counted_supplier"))


def has_independent_demands(criteria: SearchCriteria) -> bool:
    """Return whether `count_independent` can count the claims, and is the cheaper way.

    No sharing provider may be able to supply a demand, and no consumer may be ignored.
    """
    return (
        are_independent(criteria.rules)
        and len(criteria.rules.unsuffixed_required) <= MAX_SINGLE_CONDITIONS
        and can_be_subqueries(criteria.by_demand)
        and not has_few_roots(criteria)
    )


def has_few_roots(criteria: SearchCriteria) -> bool:
    """Return whether an index leaves so few roots that they are best examined one by one."""
    return (
        any(each.in_tree is not None for each in criteria.by_demand)
        or criteria.has_rare_criterion(())
        or has_small_set(criteria, {})
    )


def count_independent(
    connection: Connection,
    criteria: SearchCriteria,
    fits_request: FitsRequest,
    removed_root_ids: Collection[int],
    options: SearchOptions,
) -> CountedRoots | None:
    """Return the claims at all roots, as if the trees of `removed_root_ids` did not exist.

    Return None if the choice of suppliers affects at some root whether the unsuffixed group has its traits.
    """
    rows = _read_roots(connection, criteria, removed_root_ids, options)
    if rows is None:
        return None
    # The maximum ends the count at the last roots by uuid.
    rows.sort(key=itemgetter(1))
    classes = list(requested_amounts(fits_request.request))
    known: dict[tuple[str, ...], tuple[int, str]] = {}
    remaining = fits_request.max_claims
    found: dict[int, RootFits] = {}
    for id_, uuid, name, texts in options.deadline.checked(rows):
        if texts not in known:
            claims = independent_claims(criteria.rules.demands, list(map(_parse, texts)))
            known[texts] = claims.count, next(each for each in classes if each in claims.exhausted)
        count, binding = known[texts]
        if count > remaining:
            if remaining:
                found[id_] = RootFits(uuid, name, remaining, OTHER)
            return CountedRoots(found, is_exact=False)
        found[id_] = RootFits(uuid, name, count, binding)
        remaining -= count
    return CountedRoots(found, is_exact=True)


def _read_roots(
    connection: Connection,
    criteria: SearchCriteria,
    removed_root_ids: Collection[int],
    options: SearchOptions,
) -> list[_Row] | None:
    """Return the roots with claims, except `removed_root_ids`.

    Return None if it depends on the suppliers whether the unsuffixed group has its traits at one of them.
    """
    reserved = options.memory.reserved
    rows: list[_Row] = []
    read = each_driver_row(connection, _select_roots(criteria), {})
    for id_, uuid, name, is_independent, *texts in options.deadline.checked(read):
        if id_ in removed_root_ids:
            continue
        if not is_independent:
            options.memory.release(options.memory.reserved - reserved)
            return None
        options.memory.reserve(ROOT_SIZE + sum(map(len, texts)))
        rows.append((id_, uuid, name, tuple(texts)))
    return rows


def _select_roots(criteria: SearchCriteria) -> Select[Any]:
    """Return the query for the roots at which each demand has a supplier, with one text for each demand.

    The fourth column tells whether the unsuffixed group has its traits with all suppliers of the root: for
    each set of traits, all suppliers of some demand have one of them.
    """
    required = criteria.rules.unsuffixed_required
    tables = [
        _select_quotients(each, required).subquery(f"demand_{n}") for n, each in enumerate(criteria.by_demand)
    ]
    unsuffixed = [table for table, each in zip(tables, criteria.by_demand, strict=True) if each.is_unsuffixed]

    def some_demand(prefix: str) -> list[ColumnElement[bool]]:
        """Return for each required set, whether the column of that name is true for a demand."""
        return [
            or_(false(), *(table.c[f"{prefix}_{number}"] for table in unsuffixed))
            for number in range(len(required))
        ]

    has_all = and_(true(), *some_demand("all_have")).label("is_independent")
    query = select(roots.c.id, roots.c.uuid, roots.c.name, has_all, *(table.c.quotients for table in tables))
    for table in tables:
        query = query.join(table, table.c.root_id == roots.c.id)
    return query.where(*is_allowed_root(criteria, {}), *some_demand("any_has"))


def _select_quotients(criteria: SupplierCriteria, required: Sequence[Collection[int]]) -> Select[Any]:
    """Return the query for the quotients of the suppliers of a demand, by root.

    The text has the suppliers ordered by uuid and separated by commas, and their quotients by spaces. The
    order makes a difference only if there are several classes. In the unsuffixed group, there are two more
    columns for each of the `required` sets of traits: whether any supplier has one, and whether all have one.
    """
    matching = supplier_query(criteria)
    quotients = [
        free_amount(inventory) // literal(amount, BigInteger)
        for inventory, (_, amount) in zip(matching.inventories, criteria.resources, strict=True)
    ]
    has_each = [each for ids in required if criteria.is_unsuffixed for each in has_traits(_provider, [ids])]
    query = matching.query
    separator: Any = literal(",")
    if len(quotients) > 1 or has_each:
        query = query.join(_provider, _provider.c.id == matching.provider_id)
    if len(quotients) > 1:
        separator = aggregate_order_by(separator, _provider.c.uuid)
    columns = [
        matching.root_id,
        func.string_agg(join_texts(" ", quotients), separator).label("quotients"),
        *(func.bool_or(has).label(f"any_has_{number}") for number, has in enumerate(has_each)),
        *(func.bool_and(has).label(f"all_have_{number}") for number, has in enumerate(has_each)),
    ]
    # The OFFSET keeps PostgreSQL from aggregating after the join of all demands.
    return query.with_only_columns(*columns).group_by(matching.root_id).offset(0)


def _parse(text: str) -> list[list[int]]:
    """Return the quotients of the suppliers in a text."""
    return [list(map(int, quotients.split(" "))) for quotients in text.split(",")]
