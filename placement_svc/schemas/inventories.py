"""Schemas of bodies with inventories (`docs/spec/resources.md 4`)."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from marshmallow import ValidationError

from placement_svc.domain.inventory import MAX_INTEGER, Inventory
from placement_svc.schemas.base import Map, Object, Schema, validate
from placement_svc.schemas.patches import EXPECTED_GENERATION
from placement_svc.schemas.scalars import NAME, Integer, Number, String
from placement_svc.schemas.violations import Violation

GENERATION_KEY = "resource_provider_generation"

MAX_RATIO = 3.40282e38
"""The largest single-precision number."""


class InventoryFields(Schema):
    """The fields of an inventory, all optional."""

    total = Integer(1, MAX_INTEGER)
    reserved = Integer(0, MAX_INTEGER)
    min_unit = Integer(1, MAX_INTEGER)
    max_unit = Integer(1, MAX_INTEGER)
    step_size = Integer(1, MAX_INTEGER)
    allocation_ratio = Number(MAX_RATIO)


class InventoryBody(InventoryFields):
    """One inventory; unless the generation of the provider is required, it is accepted and ignored."""

    total = Integer(1, MAX_INTEGER, required=True)
    resource_provider_generation = Integer()


def to_inventory(loaded: Mapping[str, Any]) -> Inventory:
    """Return the inventory in a loaded `InventoryBody`."""
    return Inventory(**_inventory_fields(loaded))


def _inventory_fields(loaded: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: loaded[field.name] for field in fields(Inventory) if field.name in loaded}


class InventoriesByClass(Map):
    """Inventories by resource class.

    A key that cannot be the name of a resource class is no violation here. It is refused later, like the
    name of any other unknown resource class. The value under such a key is validated all the same.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(NAME, Object(InventoryBody()), closed=False, **options)

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> dict[str, Inventory]:
        bodies = super()._deserialize(value, attr, data, **kwargs)
        return {name: to_inventory(body) for name, body in bodies.items()}

    def load_unmatched(self, member: Any) -> tuple[Any, Violation | None]:
        """Load a record; return it and its violation, None if it has none."""
        loaded, violation = validate(self.value, member)
        return loaded, violation and replace(violation, is_unspecified=True)


class PatchedInventory(InventoryFields):
    """The fields of one inventory that change; the generation of the provider is accepted and ignored."""

    resource_provider_generation = Integer()


class PatchedInventories(Map):
    """The body of PATCH .../inventories: for each resource class its changed fields, or null to remove it.

    It may also have the `resource_provider_generation`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(
            NAME,
            Object(PatchedInventory(), allow_none=True),
            metadata={"properties": {GENERATION_KEY: {"type": "integer", **EXPECTED_GENERATION}}},
            **options,
        )

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or GENERATION_KEY not in value:
            changes = super()._deserialize(value, attr, data, **kwargs)
            return {name: body and _inventory_fields(body) for name, body in changes.items()}
        generation, violation = validate(Integer(), value[GENERATION_KEY])
        if violation:
            raise ValidationError([violation.under(("properties", GENERATION_KEY), GENERATION_KEY)])
        changes = {key: member for key, member in value.items() if key != GENERATION_KEY}
        return {**self._deserialize(changes, attr, data, **kwargs), GENERATION_KEY: generation}


class NewInventory(InventoryBody):
    """The body of POST .../inventories."""

    resource_class = String(pattern=NAME, required=True)


class ChangedInventory(InventoryBody):
    """The body of PUT .../inventories/{resource_class}."""

    resource_provider_generation = Integer(required=True)


class ChangedInventories(Schema):
    """The body of PUT .../inventories, and of each provider in POST /reshaper."""

    resource_provider_generation = Integer(required=True)
    inventories = InventoriesByClass(required=True)
