"""Conversion of schemas and their fields to JSON Schema, as a plugin of apispec."""

import inspect
from typing import Any

from apispec.ext.marshmallow import MarshmallowPlugin, resolver
from apispec.ext.marshmallow.openapi import OpenAPIConverter
from marshmallow import Schema
from marshmallow.fields import Field

from placement_svc.schemas.any_of import StringOrArray
from placement_svc.schemas.base import MAX_MEMBERS, Array, Map, Object
from placement_svc.schemas.scalars import Integer, Number, String, Value

SINCE = "x-placement-since"
"""The OpenAPI extension that names the microversion which introduced an operation, parameter or property."""

COMPONENT_NAMES = {
    "AggregateSize": "SizedAggregate",
    "AllocationV1_12": "KeyedAllocation",
    "ClaimV1_13": "KeyedClaim",
    "ConsumerAllocation": "HeldAllocation",
    "InventoryBody": "Record",
    "InventoryItem": "HeldInventory",
    "ProviderAggregates": "JoinedAggregates",
    "ProviderAllocation": "Holding",
    "ProviderTraits": "HeldTraits",
    "ReshapeBody": "WantedReshape",
}
"""Component names that differ from those of the schema classes, so that generated clients do not change."""


class Converter(OpenAPIConverter):
    """Convert schemas to JSON Schemas under `components`, and fields to schemas that refer to them."""

    def field2property(self, field: Field[Any]) -> dict[str, Any]:
        """Return the JSON Schema of a field: its type, its rules, and the microversion that introduced it."""
        assert isinstance(field, Value)
        if isinstance(field, Object):
            schema: dict[str, Any] = self.resolve_nested_schema(field.schema)  # type: ignore[no-untyped-call]
            if field.allow_none:
                schema = {"anyOf": [schema, {"type": "null"}]}
        elif isinstance(field, StringOrArray):
            schema = {"anyOf": [self.field2property(each) for each in field.alternatives]}
        else:
            kind = field.json_type
            schema = {"type": [kind, "null"] if field.allow_none else kind, **self._rules(field)}
        if field.since:
            schema[SINCE] = str(field.since)
        return {**schema, **self.metadata2properties(field)}

    def _rules(self, field: Value) -> dict[str, Any]:
        """Return the JSON Schema keywords for the rules of a field other than its type."""
        rules: dict[str, Any] = {}
        if isinstance(field, Integer | Number):
            rules = {"minimum": getattr(field, "minimum", None), "maximum": field.maximum}
        elif isinstance(field, String):
            rules = {
                "minLength": field.min_length or None,
                "maxLength": field.max_length,
                "pattern": field.pattern,
                "enum": field.choices or None,
                "format": "uuid" if field.uuid else None,
            }
        elif isinstance(field, Array):
            rules = {
                "items": self.field2property(field.item),
                "minItems": field.min_items or None,
                "maxItems": field.max_items if field.max_items < MAX_MEMBERS else None,
                "uniqueItems": field.unique or None,
            }
        elif isinstance(field, Map):
            rules = {
                "patternProperties": {field.pattern: self.field2property(field.value)},
                "additionalProperties": False if field.closed else None,
                "minProperties": field.min_members or None,
            }
        return {keyword: rule for keyword, rule in rules.items() if rule is not None}

    def schema2jsonschema(self, schema: Schema) -> dict[str, Any]:
        """Return the JSON Schema of a schema class, with its docstring as the description."""
        described = super().schema2jsonschema(schema)  # type: ignore[no-untyped-call]
        return {"description": inspect.getdoc(type(schema)), **described}


def component_name(schema: type[Schema]) -> str:
    """Return the name of a schema's component."""
    name = resolver(schema)
    return COMPONENT_NAMES.get(name, name)


class Plugin(MarshmallowPlugin):
    """The marshmallow plugin of apispec, with our converter and component names."""

    Converter = Converter

    def __init__(self) -> None:
        super().__init__(schema_name_resolver=component_name)
