"""Sharing providers in the statements that find anchors.

A statement returns the numbers of the sets of sharing providers that serve a root, not the ids of these
providers: with 3,000 hosts and 1,500 sharing providers in one aggregate, these would be 4,500,000 ids.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, FromClause, column, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
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


def with_serving_sets(examined_roots: FromClause, serving_sets: Sequence[ServingSet]) -> FromClause:
    """Return the examined roots with the column `serving_sets`: the numbers of the sets that serve each.

    The numbers are ascending; the column is null if no set serves the root. One join for all roots and
    demands, because each demand would otherwise scan all aggregates for each root.
    """
    pairs = [(number, id_) for number, each in enumerate(serving_sets) for id_ in each.aggregate_ids]
    columns = (literal(list(values), ARRAY(Integer)) for values in zip(*pairs, strict=True))
    aggregate = func.unnest(*columns).table_valued("number", "aggregate_id").render_derived()
    return (
        select(
            examined_roots.c.id,
            examined_roots.c.position,
            func.array_agg(aggregate.c.number.distinct())
            .filter(aggregate.c.number.is_not(None))
            .label("serving_sets"),
        )
        .select_from(
            examined_roots.outerjoin(
                tree_aggregates.join(aggregate, aggregate.c.aggregate_id == tree_aggregates.c.aggregate_id),
                tree_aggregates.c.root_id == examined_roots.c.id,
            )
        )
        .group_by(examined_roots.c.position, examined_roots.c.id)
        .order_by(examined_roots.c.position)
        .subquery("served_roots")
    )


def is_served(root: FromClause, serving_sets: Sequence[ServingSet], demand: int) -> ColumnElement[bool]:
    """Return the condition that one of the sets that serve a root can supply the demand with this index."""
    numbers = [number for number, each in enumerate(serving_sets) if demand in each.supplier_ids]
    if len(numbers) == len(serving_sets):
        return root.c.serving_sets.is_not(None)
    unnested = func.unnest(root.c.serving_sets).table_valued(column("number", Integer))
    serving = unnested.render_derived(name="serving")
    return select(literal(1)).where(is_any(serving.c.number, numbers)).exists()


class SharingSuppliers:
    """The sharing providers that can supply the demands around the anchors of one statement.

    Anchors that the same sets serve share the lists.
    """

    def __init__(self, serving_sets: Sequence[ServingSet], memory: MemoryBudget) -> None:
        self._sets = serving_sets
        self._memory = memory
        self._by_numbers: dict[tuple[int, ...], Mapping[int, tuple[int, ...]]] = {}

    def lists(self, numbers: Sequence[int] | None) -> Mapping[int, tuple[int, ...]]:
        """Return the ascending ids in these sets by the index of each demand that one of them can supply."""
        if not numbers:
            return {}
        if len(numbers) == 1:
            return self._sets[numbers[0]].supplier_ids
        key = tuple(numbers)
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
