"""Records as lines of an export file (`docs/operations.md`, "Moving data").

A record is validated by the schema of the request that would create the same resource.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import orjson

from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import Invalid
from placement_svc.domain.inventory import MAX_INTEGER
from placement_svc.domain.records import (
    PlacementGroupRecord,
    ProviderRecord,
    Record,
    RecordCounts,
    ResourceClassRecord,
    TraitRecord,
)
from placement_svc.schemas.aggregates import AggregateUuids
from placement_svc.schemas.allocations import ClaimV1_12, ConsumerType, to_claim
from placement_svc.schemas.base import Array, Map, Object, Schema, validate
from placement_svc.schemas.inventories import InventoryBody, to_inventory
from placement_svc.schemas.placement_groups import PlacementGroupBody, group_to_json, to_group
from placement_svc.schemas.resource_classes import NamedResourceClass
from placement_svc.schemas.resource_providers import NewProvider
from placement_svc.schemas.scalars import ANY_UUID, NAME, UUID_KEY, Integer, String, normalized_uuid
from placement_svc.schemas.traits import TraitNames, check_custom_name


class _Provider(NewProvider):
    """A resource provider; traits, aggregates and inventories are optional."""

    uuid = String(uuid=ANY_UUID, required=True)
    traits = TraitNames()
    aggregates = AggregateUuids()
    inventories = Map(NAME, Object(InventoryBody(exclude=["resource_provider_generation"])))


class _Consumer(ClaimV1_12):
    """A consumer with its allocations; a consumer without a type has a null type or none."""

    uuid = String(pattern=UUID_KEY, required=True)
    consumer_type = ConsumerType(allow_none=True)


class _PlacementGroup(PlacementGroupBody):
    """A placement group; its members are consumers."""

    uuid = String(uuid=ANY_UUID, required=True)
    members = Array(String(pattern=UUID_KEY), unique=True, max_items=sys.maxsize)


class _Name(Schema):
    name = String(required=True)


class _Counts(Schema):
    """The number of records of each type; files from before placement groups have none for these."""

    trait = Integer(minimum=0, required=True)
    resource_class = Integer(minimum=0, required=True)
    resource_provider = Integer(minimum=0, required=True)
    consumer = Integer(minimum=0, required=True)
    placement_group = Integer(minimum=0)


_PROVIDER = _Provider()
_CONSUMER = _Consumer(exclude=["consumer_generation", "mappings"])
_RESOURCE_CLASS = NamedResourceClass()
_TRAIT = _Name()
_PLACEMENT_GROUP = _PlacementGroup()
_COUNTS = _Counts()


def parse(line: bytes) -> Record | RecordCounts:
    """Return the record of a line, or the counts in the last line of a file; raises `Invalid`."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        # Only the last line of a file can lack its end.
        cut = "" if line.endswith(b"\n") else "; the file is truncated, because the line has no line end"
        raise Invalid(f"This is not JSON: {error.msg} at column {error.colno}{cut}") from None
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= _PARSERS.keys():
        raise Invalid(f"A record is an object with one key, which is one of {', '.join(_PARSERS)}.")
    [(kind, fields)] = value.items()
    return _PARSERS[kind](fields)


def _load(schema: Schema, value: Any) -> Any:
    """Return a value as the schema loads it; raises `Invalid` with the path and text of one violation."""
    loaded, violation = validate(Object(schema), value)
    if violation:
        path = "".join(f"{key}: " for key in violation.instance)
        raise Invalid(f"{path}{violation.reason}")
    return loaded


def _parse_provider(fields: Any) -> ProviderRecord:
    loaded = _load(_PROVIDER, fields)
    return ProviderRecord(
        uuid=normalized_uuid(loaded["uuid"]),
        name=loaded["name"],
        parent_uuid=loaded.get("parent_provider_uuid"),
        traits=list(dict.fromkeys(loaded.get("traits", ()))),
        aggregates=loaded.get("aggregates", []),
        inventories={name: to_inventory(record) for name, record in loaded.get("inventories", {}).items()},
    )


def _parse_consumer(fields: Any) -> Claim:
    loaded = _load(_CONSUMER, fields)
    claim = to_claim(loaded["uuid"], loaded)
    for provider, resources in claim.allocations.items():
        for resource_class, amount in resources.items():
            if amount > MAX_INTEGER:
                raise Invalid(
                    f"allocations: {provider}: {resource_class}: {amount} is more than any inventory has"
                )
    return claim


def _parse_trait(value: Any) -> TraitRecord:
    name = _load(_TRAIT, {"name": value})["name"]
    check_custom_name(name)
    return TraitRecord(name)


def _parse_resource_class(value: Any) -> ResourceClassRecord:
    return ResourceClassRecord(_load(_RESOURCE_CLASS, {"name": value})["name"])


def _parse_counts(value: Any) -> RecordCounts:
    return RecordCounts({"placement_group": 0, **_load(_COUNTS, value)})


def _parse_placement_group(fields: Any) -> PlacementGroupRecord:
    loaded = _load(_PLACEMENT_GROUP, fields)
    group = to_group(normalized_uuid(loaded["uuid"]), loaded)
    return PlacementGroupRecord(group, loaded.get("members", []))


_PARSERS: Mapping[str, Callable[[Any], Record | RecordCounts]] = {
    "trait": _parse_trait,
    "resource_class": _parse_resource_class,
    "resource_provider": _parse_provider,
    "consumer": _parse_consumer,
    "placement_group": _parse_placement_group,
    "counts": _parse_counts,
}


def to_line(record: Record | RecordCounts) -> bytes:
    """Return the line of a record or of the counts, as `parse` reads it."""
    return orjson.dumps(_to_json(record), option=orjson.OPT_APPEND_NEWLINE)


def _to_json(record: Record | RecordCounts) -> dict[str, Any]:
    match record:
        case RecordCounts(by_type):
            return {"counts": by_type}
        case TraitRecord(name):
            return {"trait": name}
        case ResourceClassRecord(name):
            return {"resource_class": name}
        case ProviderRecord():
            return {
                "resource_provider": {
                    "uuid": record.uuid,
                    "name": record.name,
                    "parent_provider_uuid": record.parent_uuid,
                    "traits": record.traits,
                    "aggregates": record.aggregates,
                    "inventories": {name: asdict(record.inventories[name]) for name in record.inventories},
                }
            }
        case PlacementGroupRecord(group, members):
            shown = {key: value for key, value in group_to_json(group).items() if value is not None}
            return {"placement_group": {**shown, "members": members}}
        case Claim():
            return {
                "consumer": {
                    "uuid": record.consumer_uuid,
                    "project_id": record.project_id,
                    "user_id": record.user_id,
                    "consumer_type": record.consumer_type,
                    "allocations": {
                        provider: {"resources": resources}
                        for provider, resources in record.allocations.items()
                    },
                }
            }
