"""The units of the inventories around roots, to try other amounts (`docs/spec/extensions.md 3.5`)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Integer, func, select

from placement_svc.db.explanation.cloud import Cloud
from placement_svc.db.explanation.patterns import inventory_row, provider_row, read_pattern, select_patterns
from placement_svc.db.explanation.rows import table_of
from placement_svc.db.filters import is_any
from placement_svc.db.search.ignored_consumers import InventoryReader
from placement_svc.db.tables import inventories
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.filters import AmountCondition
from placement_svc.domain.inventory import UnitLimits

UNITS_SIZE = 400
"""Bytes of memory that `UnitLimits` need with their place, approximately."""


class InventoryUnits:
    """The units of the inventories around the groups of equal roots of a cloud.

    The `max_unit` of each is the largest amount that one of these inventories can give.
    """

    def __init__(
        self,
        own: Mapping[tuple[int, int, int], list[UnitLimits]],
        shared: Mapping[tuple[int, int], list[UnitLimits]],
    ) -> None:
        self._own = own
        self._shared = shared

    def of_provider(self, number: int, provider_id: int, class_id: int) -> Iterable[UnitLimits]:
        """Return the units of a class at a provider of the equal roots with this number.

        The ids are those of `placement_svc.db.explanation.trees.EqualRootsTree`.
        """
        if provider_id < 0:
            return self._own.get((number, provider_id, class_id), ())
        return self._shared.get((provider_id, class_id), ())


def read_units(reader: InventoryReader, cloud: Cloud, memory: MemoryBudget) -> InventoryUnits:
    """Return the units of all requested classes: one statement, and one more if any provider shares.

    One row for all providers that have the same place around equal roots and the same units. With that,
    the exact amounts follow without a search for each.
    """
    class_ids = {each.class_id for each in cloud.layout.bits if isinstance(each, AmountCondition)}
    own: dict[tuple[int, int, int], list[UnitLimits]] = {}
    for number, provider_id, class_id, units in _own_units(reader, cloud, class_ids):
        memory.reserve(UNITS_SIZE)
        own.setdefault((number, provider_id, class_id), []).append(units)
    shared: dict[tuple[int, int], list[UnitLimits]] = {}
    if serving := [provider.id for provider in cloud.serving]:
        rows: Iterable[Any] = reader.execute(
            select(
                inventories.c.provider_id,
                inventories.c.resource_class_id,
                inventories.c.min_unit,
                inventories.c.max_allocatable,
                inventories.c.step_size,
            ).where(
                is_any(inventories.c.provider_id, serving),
                is_any(inventories.c.resource_class_id, class_ids),
            )
        )
        for provider_id, class_id, *numbers in rows:
            memory.reserve(UNITS_SIZE)
            shared.setdefault((provider_id, class_id), []).append(UnitLimits(*numbers))
    return InventoryUnits(own, shared)


def _own_units(
    reader: InventoryReader, cloud: Cloud, class_ids: Iterable[int]
) -> Iterator[tuple[int, int, int, UnitLimits]]:
    """Yield the number of the equal roots, the id of the provider in their tree, the class, and the units."""
    rows = [(id_, number) for number, root in enumerate(cloud.roots) for id_ in root.root_ids]
    covered = table_of("covered", rows, root_id=Integer(), number=Integer())
    place = "place" if cloud.layout.is_structured else "pattern"
    if cloud.layout.is_structured:
        row_number = func.row_number().over(partition_by=provider_row.c.root_id, order_by=provider_row.c.path)
        providers = select(
            provider_row.c.id.label("provider_id"), provider_row.c.root_id, row_number.label(place)
        )
    else:
        providers = select_patterns(cloud.layout.bits, cloud.scope.covers(inventory_row.c.root_id))
    placed = (
        providers.add_columns(covered.c.number)
        .join(covered, covered.c.root_id == provider_row.c.root_id)
        .subquery("placed")
    )
    place_and_class = (placed.c.number, placed.c[place], inventories.c.resource_class_id)
    min_unit, step_size = inventories.c.min_unit, inventories.c.step_size
    found: Iterable[Any] = reader.execute(
        select(*place_and_class, min_unit, func.max(inventories.c.max_allocatable), step_size)
        .join(inventories, inventories.c.provider_id == placed.c.provider_id)
        .where(is_any(inventories.c.resource_class_id, class_ids), inventories.c.max_allocatable > 0)
        .group_by(*place_and_class, min_unit, step_size)
    )
    places = [{node.pattern: -1 - index for index, node in enumerate(root.nodes)} for root in cloud.roots]
    for number, value, class_id, *numbers in found:
        if cloud.layout.is_structured:
            yield number, -value, class_id, UnitLimits(*numbers)
        else:
            yield number, places[number][read_pattern(value)], class_id, UnitLimits(*numbers)
