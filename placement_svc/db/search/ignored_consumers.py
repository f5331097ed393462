"""Inventories without the allocations of the consumers that a request ignores (`ignore_consumer`)."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    BigInteger,
    ColumnClause,
    ColumnElement,
    Connection,
    CursorResult,
    Select,
    Text,
    and_,
    cast,
    func,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.visitors import replacement_traverse

from placement_svc.db.connections.engine import each_driver_row
from placement_svc.db.filters import is_any
from placement_svc.db.tables import allocations, consumers, inventories, resource_classes
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.inventory import MAX_INTEGER, UnitLimits

FREED_INVENTORY_SIZE = 800
"""Bytes of memory that a `FreedInventory` needs, with its part of the statements, approximately."""


class FreedInventory(NamedTuple):
    """An inventory, and what of it is used and allocatable without the allocations of ignored consumers.

    `stored_max_allocatable` is what is allocatable with them. `root_id` is that of its tree.
    """

    root_id: int
    class_id: int
    capacity: int
    used: int
    max_unit: int
    min_unit: int
    step_size: int
    stored_max_allocatable: int

    @property
    def free(self) -> int:
        """What is free, whatever the units: negative if the inventory is overcommitted."""
        return self.capacity - self.used

    @property
    def max_allocatable(self) -> int:
        """The largest amount that a new allocation can get."""
        return min(self.free, self.max_unit)

    @property
    def units(self) -> UnitLimits:
        """The amounts that a new allocation can get."""
        return UnitLimits(self.min_unit, self.max_allocatable, self.step_size)

    def fits_only_without(self, amount: int) -> bool:
        """Return whether a new allocation can get `amount`, but not with the ignored allocations."""
        if amount <= self.stored_max_allocatable:
            return False
        return self.units.fits_units(amount)


FreedInventories = Mapping[str, Mapping[int, FreedInventory]]
"""The inventories from which ignored consumers have allocations, by resource class and provider id."""

NOTHING_FREED: FreedInventories = {}


def read_freed_inventories(
    connection: Connection, consumer_uuids: Collection[str], deadline: Deadline, memory: MemoryBudget
) -> FreedInventories:
    """Return the inventories from which these consumers have allocations; unknown consumers have none.

    One statement, or none without consumers. It reads the allocations of these consumers only: by the unique
    index on the uuid of consumers, then by the primary keys of allocations and inventories.
    """
    if not consumer_uuids:
        return NOTHING_FREED
    inventory = inventories.c
    query = (
        select(
            resource_classes.c.name,
            inventory.provider_id,
            inventory.root_id,
            inventory.resource_class_id,
            inventory.capacity,
            inventory.used - func.sum(allocations.c.used),
            inventory.max_unit,
            inventory.min_unit,
            inventory.step_size,
            inventory.max_allocatable,
        )
        .select_from(consumers)
        .join(allocations, allocations.c.consumer_id == consumers.c.id)
        .join(
            inventories,
            and_(
                inventory.provider_id == allocations.c.provider_id,
                inventory.resource_class_id == allocations.c.resource_class_id,
            ),
        )
        .join(resource_classes, resource_classes.c.id == inventory.resource_class_id)
        .where(is_any(consumers.c.uuid, consumer_uuids))
        .group_by(resource_classes.c.name, inventory.provider_id, inventory.resource_class_id)
    )
    freed: dict[str, dict[int, FreedInventory]] = {}
    for name, provider_id, *values in deadline.checked(each_driver_row(connection, query, {})):
        memory.reserve(FREED_INVENTORY_SIZE)
        freed.setdefault(name, {})[provider_id] = FreedInventory(*map(int, values))
    return freed


def providers_fitting_only_without(
    freed: FreedInventories, resources: Iterable[tuple[str, int]]
) -> frozenset[tuple[int, int]]:
    """Return pairs of class id and provider id: the inventories that can give an amount of `resources`.

    Those that can give it anyway are not among them: an index finds these.
    """
    return frozenset(
        (inventory.class_id, provider_id)
        for name, amount in resources
        if amount <= MAX_INTEGER
        for provider_id, inventory in freed.get(name, {}).items()
        if inventory.fits_only_without(amount)
    )


def providers_giving_parts_only_without(
    freed: FreedInventories, resource_class: str
) -> frozenset[tuple[int, int]]:
    """Return pairs of class id and provider id: the inventories of a class that can give any amount at all.

    Those that can give one anyway are not among them.
    """
    return frozenset(
        (inventory.class_id, provider_id)
        for provider_id, inventory in freed.get(resource_class, {}).items()
        if inventory.fits_only_without(inventory.units.least)
    )


class InventoryReader:
    """Executes statements that read inventories, which it replaces by those without ignored consumers."""

    def __init__(self, connection: Connection, freed: FreedInventories) -> None:
        self.connection = connection
        self._values: Mapping[str, ColumnElement[Any]] = {}
        if freed:
            of_all = [
                (f"{provider_id}/{inventory.class_id}", inventory)
                for by_provider in freed.values()
                for provider_id, inventory in by_provider.items()
            ]
            values = select(
                _as_jsonb({key: each.used for key, each in of_all}).label("used"),
                _as_jsonb({key: each.max_allocatable for key, each in of_all}).label("max_allocatable"),
            ).cte("freed")
            self._values = {each.name: select(each).scalar_subquery() for each in values.c}

    def execute(self, statement: Select[*tuple[Any, ...]]) -> CursorResult[*tuple[Any, ...]]:
        """Return the result of a statement."""
        return self.connection.execute(self.adjusted(statement))

    def adjusted(self, statement: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
        """Return the statement with other columns in place of `used` and `max_allocatable`.

        They look each inventory up in a JSON object, so that the statement can read any number of inventories
        in one pass. No index serves a condition on these columns.
        """
        if not self._values:
            return statement
        replaced: Any = replacement_traverse(statement, {}, self._replacement)
        return replaced  # type: ignore[no-any-return]

    def _replacement(self, element: Any, **_: Any) -> Any:
        table = getattr(element, "table", None)
        if not isinstance(element, ColumnClause) or element.name not in self._values or table is None:
            return None
        if table is not inventories and getattr(table, "element", None) is not inventories:
            return None
        key = func.concat(table.c.provider_id, "/", table.c.resource_class_id)
        value = self._values[element.name].op("->>", return_type=Text)(key)
        return func.coalesce(cast(value, BigInteger), element)


def _as_jsonb(values: Mapping[str, int]) -> ColumnElement[Any]:
    return cast(literal(orjson.dumps(values).decode(), Text), JSONB)
