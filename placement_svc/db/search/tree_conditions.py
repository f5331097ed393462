"""SQL conditions on a root provider and its tree, which both strategies of `anchors` use."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Label,
    and_,
    any_,
    bindparam,
    case,
    exists,
    false,
    func,
    literal,
    not_,
    or_,
    select,
)
from sqlalchemy.types import String

from placement_svc.db.filters import (
    MAX_SINGLE_CONDITIONS,
    has_traits,
    in_any_aggregate,
    in_each_aggregate_set,
    is_any,
)
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.sharing import SharedSupplies, aggregates_serving_required
from placement_svc.db.search.suppliers import SupplierQuery, unsuffixed_supplier_query
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import inventories, provider_aggregates, resource_providers
from placement_svc.domain.inventory import MAX_CAPACITY

roots = shared(resource_providers.alias("roots"))
tree_aggregates = shared(provider_aggregates.alias("tree_aggregates"))
"""The aggregates of all providers of a tree."""
_inventory = shared(inventories.alias("inventory_in_tree"))
_supplier = shared(resource_providers.alias("supplier_with_traits"))

at_or_after_start = roots.c.uuid >= bindparam("start", type_=String)


def position_column(randomized: bool) -> Label[Any]:
    """Return the position of a root in the order of the search: its id, or a text if `randomized`.

    That text sorts by uuid, from the parameter `start` on; behind the last uuid the first ones follow.
    """
    if not randomized:
        return roots.c.id.label("position")
    return func.concat(case((at_or_after_start, "0"), else_="1"), roots.c.uuid).label("position")


def is_after_cursor(position: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the condition that a search, which is continued, has not yet reached a root."""
    return position > bindparam("after", type_=position.type)


def is_allowed_root(
    criteria: SearchCriteria, shared_supplies: SharedSupplies
) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions on an anchor: it is a root, and meets the filters on the root itself."""
    yield roots.c.parent_id.is_(None)
    yield from meets_root_filters(criteria, shared_supplies)


def meets_root_filters(
    criteria: SearchCriteria, shared_supplies: SharedSupplies
) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions on the root itself: its traits, its own aggregates, and its tree."""
    yield from has_traits(roots, criteria.root_required.any_of, criteria.root_required.forbidden)
    if criteria.root_member_of.any_of:
        yield in_each_aggregate_set(roots.c.id, criteria.root_member_of.any_of)
    if forbidden := criteria.unsuffixed_forbidden_aggregates | criteria.root_member_of.forbidden:
        yield not_(in_any_aggregate(roots.c.id, forbidden))
    if criteria.unsuffixed_not_in_tree:
        yield not_(is_any(roots.c.id, criteria.unsuffixed_not_in_tree))
    for supplier_criteria in dict.fromkeys(criteria.by_demand):
        if supplier_criteria.in_tree is not None and supplier_criteria not in shared_supplies:
            yield roots.c.id == supplier_criteria.in_tree


def has_supplier(
    root: FromClause, matching: SupplierQuery, aggregate_ids: Collection[int]
) -> ColumnElement[bool]:
    """Return the condition that a root's tree has a provider in `matching`, or a sharing provider serves it.

    A sharing provider serves it if the tree has a member in one of the aggregates `aggregate_ids`.
    """
    return or_is_served(matching.query.where(matching.root_id == root.c.id).exists(), root, aggregate_ids)


def or_is_served(
    condition: ColumnElement[bool], root: FromClause, aggregate_ids: Collection[int]
) -> ColumnElement[bool]:
    """Return that a condition is met, or that a tree has a member in one of these aggregates, if any."""
    if not aggregate_ids:
        return condition
    is_served = exists().where(
        tree_aggregates.c.root_id == root.c.id, is_any(tree_aggregates.c.aggregate_id, aggregate_ids)
    )
    return or_(condition, is_served)


def sharing_aggregates(shared_supplies: SharedSupplies, supplier_criteria: SupplierCriteria) -> set[int]:
    """Return the aggregates through which sharing providers supply a demand."""
    return {
        aggregate_id
        for supply in shared_supplies.get(supplier_criteria, ())
        for aggregate_id in supply.aggregate_ids
    }


def has_unsuffixed_required(
    root: FromClause,
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    supplier_ids: ColumnElement[Any] | None = None,
) -> Iterable[ColumnElement[bool]]:
    """Yield the condition that the suppliers of the unsuffixed group can have its required traits.

    A single supplier has them all in most trees, so this is checked first. For other trees, an extra filter
    checks the first `MAX_SINGLE_CONDITIONS` required sets, each by itself. `supplier_ids` is an array of the
    suppliers of the group in the tree, None if they are not known yet.
    """
    required = criteria.rules.unsuffixed_required

    def has_supplier_with(sets: Sequence[frozenset[int]]) -> ColumnElement[bool]:
        if supplier_ids is not None:
            return exists().where(_supplier.c.id == any_(supplier_ids), *has_traits(_supplier, sets))
        matching = unsuffixed_supplier_query(unsuffixed_criteria(criteria), sets).with_optimization_fence()
        return matching.query.where(matching.root_id == root.c.id).exists()

    has_each = []
    for any_of in required[:MAX_SINGLE_CONDITIONS]:
        aggregate_ids = aggregates_serving_required(shared_supplies, any_of)
        has_each.append(or_is_served(has_supplier_with([any_of]), root, aggregate_ids))
    if len(has_each) < 2:
        yield from has_each
    else:
        yield or_(has_supplier_with(required), and_(*has_each))


def has_amounts_to_split(
    root: FromClause, criteria: SearchCriteria, shared_supplies: SharedSupplies
) -> Iterable[ColumnElement[bool]]:
    """Yield the condition that a tree has enough of each class that may be split, or is served with it.

    It is an extra filter: the sum counts all providers of the tree, and ignores their units.
    """
    for demand, class_id, amount in criteria.split_amounts:
        if amount > MAX_CAPACITY:
            yield false()
            continue
        is_enough = allocatable_in_tree(root, class_id) >= literal(amount, BigInteger)
        aggregate_ids = sharing_aggregates(shared_supplies, criteria.by_demand[demand])
        yield or_is_served(is_enough, root, aggregate_ids)


def allocatable_in_tree(root: FromClause, class_id: int) -> ColumnElement[int]:
    """Return the sum of what each inventory of a class in the tree can give one allocation."""
    query = select(func.sum(_inventory.c.max_allocatable)).where(
        _inventory.c.root_id == root.c.id,
        _inventory.c.resource_class_id == class_id,
        _inventory.c.max_allocatable > 0,
    )
    return query.scalar_subquery()


def unsuffixed_criteria(criteria: SearchCriteria) -> list[SupplierCriteria]:
    """Return the criteria of the demands of the unsuffixed group."""
    return [supplier_criteria for supplier_criteria in criteria.by_demand if supplier_criteria.is_unsuffixed]
