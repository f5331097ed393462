"""Records: the lines of an export (`docs/operations.md`, moving data).

What a line says is held to the rules of the request that would create the same thing.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID as ParsedUuid

import orjson

from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import Invalid
from placement_svc.domain.inventory import MAX_INTEGER
from placement_svc.domain.records import ProviderRecord, Record, ResourceClassRecord, TraitRecord
from placement_svc.schemas.aggregates import AggregateUuids
from placement_svc.schemas.allocations import ClaimV1_12, ConsumerType, to_claim
from placement_svc.schemas.base import NAME, UUID, UUID_KEY, Map, Object, Schema, String, validate
from placement_svc.schemas.inventories import InventoryBody, to_inventory
from placement_svc.schemas.resource_classes import NamedResourceClass
from placement_svc.schemas.resource_providers import NewProvider
from placement_svc.schemas.traits import TraitNames, check_custom_name


class _Provider(NewProvider):
    """A resource provider with all it has; what is left out it has none of."""

    uuid = String(uuid=UUID, required=True)
    traits = TraitNames()
    aggregates = AggregateUuids()
    inventories = Map(NAME, Object(InventoryBody(exclude=["resource_provider_generation"])))


class _Consumer(ClaimV1_12):
    """A consumer with all it holds; its type is null or left out if it was never given one."""

    uuid = String(pattern=UUID_KEY, required=True)
    consumer_type = ConsumerType(allow_none=True)


class _Name(Schema):
    name = String(required=True)


_PROVIDER = _Provider()
_CONSUMER = _Consumer(exclude=["consumer_generation", "mappings"])
_RESOURCE_CLASS = NamedResourceClass()
_TRAIT = _Name()


def parse(line: bytes) -> Record:
    """Return the record that a line is; raises `Invalid`."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"This is not JSON: {error}") from None
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= _PARSERS.keys():
        raise Invalid(f"A record is an object with one key, which is one of {', '.join(_PARSERS)}.")
    [(kind, stated)] = value.items()
    return _PARSERS[kind](stated)


def _load(schema: Schema, stated: Any) -> Any:
    """Return what a schema makes of what is stated; raises `Invalid` with what is wrong, and where."""
    loaded, violations = validate(Object(schema), stated)
    if violations:
        violation = min(violations, key=lambda violation: len(violation.instance))
        where = "".join(f"{step}: " for step in violation.instance)
        raise Invalid(f"{where}{violation.reason}")
    return loaded


def _parse_provider(stated: Any) -> ProviderRecord:
    loaded = _load(_PROVIDER, stated)
    return ProviderRecord(
        uuid=str(ParsedUuid(loaded["uuid"])),
        name=loaded["name"],
        parent_uuid=loaded.get("parent_provider_uuid"),
        traits=list(dict.fromkeys(loaded.get("traits", ()))),
        aggregates=loaded.get("aggregates", []),
        inventories={name: to_inventory(record) for name, record in loaded.get("inventories", {}).items()},
    )


def _parse_consumer(stated: Any) -> Claim:
    loaded = _load(_CONSUMER, stated)
    claim = to_claim(loaded["uuid"], loaded)
    for provider, resources in claim.allocations.items():
        for resource_class, amount in resources.items():
            if amount > MAX_INTEGER:
                raise Invalid(
                    f"allocations: {provider}: {resource_class}: {amount} is more than anybody can hold"
                )
    return claim


def _parse_trait(stated: Any) -> TraitRecord:
    name = _load(_TRAIT, {"name": stated})["name"]
    check_custom_name(name)
    return TraitRecord(name)


def _parse_resource_class(stated: Any) -> ResourceClassRecord:
    return ResourceClassRecord(_load(_RESOURCE_CLASS, {"name": stated})["name"])


_PARSERS: Mapping[str, Callable[[Any], Record]] = {
    "trait": _parse_trait,
    "resource_class": _parse_resource_class,
    "resource_provider": _parse_provider,
    "consumer": _parse_consumer,
}


def to_line(record: Record) -> bytes:
    """Return the line that `parse` makes this record of."""
    return orjson.dumps(_stated(record), option=orjson.OPT_APPEND_NEWLINE)


def _stated(record: Record) -> dict[str, Any]:
    match record:
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
