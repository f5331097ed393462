"""SQL conditions on a root provider and its tree, which both strategies of `anchors` use."""

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Label, and_, bindparam, case, exists, func, not_, or_
from sqlalchemy.types import String

from placement_svc.db.filters import has_traits, in_any_aggregate, is_any
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.db.search.suppliers import SupplierQuery, unsuffixed_supplier_query
from placement_svc.db.tables import provider_aggregates, resource_providers

roots = resource_providers.alias("roots")
tree_aggregates = provider_aggregates.alias("tree_aggregates")
"""The aggregates of all providers of a tree."""

at_or_after_start = roots.c.uuid > bindparam("start", type_=String)


def position_column(randomized: bool) -> Label[Any]:
    """Return the position of a root in the order of the search: its id, or a text if `randomized`.

    That text sorts by uuid, from the parameter `start` on; behind the last uuid the first ones follow.
    """
    if not randomized:
        return roots.c.id.label("position")
    return func.concat(case((at_or_after_start, "0"), else_="1"), roots.c.uuid).label("position")


def is_after_cursor(position: Label[Any]) -> ColumnElement[bool]:
    """Return the condition that the search has not yet reached a root."""
    after = bindparam("after", type_=position.type)
    return or_(after.is_(None), position > after)


def is_allowed_root(
    criteria: SearchCriteria, shared_supplies: SharedSupplies
) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions on the root itself: `root_required`, forbidden aggregates, `in_tree`."""
    yield roots.c.parent_id.is_(None)
    yield from has_traits(roots, criteria.root_required.any_of, criteria.root_required.forbidden)
    if criteria.root_member_of_forbidden:
        yield not_(in_any_aggregate(roots.c.id, criteria.root_member_of_forbidden))
    for supplier_criteria in dict.fromkeys(criteria.by_demand):
        if supplier_criteria.in_tree is not None and supplier_criteria not in shared_supplies:
            yield roots.c.id == supplier_criteria.in_tree


def has_supplier(
    root: FromClause, matching: SupplierQuery, aggregate_ids: Collection[int]
) -> ColumnElement[bool]:
    """Return the condition that a root's tree has a provider in `matching`, or a sharing provider serves it.

    A sharing provider serves it if the tree has a member in one of the aggregates `aggregate_ids`.
    """
    in_tree = matching.query.where(matching.root_id == root.c.id).exists()
    if not aggregate_ids:
        return in_tree
    served = exists().where(
        tree_aggregates.c.root_id == root.c.id, is_any(tree_aggregates.c.aggregate_id, aggregate_ids)
    )
    return or_(in_tree, served)


def sharing_aggregates(shared_supplies: SharedSupplies, supplier_criteria: SupplierCriteria) -> set[int]:
    """Return the aggregates through which sharing providers supply a demand."""
    return {supply.aggregate_id for supply in shared_supplies.get(supplier_criteria, ())}


def has_unsuffixed_required(
    root: FromClause, criteria: SearchCriteria, shared_supplies: SharedSupplies
) -> Iterable[ColumnElement[bool]]:
    """Yield the condition that the suppliers of the unsuffixed group can have its required traits.

    A single supplier has them all in most trees, so this is checked first.
    """
    required = criteria.rules.unsuffixed_required
    has_each = [
        has_supplier_with_any_of(root, criteria, shared_supplies, number, optimization_fence=True)
        for number in range(len(required))
    ]
    if len(has_each) < 2:
        yield from has_each
        return
    matching = unsuffixed_supplier_query(unsuffixed_criteria(criteria), required).with_optimization_fence()
    yield or_(has_supplier(root, matching, ()), and_(*has_each))


def has_supplier_with_any_of(
    root: FromClause,
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    number: int,
    *,
    optimization_fence: bool,
) -> ColumnElement[bool]:
    """Return the condition that a supplier of the unsuffixed group has a trait of required set `number`.

    With `optimization_fence`, PostgreSQL checks the condition root by root; otherwise it can make it a join.
    """
    any_of = criteria.rules.unsuffixed_required[number]
    matching = unsuffixed_supplier_query(unsuffixed_criteria(criteria), [any_of])
    aggregate_ids = {
        supply.aggregate_id
        for supplier_criteria, supplies in shared_supplies.items()
        if supplier_criteria.is_unsuffixed
        for supply in supplies
        if number in supply.satisfied_required
    }
    return has_supplier(
        root, matching.with_optimization_fence() if optimization_fence else matching, aggregate_ids
    )


def unsuffixed_criteria(criteria: SearchCriteria) -> list[SupplierCriteria]:
    """Return the criteria of the demands of the unsuffixed group."""
    return [supplier_criteria for supplier_criteria in criteria.by_demand if supplier_criteria.is_unsuffixed]
