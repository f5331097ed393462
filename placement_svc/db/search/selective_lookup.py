"""The second strategy to find anchors: let PostgreSQL start from the rarest criterion.

It reads the index on (resource_class_id, max_allocatable), that of a trait, or that of an aggregate. It suits
requests that few trees can satisfy, and searches all roots that are left.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    and_,
    any_,
    exists,
    func,
    literal,
    or_,
    select,
    true,
    union,
    union_all,
)

from placement_svc.db.search.combination_conditions import (
    MAX_FILTERED_JOINS,
    has_suppliers_for_all,
    has_tree_for_all,
)
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.demand_rows import has_all_suppliers
from placement_svc.db.search.root_selection import RootSelection
from placement_svc.db.search.root_sets import SetSize, roots_in_sets
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.db.search.suppliers import count_joins, supplier_query
from placement_svc.db.search.tree_conditions import (
    has_amounts_to_split,
    has_supplier,
    has_unsuffixed_required,
    is_after_cursor,
    is_allowed_root,
    or_is_served,
    position_column,
    roots,
    sharing_aggregates,
)
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import resource_providers

MAX_JOINED_DEMANDS = 5
MAX_JOINED_CONDITIONS = 8
"""The demands that may become joins, and their resource classes and filters together.

The planning time grows faster than the number of joins: with 20 of them, it took 1 s and 560 MB.
"""

_descendant = shared(resource_providers.alias("descendant"))


def select_anchors(
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    demands: FromClause | None,
    selection: RootSelection,
) -> Select[Any]:
    """Return the query for the anchors of a lookup in their order.

    If there are too many demands for a subquery each, `demands` is a table of them. If an amount is rare,
    `uses_amounts` changes nothing.

    The conditions that most likely exclude most roots come first; PostgreSQL turns them into joins. The other
    conditions are checked root by root, for `joined_roots` only. Its OFFSET, an optimization fence, enforces
    that: otherwise PostgreSQL would plan every order of the joins, and compute subtrees for the whole cloud.

    Without `checks_rules`, no combination rule excludes the first anchor, apart from the required traits of
    the unsuffixed group: whether there is any tells why a search has no candidate
    (`docs/spec/extensions.md 3.7`).
    """
    rare_first = sorted(dict.fromkeys(criteria.by_demand), key=lambda each: not each.is_rare)
    joined_count = _joined_count(rare_first)
    checks_rules = selection.checks_rules
    joined = _select_joined_roots(criteria, shared_supplies, rare_first[:joined_count], selection)
    joined_roots = joined.offset(0).subquery("joined_roots")
    if demands is None:
        has_others = [
            has_supplier(
                joined_roots,
                supplier_query(each).with_optimization_fence(),
                sharing_aggregates(shared_supplies, each),
            )
            for each in rare_first[joined_count:]
        ]
    else:
        has_others = [has_all_suppliers(demands, joined_roots.c.id)]
    remaining_conditions = [
        *has_others,
        *has_amounts_to_split(joined_roots, criteria, shared_supplies),
        *has_unsuffixed_required(joined_roots, criteria, shared_supplies),
    ]
    if checks_rules:
        remaining_conditions += _same_subtree(joined_roots, criteria, shared_supplies)
        remaining_conditions += has_suppliers_for_all(joined_roots, criteria, shared_supplies)
    # The order of `joined_roots` is kept, as these conditions cannot become joins.
    anchors = select(joined_roots).where(*remaining_conditions) if remaining_conditions else joined
    if checks_rules or not criteria.rules.same_subtree:
        return anchors
    numbered = anchors.add_columns(func.row_number().over().label("number")).subquery("numbered_anchors")
    rules = _same_subtree(numbered, criteria, shared_supplies)
    return select(numbered.c.id, numbered.c.position).where(or_(numbered.c.number == 1, and_(true(), *rules)))


def _select_joined_roots(
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    joined_criteria: Sequence[SupplierCriteria],
    selection: RootSelection,
) -> Select[Any]:
    """Return the query for the roots in their order that meet the conditions that become joins.

    Their trees have suppliers for `joined_criteria`.
    """
    position = position_column(selection.randomized)
    is_rare = criteria.has_rare_criterion(shared_supplies.keys())
    in_sets = roots_in_sets(
        criteria,
        shared_supplies,
        SetSize.SMALL if is_rare else SetSize.ANY,
        continues=selection.continues and not selection.randomized,
        uses_amounts=selection.uses_amounts and not is_rare,
    )
    tree_conditions = has_tree_for_all(criteria, shared_supplies) if selection.checks_rules else ()
    join_count = sum(each.join_count for each in joined_criteria)
    # Each joins at most two tables.
    tree_condition_count = max(0, MAX_JOINED_CONDITIONS - join_count) // 2
    return (
        select(roots.c.id, position)
        .select_from(roots if in_sets is None else roots.join(in_sets, in_sets.c.root_id == roots.c.id))
        .where(
            *is_allowed_root(criteria, shared_supplies),
            *((is_after_cursor(position),) if selection.continues else ()),
            *(
                has_supplier(roots, supplier_query(each), sharing_aggregates(shared_supplies, each))
                for each in joined_criteria
            ),
            *islice(tree_conditions, tree_condition_count),
        )
        .order_by(position)
    )


def _joined_count(rare_first: Sequence[SupplierCriteria]) -> int:
    """Return how many of the demands become joins: the first ones, up to both maximums, but at least one."""
    joins = accumulate(each.join_count for each in rare_first[:MAX_JOINED_DEMANDS])
    return max(1, sum(total <= MAX_JOINED_CONDITIONS for total in joins))


def _same_subtree(
    root: FromClause, criteria: SearchCriteria, shared_supplies: SharedSupplies
) -> Iterable[ColumnElement[bool]]:
    """Yield the condition that one tree has a subtree for each `same_subtree`.

    This is the root's own tree, or that of sharing providers that serve it, if these can supply all demands
    of the set. It is an extra filter, which excludes roots early.
    `placement_svc.domain.combining.same_subtree` checks every one while combining, also those that
    are left out here because the filter would have more than `MAX_FILTERED_JOINS`.
    """
    filtered = 0
    for demands in criteria.rules.same_subtree:
        all_criteria = list(dict.fromkeys(criteria.by_demand[demand] for demand in sorted(demands)))
        joins = count_joins(all_criteria)
        if filtered + joins <= MAX_FILTERED_JOINS:
            filtered += joins
            aggregate_ids = _aggregates_serving_all(all_criteria, shared_supplies)
            has_subtree = _has_subtree(root, all_criteria, criteria.rules.least_suppliers(demands))
            yield or_is_served(has_subtree, root, aggregate_ids)


def _aggregates_serving_all(
    all_criteria: Collection[SupplierCriteria], shared_supplies: SharedSupplies
) -> set[int]:
    """Return the aggregates of the sharing providers in trees that have one for each of these demands."""
    supplies = [shared_supplies.get(criteria, ()) for criteria in all_criteria]
    root_ids = set.intersection(*({each.root_id for each in of_demand} for of_demand in supplies))
    serving = (each for of_demand in supplies for each in of_demand if each.root_id in root_ids)
    return {aggregate_id for each in serving for aggregate_id in each.aggregate_ids}


def _has_subtree(
    root: FromClause, all_criteria: Sequence[SupplierCriteria], least_suppliers: int
) -> ColumnElement[bool]:
    """Return the condition that one supplier has suppliers of all these demands at or below itself.

    At or below it are at least `least_suppliers` different ones.
    """
    queries = [supplier_query(criteria) for criteria in all_criteria]
    ancestor = union_all(*(each.query for each in queries)).subquery("ancestor")
    descendants = [
        each.query.join(_descendant, _descendant.c.id == each.provider_id)
        .where(each.root_id == ancestor.c.root_id, ancestor.c.provider_id == any_(_descendant.c.path))
        .correlate(ancestor)
        for each in queries
    ]
    conditions: list[ColumnElement[bool]] = [each.exists() for each in descendants]
    if least_suppliers > 1:
        ids = union(*(each.with_only_columns(_descendant.c.id) for each in descendants)).subquery()
        conditions.append(select(func.count(ids.c.id)).scalar_subquery() >= least_suppliers)
    return exists(select(literal(1)).where(ancestor.c.root_id == root.c.id, *conditions).offset(0))
