"""SQL conditions on a tree that follow from the combination rules: extra filters of later lookups.

They exclude trees without a candidate early: those with fewer suppliers than isolated groups, and those that
have less of a class than several groups request together. `placement_svc.domain.combining.constraints` checks
these rules while combining. A sharing provider of another tree can supply some demands; these count nowhere
here.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, FromClause, Select, func, literal, select, union, union_all

from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.db.search.suppliers import count_joins, supplier_query
from placement_svc.db.search.tree_conditions import allocatable_in_tree, roots
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import inventories, resource_providers

MAX_FILTERED_JOINS = 16
"""The number of joins up to which combination rules are extra filters, also `same_subtree`.

The demands are in one to three subqueries each, and planning time grows with the joins.
"""

MAX_TOTALS = 2
"""The number of classes whose total amounts are conditions: PostgreSQL plans each as a join."""

_child = shared(resource_providers.alias("child"))
_inventory = shared(inventories.alias("inventory_for_all"))


def can_exclude_trees(criteria: SearchCriteria, shared_supplies: SharedSupplies) -> bool:
    """Return whether a tree with a supplier for each demand can fail these conditions, or `same_subtree`."""
    conditions = chain(
        criteria.rules.same_subtree,
        _different_demands(criteria, shared_supplies),
        _total_amounts(criteria, shared_supplies),
    )
    return any(True for _ in conditions)


def has_tree_for_all(
    criteria: SearchCriteria, shared_supplies: SharedSupplies
) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions that a root has children, or that one inventory of its tree suffices for all.

    PostgreSQL can start from the few roots that have, as in a cloud of hosts without children.
    """
    has_child: Select[Any] = select(_child.c.root_id).where(_child.c.parent_id.is_not(None))
    if any(_different_demands(criteria, shared_supplies)):
        yield roots.c.id.in_(has_child)
    for class_id, amount in _total_amounts(criteria, shared_supplies):
        suffices = select(_inventory.c.root_id).where(
            _inventory.c.resource_class_id == class_id,
            _inventory.c.max_allocatable >= literal(amount, BigInteger),
        )
        yield roots.c.id.in_(union(has_child, suffices))


def has_suppliers_for_all(
    root: FromClause, criteria: SearchCriteria, shared_supplies: SharedSupplies
) -> Iterable[ColumnElement[bool]]:
    """Yield the conditions that the tree of a root has enough suppliers, and enough of each class."""
    if count_joins(dict.fromkeys(criteria.by_demand)) > MAX_FILTERED_JOINS:
        return
    for demands, count in _different_demands(criteria, shared_supplies):
        all_criteria = dict.fromkeys(criteria.by_demand[demand] for demand in sorted(demands))
        ids = union_all(
            *(
                each.query.with_only_columns(each.provider_id.label("id"))
                .where(each.root_id == root.c.id)
                .correlate(root)
                for each in map(supplier_query, all_criteria)
            )
        ).subquery()
        yield select(func.count(ids.c.id.distinct())).scalar_subquery() >= count
    for class_id, amount in _total_amounts(criteria, shared_supplies):
        yield allocatable_in_tree(root, class_id) >= literal(amount, BigInteger)


def _different_demands(
    criteria: SearchCriteria, shared_supplies: SharedSupplies
) -> Iterator[tuple[Collection[int], int]]:
    """Yield sets of demands, and how many different providers must supply each set, if more than one."""
    rules = criteria.rules
    own = _own_demands(criteria, shared_supplies)
    suffixed = {demand for demand in own if rules.suffixed[demand]}
    count = rules.least_suppliers(suffixed)
    if count > 1:
        yield suffixed, count
    for exclusion in rules.subtree_exclusions:
        inside, outside = own & exclusion.demands, own & exclusion.excluded
        if inside and outside:
            yield inside | outside, 2


def _total_amounts(criteria: SearchCriteria, shared_supplies: SharedSupplies) -> Iterator[tuple[int, int]]:
    """Yield the ids of some classes that several demands request, and what these request together."""
    own = _own_demands(criteria, shared_supplies)
    shared_classes = (
        (class_id, [dict(criteria.by_demand[demand].resources)[class_id] for demand in demands & own])
        for class_id, demands in criteria.summed_demands
    )
    totals = ((class_id, sum(amounts)) for class_id, amounts in shared_classes if len(amounts) > 1)
    yield from islice(totals, MAX_TOTALS)


def _own_demands(criteria: SearchCriteria, shared_supplies: SharedSupplies) -> frozenset[int]:
    """Return the demands for resources that only providers of the anchor's own tree can supply."""
    return frozenset(
        demand
        for demand, each in enumerate(criteria.by_demand)
        if each.resources and each not in shared_supplies
    )
