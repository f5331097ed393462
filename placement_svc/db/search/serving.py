"""Sharing providers in the statements that find anchors.

A statement returns the aggregates through which sharing providers serve a root, not the ids of these
providers: with 3,000 hosts and 1,500 sharing providers in one aggregate, these would be 4,500,000 ids.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, FromClause, column, func, literal, select
from sqlalchemy.types import Integer

from placement_svc.db.filters import is_any
from placement_svc.db.search.criteria import SupplierCriteria
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.db.search.tree_conditions import tree_aggregates
from placement_svc.domain.execution.memory import MemoryBudget

SUPPLIER_ID_SIZE = 48
"""Bytes of memory that the id of a supplier needs, approximately."""


@dataclass(frozen=True, slots=True)
class ServingSet:
    """The sharing providers of one aggregate, or of several that have the same ones.

    `supplier_ids` has those that can supply a demand, in ascending order, by the demand's index among the
    distinct criteria. A demand that they cannot supply is absent.
    """

    aggregate_ids: Sequence[int]
    supplier_ids: Mapping[int, tuple[int, ...]]


def serving_sets_of(
    distinct: Iterable[SupplierCriteria], shared_supplies: SharedSupplies
) -> tuple[ServingSet, ...]:
    """Return the sets of sharing providers that can supply these criteria."""
    by_aggregate: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, criteria in enumerate(distinct):
        for supply in shared_supplies.get(criteria, ()):
            for aggregate_id in supply.aggregate_ids:
                by_aggregate[aggregate_id][index].append(supply.provider_id)
    aggregates_by_suppliers: dict[tuple[tuple[int, tuple[int, ...]], ...], list[int]] = {}
    for aggregate_id, lists in sorted(by_aggregate.items()):
        suppliers = tuple((index, tuple(sorted(ids))) for index, ids in lists.items())
        aggregates_by_suppliers.setdefault(suppliers, []).append(aggregate_id)
    return tuple(ServingSet(ids, dict(suppliers)) for suppliers, ids in aggregates_by_suppliers.items())


def with_serving_aggregates(examined_roots: FromClause, serving_sets: Sequence[ServingSet]) -> FromClause:
    """Return the examined roots with the column `serving_aggregates`: those that serve the tree of each.

    PostgreSQL computes it root by root, and for no further root once it has found as many anchors as are
    needed: 2,000 of 4,100 with limit 1000, where each second root is a host (9 ms instead of 21). The OFFSET
    keeps it from looking up each of thousands of aggregates in the index of each tree.
    """
    of_tree = (
        select(tree_aggregates.c.aggregate_id)
        .where(tree_aggregates.c.root_id == examined_roots.c.id)
        .correlate(examined_roots)
        .offset(0)
        .subquery("of_tree")
    )
    serving = (
        select(of_tree.c.aggregate_id)
        .where(is_any(of_tree.c.aggregate_id, _aggregate_ids(serving_sets)))
        .distinct()
    )
    aggregates = func.array(serving.scalar_subquery()).label("serving_aggregates")
    return select(examined_roots.c.id, examined_roots.c.position, aggregates).subquery("served_roots")


def served_root_ids(connection: Connection, aggregate_ids: Collection[int]) -> Sequence[int]:
    """Return the roots of the trees that the sharing providers of some aggregates serve."""
    is_member = is_any(tree_aggregates.c.aggregate_id, aggregate_ids)
    return connection.scalars(select(tree_aggregates.c.root_id).where(is_member).distinct()).all()


def is_served(root: FromClause, serving_sets: Sequence[ServingSet], demand: int) -> ColumnElement[bool]:
    """Return the condition that one of the sets that serve a root can supply the demand with this index."""
    able = [each for each in serving_sets if demand in each.supplier_ids]
    if len(able) == len(serving_sets):
        return func.cardinality(root.c.serving_aggregates) > 0
    unnested = func.unnest(root.c.serving_aggregates).table_valued(column("aggregate_id", Integer))
    serving = unnested.render_derived(name="serving")
    return select(literal(1)).where(is_any(serving.c.aggregate_id, _aggregate_ids(able))).exists()


def _aggregate_ids(serving_sets: Iterable[ServingSet]) -> set[int]:
    return {id_ for each in serving_sets for id_ in each.aggregate_ids}


class SharingSuppliers:
    """The sharing providers that can supply the demands around the anchors of one statement.

    Anchors that the same sets serve share the lists.
    """

    def __init__(self, serving_sets: Sequence[ServingSet], memory: MemoryBudget) -> None:
        self._sets = serving_sets
        self._number_of = {
            id_: number for number, each in enumerate(serving_sets) for id_ in each.aggregate_ids
        }
        self._memory = memory
        self._by_numbers: dict[tuple[int, ...], Mapping[int, tuple[int, ...]]] = {}

    def lists(self, aggregate_ids: Iterable[int]) -> Mapping[int, tuple[int, ...]]:
        """Return the ascending ids in the sets of these aggregates.

        They are by the index of each demand that one of them can supply.
        """
        numbers = {self._number_of[id_] for id_ in aggregate_ids}
        if not numbers:
            return {}
        if len(numbers) == 1:
            return self._sets[numbers.pop()].supplier_ids
        key = tuple(sorted(numbers))
        lists = self._by_numbers.get(key)
        if lists is None:
            lists = _united([self._sets[number] for number in key])
            self._memory.reserve(SUPPLIER_ID_SIZE * sum(map(len, lists.values())))
            self._by_numbers[key] = lists
        return lists


def _united(serving_sets: Iterable[ServingSet]) -> Mapping[int, tuple[int, ...]]:
    """Return the ids that are in any of the sets, by the index of the demand."""
    united: defaultdict[int, set[int]] = defaultdict(set)
    for each in serving_sets:
        for demand, ids in each.supplier_ids.items():
            united[demand].update(ids)
    return {demand: tuple(sorted(ids)) for demand, ids in united.items()}
