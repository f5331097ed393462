"""The free amounts of providers that could supply a request if nothing were used."""

from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from typing import Any

from sqlalchemy import ColumnElement, exists, false, func, not_, select, true

from placement_svc.db.explanation.patterns import (
    inventory_row,
    number_conditions,
    provider_row,
    read_pattern,
    select_free,
    select_patterns,
)
from placement_svc.db.filters import free_amount, in_any_aggregate, is_any
from placement_svc.db.search.criteria import SearchCriteria, SupplierCriteria
from placement_svc.db.search.ignored_consumers import InventoryReader
from placement_svc.db.search.suppliers import can_be_subqueries, unused_supplier_query
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import provider_aggregates
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.explanation.filters import (
    AggregateCondition,
    AmountCondition,
    Condition,
    FilterCode,
    TraitCondition,
    TreeCondition,
)
from placement_svc.domain.explanation.supplier_tests import Bits, DemandTest

_own = shared(provider_aggregates.alias("own_aggregate"))
_served = shared(provider_aggregates.alias("served_aggregate"))


def free_amounts(
    reader: InventoryReader, criteria: SearchCriteria, removed_root_ids: Collection[int], deadline: Deadline
) -> dict[int, int]:
    """Return the free amounts by class id of the providers that pass every filter but `free` of a group.

    For the unsuffixed group, only the filters on the class are tested, and not its required traits. Each
    provider counts once. One statement: it reads all providers, and their inventories of these classes.
    """
    if _has_simple_sums(criteria):
        return _sum_by_demand(reader, criteria, removed_root_ids)
    distinct = dict.fromkeys(criteria.by_demand)
    # Providers of other trees must have the whole amount.
    alone = {each: each.whole or each for each in distinct}
    every = [*distinct, *alone.values()]
    bits = number_conditions(condition for each in every for condition in _conditions(each))
    tests = [(each, _demand_test(each, bits), _demand_test(alone[each], bits)) for each in distinct]
    class_ids = {class_id for each in distinct for class_id, _ in each.resources}
    totals = dict.fromkeys(class_ids, 0)
    query = _select_free(criteria, bits, class_ids, removed_root_ids)
    for root_pattern, pattern, shares, class_id, amount in deadline.checked(reader.execute(query)):
        root, own = read_pattern(root_pattern), read_pattern(pattern)
        if any(
            test.supplies(root, own, is_shared=False)
            or (shares and of_other.supplies(of_other.needed_of_root, own, is_shared=True))
            for each, test, of_other in tests
            if class_id in dict(each.resources)
        ):
            totals[class_id] += int(amount)
    return totals


def _has_simple_sums(criteria: SearchCriteria) -> bool:
    """Return whether no inventory counts for two demands or because its provider shares."""
    distinct = dict.fromkeys(criteria.by_demand)
    class_ids = [class_id for each in distinct for class_id, _ in each.resources]
    return (
        criteria.sharing_trait_id is None
        and not criteria.rules.splittable
        and len(class_ids) == len(set(class_ids))
        and can_be_subqueries(distinct)
    )


def _sum_by_demand(
    reader: InventoryReader, criteria: SearchCriteria, removed_root_ids: Collection[int]
) -> dict[int, int]:
    """Return what `free_amounts` does, as one sum for each class."""
    distinct = dict.fromkeys(criteria.by_demand)
    tables = [_select_sums(each, removed_root_ids) for each in distinct]
    joined = reduce(lambda left, right: left.join(right, true()), tables)
    query = select(*(column for table in tables for column in table.c)).select_from(joined)
    [row] = reader.execute(query)
    class_ids = [class_id for each in distinct for class_id, _ in each.resources]
    return {class_id: int(total or 0) for class_id, total in zip(class_ids, row, strict=True)}


