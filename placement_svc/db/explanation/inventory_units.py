"""The amounts to try instead of a requested one, from the inventories (`docs/spec/extensions.md 3.5`)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Integer, func, select

from placement_svc.db.explanation.cloud import Cloud
from placement_svc.db.explanation.patterns import inventory_row, provider_row, read_pattern, select_patterns
from placement_svc.db.explanation.rows import table_of
from placement_svc.db.filters import is_any
from placement_svc.db.search.ignored_consumers import InventoryReader
from placement_svc.db.tables import inventories
from placement_svc.domain.explanation import AmountCondition
from placement_svc.domain.memory import MemoryBudget

STEPS_SIZE = 400
"""Bytes of memory that a `Steps` needs with its place, approximately."""


class Steps(NamedTuple):
    """The units of some inventories, and the largest amount that one of them can give."""

    min_unit: int
    step_size: int
    max_allocatable: int

    def largest_below(self, wanted: int) -> int | None:
        """Return the largest allowed amount below `wanted`."""
        amount = min(wanted - 1, self.max_allocatable) // self.step_size * self.step_size
        return amount if amount >= max(self.min_unit, 1) else None

    def smallest_above(self, wanted: int) -> int | None:
        """Return the smallest allowed amount above `wanted`."""
        amount = -(-max(wanted + 1, self.min_unit) // self.step_size) * self.step_size
        return amount if amount <= self.max_allocatable else None


class UsefulAmounts:
    """The steps of the inventories around the groups of equal roots of a cloud."""

    def __init__(
        self,
        own: Mapping[tuple[int, int, int], list[Steps]],
        shared: Mapping[tuple[int, int], list[Steps]],
    ) -> None:
        self._own = own
        self._shared = shared

    def steps(self, number: int, provider_id: int, class_id: int) -> Iterable[Steps]:
        """Return the steps of a class at a provider of the group of roots with this number.

        The ids are those of `placement_svc.db.explanation.trees.GroupTree`.
        """
        if provider_id < 0:
            return self._own.get((number, provider_id, class_id), ())
        return self._shared.get((provider_id, class_id), ())


def read_useful_amounts(reader: InventoryReader, cloud: Cloud, memory: MemoryBudget) -> UsefulAmounts:
    """Return the steps of all requested classes: one statement, and one more if any provider shares.

    One row for all providers that have the same place around equal roots and the same units. With that,
    the exact amounts follow without a search for each.
    """
    class_ids = {each.class_id for each in cloud.layout.bits if isinstance(each, AmountCondition)}
    own: dict[tuple[int, int, int], list[Steps]] = {}
    for number, provider_id, class_id, steps in _own_steps(reader, cloud, class_ids):
        memory.reserve(STEPS_SIZE)
        own.setdefault((number, provider_id, class_id), []).append(steps)
    shared: dict[tuple[int, int], list[Steps]] = {}
    if serving := [provider.id for provider in cloud.serving]:
        rows: Iterable[Any] = reader.execute(
            select(
                inventories.c.provider_id,
                inventories.c.resource_class_id,
                *_UNITS,
                inventories.c.max_allocatable,
            ).where(
                is_any(inventories.c.provider_id, serving),
                is_any(inventories.c.resource_class_id, class_ids),
            )
        )
        for provider_id, class_id, *numbers in rows:
            memory.reserve(STEPS_SIZE)
            shared.setdefault((provider_id, class_id), []).append(Steps(*numbers))
    return UsefulAmounts(own, shared)


_UNITS = (inventories.c.min_unit, inventories.c.step_size)


def _own_steps(
    reader: InventoryReader, cloud: Cloud, class_ids: Iterable[int]
) -> Iterator[tuple[int, int, int, Steps]]:
    """Yield the number of the group of roots, the id of the provider in it, the class, and the steps."""
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
    key = (placed.c.number, placed.c[place], inventories.c.resource_class_id, *_UNITS)
    found: Iterable[Any] = reader.execute(
        select(*key, func.max(inventories.c.max_allocatable))
        .join(inventories, inventories.c.provider_id == placed.c.provider_id)
        .where(is_any(inventories.c.resource_class_id, class_ids), inventories.c.max_allocatable > 0)
        .group_by(*key)
    )
    places = [{node.pattern: -1 - index for index, node in enumerate(root.nodes)} for root in cloud.roots]
    for number, value, class_id, *numbers in found:
        if cloud.layout.is_structured:
            yield number, -value, class_id, Steps(*numbers)
        else:
            yield number, places[number][read_pattern(value)], class_id, Steps(*numbers)
