"""A model of all writes on plain dicts, written from `docs/spec/resources.md` and `docs/spec/allocations.md`.

Every public method of `Model` is one request. It returns the status of the response, or raises `Refused` and
changes nothing. `minor` is the minor number of the microversion.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

NOBODY = "00000000-0000-0000-0000-000000000000"
UNCHANGED = "unchanged"
"""In place of a parent: the body has no `parent_provider_uuid`."""

STANDARD_CLASSES = frozenset({"VCPU", "DISK_GB"})
STANDARD_TRAITS = frozenset({"HW_CPU_X86_AVX", "STORAGE_DISK_SSD"})
DEFAULTS = {"reserved": 0, "min_unit": 1, "max_unit": 2147483647, "step_size": 1, "allocation_ratio": 1.0}

Record = Mapping[str, Any]
"""An inventory as in a request body: `total`, and the fields that differ from the defaults."""


class Refused(Exception):
    """The response is an error with this status; `code` is the error code without `placement.`."""

    def __init__(self, status: int, code: str = "undefined_code") -> None:
        super().__init__(status, code)
        self.status = status
        self.code = code


def capacity(record: Record) -> float:
    """Return the capacity of a complete record."""
    return (record["total"] - record["reserved"]) * record["allocation_ratio"]


class Model:
    """Providers and consumers by uuid, and the names of custom traits and resource classes."""

    def __init__(self) -> None:
        self.providers: dict[str, dict[str, Any]] = {}
        self.consumers: dict[str, dict[str, Any]] = {}
        self.traits: set[str] = set()
        self.classes: set[str] = set()

    def provider(self, uuid: str) -> dict[str, Any]:
        if uuid not in self.providers:
            raise Refused(404)
        return self.providers[uuid]

    def path(self, uuid: str) -> list[str]:
        """Return a provider and its ancestors."""
        parent = self.providers[uuid]["parent"]
        return [uuid, *(self.path(parent) if parent else [])]

    def used(self, consumers: Iterable[str] | None = None) -> Counter[tuple[str, str]]:
        """Return the used amounts of some consumers (None: all), by provider and resource class."""
        used: Counter[tuple[str, str]] = Counter()
        for uuid in self.consumers if consumers is None else consumers:
            used.update(self.consumers.get(uuid, {}).get("allocations", {}))
        return used

    # Providers

    def create_provider(self, uuid: str, name: str, parent: str | None, minor: int) -> int:
        if parent and (minor < 14 or parent == uuid or parent not in self.providers):
            raise Refused(400)
        if uuid in self.providers or self._has_name(name):
            raise Refused(409, "duplicate_name")
        self.providers[uuid] = {
            "name": name,
            "generation": 0,
            "parent": parent,
            "inventories": {},
            "traits": set(),
            "aggregates": set(),
        }
        return 200 if minor >= 20 else 201

    def change_provider(self, uuid: str, name: str, parent: str | None, minor: int) -> int:
        provider = self.provider(uuid)
        if parent != UNCHANGED:
            current = provider["parent"]
            if minor < 14 or (parent and parent not in self.providers):
                raise Refused(400)
            if current and parent != current and minor < 37:
                raise Refused(400)
            if parent and uuid in self.path(parent):
                raise Refused(400)
        if self._has_name(name, except_for=uuid):
            raise Refused(409, "duplicate_name")
        provider["name"] = name
        if parent != UNCHANGED:
            provider["parent"] = parent
        return 200

    def _has_name(self, name: str, except_for: str = "") -> bool:
        return any(p["name"] == name for uuid, p in self.providers.items() if uuid != except_for)

    def delete_provider(self, uuid: str) -> int:
        self.provider(uuid)
        if any(provider["parent"] == uuid for provider in self.providers.values()):
            raise Refused(409, "resource_provider.cannot_delete_parent")
        if any(provider == uuid for provider, _ in self.used()):
            raise Refused(409, "resource_provider.inuse")
        del self.providers[uuid]
        return 204

    # Inventories

    def add_inventory(self, uuid: str, resource_class: str, record: Record, minor: int) -> int:
        provider = self.provider(uuid)
        self._check_capacities([record], minor)
        self._check_classes([resource_class])
        if resource_class in provider["inventories"]:
            raise Refused(409, "concurrent_update")
        provider["inventories"][resource_class] = DEFAULTS | record
        provider["generation"] += 1
        return 201

    def replace_inventories(
        self, uuid: str, generation: int, records: Mapping[str, Record], minor: int
    ) -> int:
        provider = self.provider(uuid)
        self._check_generation(provider, generation)
        self._check_capacities(records.values(), minor)
        self._check_classes(records)
        self._check_none_in_use(uuid, provider["inventories"].keys() - records.keys())
        provider["inventories"] = {name: DEFAULTS | record for name, record in records.items()}
        provider["generation"] += 1
        return 200

    def replace_inventory(
        self, uuid: str, generation: int, resource_class: str, record: Record, minor: int
    ) -> int:
        provider = self.provider(uuid)
        self._check_generation(provider, generation)
        self._check_capacities([record], minor)
        if resource_class not in self.classes | STANDARD_CLASSES:
            raise Refused(404)
        if resource_class not in provider["inventories"]:
            raise Refused(400)
        provider["inventories"][resource_class] = DEFAULTS | record
        provider["generation"] += 1
        return 200

    def delete_inventory(self, uuid: str, resource_class: str) -> int:
        provider = self.provider(uuid)
        if resource_class not in provider["inventories"]:
            raise Refused(404)
        if (uuid, resource_class) in self.used():
            raise Refused(409, "concurrent_update")
        del provider["inventories"][resource_class]
        provider["generation"] += 1
        return 204

    def delete_inventories(self, uuid: str, minor: int) -> int:
        if minor < 5:
            raise Refused(405)
        provider = self.provider(uuid)
        self._check_none_in_use(uuid, provider["inventories"])
        provider["inventories"] = {}
        provider["generation"] += 1
        return 204

    def _check_generation(self, provider: Mapping[str, Any], generation: int) -> None:
        if generation != provider["generation"]:
            raise Refused(409, "concurrent_update")

    def _check_capacities(self, records: Iterable[Record], minor: int) -> None:
        least = 0 if minor >= 26 else 1
        if any(int(capacity(DEFAULTS | record)) < least for record in records):
            raise Refused(400)

    def _check_classes(self, names: Iterable[str]) -> None:
        if not self.classes | STANDARD_CLASSES >= set(names):
            raise Refused(400)

    def _check_none_in_use(self, uuid: str, resource_classes: Iterable[str]) -> None:
        if any((uuid, resource_class) in self.used() for resource_class in resource_classes):
            raise Refused(409, "inventory.inuse")

    # Aggregates and traits of a provider

    def replace_aggregates(self, uuid: str, aggregates: Iterable[str], generation: int, minor: int) -> int:
        provider = self.provider(uuid)
        if minor >= 19:
            self._check_generation(provider, generation)
            provider["generation"] += 1
        provider["aggregates"] = set(aggregates)
        return 200

    def replace_traits(self, uuid: str, traits: Iterable[str], generation: int) -> int:
        provider = self.provider(uuid)
        self._check_generation(provider, generation)
        if not self.traits | STANDARD_TRAITS >= set(traits):
            raise Refused(400)
        provider["generation"] += provider["traits"] != set(traits)
        provider["traits"] = set(traits)
        return 200

    def delete_traits(self, uuid: str) -> int:
        provider = self.provider(uuid)
        provider["generation"] += bool(provider["traits"])
        provider["traits"] = set()
        return 204

    # Names

    def ensure_trait(self, name: str) -> int:
        if name in STANDARD_TRAITS:
            raise Refused(400)
        status = 204 if name in self.traits else 201
        self.traits.add(name)
        return status

    def delete_trait(self, name: str) -> int:
        if name in STANDARD_TRAITS:
            raise Refused(400)
        if name not in self.traits:
            raise Refused(404)
        if any(name in provider["traits"] for provider in self.providers.values()):
            raise Refused(409)
        self.traits.remove(name)
        return 204

    def create_class(self, name: str) -> int:
        if name in STANDARD_CLASSES:
            raise Refused(400)
        if name in self.classes:
            raise Refused(409)
        self.classes.add(name)
        return 201

    def ensure_class(self, name: str) -> int:
        return 204 if name in self.classes else self.create_class(name)

    def rename_class(self, name: str, new_name: str) -> int:
        if new_name in STANDARD_CLASSES:
            raise Refused(400)
        self._check_custom(name)
        if new_name in self.classes - {name}:
            raise Refused(409)
        self.classes = self.classes - {name} | {new_name}
        for provider in self.providers.values():
            provider["inventories"] = {
                new_name if key == name else key: record for key, record in provider["inventories"].items()
            }
        for consumer in self.consumers.values():
            consumer["allocations"] = {
                (provider, new_name if key == name else key): amount
                for (provider, key), amount in consumer["allocations"].items()
            }
        return 200

    def delete_class(self, name: str) -> int:
        self._check_custom(name)
        if any(name in provider["inventories"] for provider in self.providers.values()):
            raise Refused(409)
        self.classes.remove(name)
        return 204

    def _check_custom(self, name: str) -> None:
        if name in STANDARD_CLASSES:
            raise Refused(400)
        if name not in self.classes:
            raise Refused(404)

    # Allocations; `claims` are consumers as in the body of POST /allocations

    def replace_consumer(self, uuid: str, claim: Mapping[str, Any], minor: int) -> int:
        if minor < 28 and not claim["allocations"]:
            raise Refused(400)
        return self.replace_consumers({uuid: claim}, minor)

    def replace_consumers(self, claims: Mapping[str, Mapping[str, Any]], minor: int) -> int:
        self._check_consumers(claims, minor)
        self._check_names(claims, [])
        inventories = {uuid: provider["inventories"] for uuid, provider in self.providers.items()}
        self._check_inventories(claims, inventories)
        self._store(claims, minor)
        return 204

    def delete_consumer(self, uuid: str) -> int:
        if uuid not in self.consumers:
            raise Refused(404)
        del self.consumers[uuid]
        return 204

    def reshape(
        self,
        inventories: Mapping[str, tuple[int, Mapping[str, Record]]],
        claims: Mapping[str, Mapping[str, Any]],
        minor: int,
    ) -> int:
        for uuid, (generation, _) in inventories.items():
            if uuid not in self.providers:
                raise Refused(400, "resource_provider.not_found")
            self._check_generation(self.providers[uuid], generation)
        self._check_consumers(claims, minor)
        self._check_names(claims, [name for _, records in inventories.values() for name in records])
        wanted = {
            uuid: {name: DEFAULTS | record for name, record in records.items()}
            for uuid, (_, records) in inventories.items()
        }
        during_reshape = {
            uuid: provider["inventories"] | wanted.get(uuid, {}) for uuid, provider in self.providers.items()
        }
        self._check_inventories(claims, during_reshape)
        others = self.used(self.consumers.keys() - claims.keys())
        for uuid, records in wanted.items():
            for name in self.providers[uuid]["inventories"].keys() - records.keys():
                if (uuid, name) in others or (uuid, name) in _amounts(claims):
                    raise Refused(409, "inventory.inuse")
        for uuid, records in wanted.items():
            self.providers[uuid]["inventories"] = records
            self.providers[uuid]["generation"] += 2 if records else 1
        self._store(claims, minor)
        return 204

    def _check_consumers(self, claims: Mapping[str, Mapping[str, Any]], minor: int) -> None:
        for uuid, claim in claims.items():
            generation = self.consumers.get(uuid, {}).get("generation")
            if minor >= 28 and claim["consumer_generation"] != generation:
                raise Refused(409, "concurrent_update")

    def _check_names(self, claims: Mapping[str, Mapping[str, Any]], resource_classes: list[str]) -> None:
        amounts = _amounts(claims)
        if not self.providers.keys() >= {provider for provider, _ in amounts}:
            raise Refused(400)
        self._check_classes([*resource_classes, *(name for _, name in amounts)])

    def _check_inventories(
        self, claims: Mapping[str, Mapping[str, Any]], inventories: Mapping[str, Mapping[str, Record]]
    ) -> None:
        before = self.used()
        after = self.used(self.consumers.keys() - claims.keys())
        for claim in claims.values():
            for (provider, name), amount in _amounts({"": claim}).items():
                record = inventories[provider].get(name)
                if record is None or amount % record["step_size"]:
                    raise Refused(409)
                if not record["min_unit"] <= amount <= record["max_unit"]:
                    raise Refused(409)
                after[provider, name] += amount
                tolerated = max(capacity(record), before[provider, name])
                if after[provider, name] > tolerated:
                    raise Refused(409)

    def _store(self, claims: Mapping[str, Mapping[str, Any]], minor: int) -> None:
        named = {provider for provider, _ in _amounts(claims)}
        deleted = [uuid for uuid, claim in claims.items() if not claim["allocations"]]
        for provider in named | {provider for provider, _ in self.used(deleted)}:
            self.providers[provider]["generation"] += 1
        for uuid, claim in claims.items():
            current = self.consumers.pop(uuid, {"generation": 0, "type": None})
            if claim["allocations"]:
                self.consumers[uuid] = {
                    "generation": current["generation"] + 1,
                    "project": claim["project_id"] if minor >= 8 else NOBODY,
                    "user": claim["user_id"] if minor >= 8 else NOBODY,
                    "type": claim["consumer_type"] if minor >= 38 else current["type"],
                    "allocations": dict(_amounts({uuid: claim})),
                }


def _amounts(claims: Mapping[str, Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """Return the sums of the amounts that all claims ask for, by provider and resource class."""
    amounts: Counter[tuple[str, str]] = Counter()
    for claim in claims.values():
        for provider, allocation in claim["allocations"].items():
            amounts.update({(provider, name): amount for name, amount in allocation["resources"].items()})
    return amounts