def _select_sums(criteria: SupplierCriteria, removed_root_ids: Collection[int]) -> Any:
    """Return one row with the free amounts of each class of a demand."""
    matching = unused_supplier_query(criteria)
    sums = [
        func.sum(func.greatest(free_amount(inventory), 0)).label(f"free_{number}")
        for number, inventory in enumerate(matching.inventories)
    ]
    query = matching.query.with_only_columns(*sums)
    if removed_root_ids:
        query = query.where(not_(is_any(matching.root_id, removed_root_ids)))
    if criteria.is_unsuffixed and criteria.member_of.forbidden:
        query = query.where(not_(in_any_aggregate(matching.root_id, criteria.member_of.forbidden)))
    return query.subquery()


def _select_free(
    criteria: SearchCriteria, bits: Bits, class_ids: Collection[int], removed_root_ids: Collection[int]
) -> Any:
    """Return the query for the free amounts, by patterns of the root and the provider, and by class.

    The third column tells whether the provider also serves a tree whose root the unsuffixed group allows.
    """
    patterns = (
        select_patterns(bits, not_(is_any(inventory_row.c.root_id, removed_root_ids)))
        .add_columns(_serves_allowed_root(criteria, removed_root_ids).label("shares"))
        .where(not_(is_any(provider_row.c.root_id, removed_root_ids)))
    )
    return select_free(patterns, class_ids, ["shares"])


def _serves_allowed_root(criteria: SearchCriteria, removed_root_ids: Collection[int]) -> ColumnElement[bool]:
    """Return whether a provider shares with a tree that is not excluded, and not in a forbidden aggregate.

    Only such conditions of the unsuffixed group make a difference: without them, a provider that another
    tree can use could supply its own tree as well.
    """
    forbidden, excluded = criteria.unsuffixed_forbidden_aggregates, criteria.unsuffixed_not_in_tree
    if criteria.sharing_trait_id is None or not (forbidden or excluded):
        return false()
    serves = exists().where(
        _own.c.provider_id == provider_row.c.id,
        _served.c.aggregate_id == _own.c.aggregate_id,
        not_(in_any_aggregate(_served.c.root_id, forbidden)),
        not_(is_any(_served.c.root_id, excluded.union(removed_root_ids))),
    )
    return provider_row.c.trait_ids.contains([criteria.sharing_trait_id]) & serves


def _conditions(criteria: SupplierCriteria) -> list[Condition]:
    """Return the conditions of all filters but `free`."""
    return [*_on_provider(criteria), *_member_of(criteria), *_on_provider_and_root(criteria)]


def _on_provider(criteria: SupplierCriteria) -> Iterator[Condition]:
    for class_id, amount in criteria.resources:
        for code in (FilterCode.UNIT, FilterCode.CAPACITY):
            yield AmountCondition(code, class_id, amount)
    for ids in criteria.required.any_of:
        yield TraitCondition(ids)
    if criteria.required.forbidden:
        yield TraitCondition(criteria.required.forbidden, forbidden=True)


def _member_of(criteria: SupplierCriteria) -> Iterator[Condition]:
    for ids in criteria.member_of.any_of:
        yield AggregateCondition(ids)


def _on_provider_and_root(criteria: SupplierCriteria) -> Iterator[Condition]:
    """Yield the conditions that, in the unsuffixed group, the root must meet too."""
    if criteria.in_tree is not None or criteria.not_in_tree:
        yield TreeCondition(criteria.in_tree, criteria.not_in_tree)
    if criteria.member_of.forbidden:
        yield AggregateCondition(criteria.member_of.forbidden, forbidden=True)


def _demand_test(criteria: SupplierCriteria, bits: Bits) -> DemandTest:
    def mask(conditions: Iterable[Condition]) -> int:
        return sum({1 << bits[condition] for condition in conditions})

    if not criteria.is_unsuffixed:
        return DemandTest(needed=mask(_conditions(criteria)))
    of_both = mask(_on_provider_and_root(criteria))
    return DemandTest(
        needed=mask(_on_provider(criteria)) | of_both,
        needed_of_root=of_both,
        own_or_root=mask(_member_of(criteria)),
        allows_shared=criteria.allows_sharing_providers,
    )
