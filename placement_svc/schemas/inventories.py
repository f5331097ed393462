"""Inventories: bodies (`docs/spec/resources.md 4`)."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from placement_svc.domain.inventory import MAX_INTEGER, Inventory
from placement_svc.schemas.base import NAME, Document, Integer, Map, Number, Object, String, check, matches

MAX_RATIO = 3.40282e38
"""What single precision can hold."""


class Record(Document):
    """One inventory; the generation of its provider is accepted, and means nothing unless it is required."""

    total = Integer(1, MAX_INTEGER, required=True)
    reserved = Integer(0, MAX_INTEGER)
    min_unit = Integer(1, MAX_INTEGER)
    max_unit = Integer(1, MAX_INTEGER)
    step_size = Integer(1, MAX_INTEGER)
    allocation_ratio = Number(MAX_RATIO)
    resource_provider_generation = Integer()


def to_inventory(record: Mapping[str, Any]) -> Inventory:
    """Return the inventory that a checked record states."""
    return Inventory(
        **{field.name: record[field.name] for field in fields(Inventory) if field.name in record}
    )


class Records(Map):
    """Inventories by resource class.

    A key that no resource class can have is no violation: such a class is unknown, like any other
    that does not exist. What stands under it must be a record all the same.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(NAME, Object(Record()), closed=False, **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> dict[str, Inventory]:
        records = super()._deserialize(value, attr, data, **kwargs)
        return {
            name: to_inventory(record if matches(self.pattern, name) else check(self.value, record))
            for name, record in records.items()
        }


class NewInventory(Record):
    """POST .../inventories."""

    resource_class = String(pattern=NAME, required=True)


class ChangedInventory(Record):
    """PUT .../inventories/{resource_class}."""

    resource_provider_generation = Integer(required=True)


class ChangedInventories(Document):
    """PUT .../inventories."""

    resource_provider_generation = Integer(required=True)
    inventories = Records(required=True)
