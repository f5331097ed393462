"""A small cloud as plain data, in the notation of `docs/spec/candidates.md 6`, and its creation over HTTP."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid5

from placement_svc.domain.allocations import Claim
from placement_svc.domain.inventory import Inventory as StoredInventory
from placement_svc.domain.records import ProviderRecord, Record

MAX_INT = 2147483647
CONSUMERS = ("consumer", "other_consumer")
"""The names of the consumers of a cloud."""

SHARING = "MISC_SHARES_VIA_AGGREGATE"

Call = Callable[..., tuple[int, Any]]
"""`request(method, path, json=None, headers={})` sends a request; it returns status and decoded body."""

_NAMESPACE = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
_HEADERS = {"OpenStack-API-Version": "placement 1.39"}
_UNITS = {
    "res": "reserved",
    "min": "min_unit",
    "max": "max_unit",
    "step": "step_size",
    "ratio": "allocation_ratio",
    "used": "used",
    "other": "used_by_other",
}
_PROVIDER = re.compile(
    r"(?P<name>\w+)(<(?P<parent>\w+))?(\{(?P<inventories>[^}]*)\})?(?P<sharing>\$)?(#(?P<traits>[\w,]+))?(@(?P<aggregates>[\w,]+))?"
)


def uuid_of(name: str) -> str:
    """Return the uuid of the provider, aggregate or consumer called `name`."""
    return str(uuid5(_NAMESPACE, name))


@dataclass(frozen=True)
class Inventory:
    """The inventory of a resource class on a provider; `used` is the sum of all its allocations.

    The consumer called `other_consumer` has `used_by_other` of it, the one called `consumer` has the rest.
    """

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT
    step_size: int = 1
    allocation_ratio: float = 1.0
    used: int = 0
    used_by_other: int = 0

    def __str__(self) -> str:
        given = [
            f"{word}{getattr(self, unit)}"
            for word, unit in _UNITS.items()
            if getattr(self, unit) != getattr(Inventory(self.total), unit)
        ]
        return " ".join([str(self.total), *given])

    def used_by(self, consumer: str) -> int:
        """Return what one of `CONSUMERS` has allocated."""
        return self.used_by_other if consumer == "other_consumer" else self.used - self.used_by_other


@dataclass(frozen=True)
class Provider:
    """A resource provider; parent and aggregates are names, for which `uuid_of` returns the uuids."""

    name: str
    parent: str | None = None
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()

    @property
    def uuid(self) -> str:
        return uuid_of(self.name)

    def __str__(self) -> str:
        own = sorted(self.traits - {SHARING})
        return "".join(
            [
                self.name,
                f"<{self.parent}" if self.parent else "",
                "{" + " ".join(f"{name}{inventory}" for name, inventory in self.inventories.items()) + "}",
                "$" if SHARING in self.traits else "",
                "#" + ",".join(own) if own else "",
                "@" + ",".join(sorted(self.aggregates)) if self.aggregates else "",
            ]
        )


def without_consumers(cloud: "Cloud", names: frozenset[str]) -> "Cloud":
    """Return the cloud without the allocations of the consumers with these names."""
    return Cloud(
        tuple(
            replace(
                provider,
                inventories={
                    name: replace(
                        inventory,
                        used=sum(inventory.used_by(each) for each in CONSUMERS if each not in names),
                        used_by_other=0 if "other_consumer" in names else inventory.used_by_other,
                    )
                    for name, inventory in provider.inventories.items()
                },
            )
            for provider in cloud.providers
        )
    )


@dataclass(frozen=True)
class Cloud:
    """Providers with distinct names, parents before their children."""

    providers: tuple[Provider, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.providers))

    def provider(self, name: str) -> Provider:
        """Return the provider called `name`."""
        return next(provider for provider in self.providers if provider.name == name)

    def lineage(self, provider: Provider) -> list[Provider]:
        """Return the provider and its ancestors, the root last."""
        ancestors = self.lineage(self.provider(provider.parent)) if provider.parent else []
        return [provider, *ancestors]

    def root(self, provider: Provider) -> Provider:
        """Return the root of the provider's tree."""
        return self.lineage(provider)[-1]

    def tree(self, provider: Provider) -> list[Provider]:
        """Return all providers of the provider's tree."""
        return [other for other in self.providers if self.root(other) == self.root(provider)]


def read(text: str) -> Cloud:
    """Parse a cloud in the format of `str(cloud)`, close to the notation of `docs/spec/candidates.md 6`.

    Providers are separated by `;`, parents precede their children, `$` is MISC_SHARES_VIA_AGGREGATE:
    `cn{VCPU8 used2 ratio1.5 DISK_GB100}#HW_NUMA_ROOT@A,B; c<cn{VCPU8 res1 min2 max4 step2}; ss{DISK_GB9}$@A`.
    Raises `ValueError` for a provider in another format.
    """
    return Cloud(tuple(_read_provider(piece.strip()) for piece in text.split(";")))


def _read_provider(text: str) -> Provider:
    match = _PROVIDER.fullmatch(text)
    if match is None:
        raise ValueError(f"not a provider: {text}")
    inventories: dict[str, Inventory] = {}
    for name, values in re.findall(r"([A-Z0-9_]*[A-Z_])(\d+(?: [a-z]+[\d.]+)*)", match["inventories"] or ""):
        total, *units = values.split()
        pairs = [re.fullmatch(r"([a-z]+)([\d.]+)", unit) for unit in units]
        given = {_UNITS[pair[1]]: pair[2] for pair in pairs if pair}
        ratio = float(given.pop("allocation_ratio", 1.0))
        inventories[name] = Inventory(
            int(total), allocation_ratio=ratio, **{k: int(v) for k, v in given.items()}
        )
    traits = match["traits"].split(",") if match["traits"] else []
    return Provider(
        name=match["name"],
        parent=match["parent"],
        inventories=inventories,
        traits=frozenset([*traits, SHARING] if match["sharing"] else traits),
        aggregates=frozenset(match["aggregates"].split(",") if match["aggregates"] else []),
    )


def load(cloud: Cloud, request: Call) -> None:
    """Create the cloud over HTTP, at microversion 1.39; two consumers have all allocations.

    The consumers claim from inventories without limits, which the cloud's own inventories then replace. So
    `used` may exceed the capacity or violate the units, as after a reduction (`docs/spec/resources.md 4`).
    Raises `AssertionError` if a request is refused.
    """
    generations: dict[str, int] = {}
    for provider in cloud.providers:
        body = {"name": provider.name, "uuid": provider.uuid}
        if provider.parent:
            body["parent_provider_uuid"] = uuid_of(provider.parent)
        generations[provider.uuid] = _send(request, "POST", "/resource_providers", body)["generation"]

    for provider in cloud.providers:
        for kind, members in [
            ("traits", sorted(provider.traits)),
            ("aggregates", [uuid_of(name) for name in sorted(provider.aggregates)]),
        ]:
            if members:
                update = {kind: members, "resource_provider_generation": generations[provider.uuid]}
                path = f"/resource_providers/{provider.uuid}/{kind}"
                generations[provider.uuid] = _send(request, "PUT", path, update)[
                    "resource_provider_generation"
                ]

    usages = {name: _usages(cloud, name) for name in CONSUMERS}
    if any(usages.values()):
        unlimited: dict[str, dict[str, Any]] = {}
        for used_by_consumer in usages.values():
            for uuid, used in used_by_consumer.items():
                unlimited.setdefault(uuid, {}).update({name: {"total": MAX_INT} for name in used})
        claims = {
            uuid_of(name): {
                "allocations": {uuid: {"resources": used} for uuid, used in of_consumer.items()},
                "project_id": "project",
                "user_id": "user",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            }
            for name, of_consumer in usages.items()
            if of_consumer
        }
        _reshape(request, unlimited, generations, claims)
        created = _send(request, "GET", "/resource_providers")["resource_providers"]
        generations = {provider["uuid"]: provider["generation"] for provider in created}

    inventories = {
        provider.uuid: {name: _inventory(inventory) for name, inventory in provider.inventories.items()}
        for provider in cloud.providers
        if provider.inventories
    }
    if inventories:
        _reshape(request, inventories, generations, {})


def import_records(cloud: Cloud) -> Iterator[Record]:
    """Yield records with which an import creates what `load` does, except that generations may differ."""
    for provider in cloud.providers:
        yield ProviderRecord(
            uuid=provider.uuid,
            name=provider.name,
            parent_uuid=uuid_of(provider.parent) if provider.parent else None,
            traits=sorted(provider.traits),
            aggregates=[uuid_of(name) for name in sorted(provider.aggregates)],
            inventories={
                name: StoredInventory(**_inventory(inventory))
                for name, inventory in provider.inventories.items()
            },
        )
    for name in CONSUMERS:
        if used := _usages(cloud, name):
            yield Claim(uuid_of(name), "project", "user", "INSTANCE", None, used)


def unload(cloud: Cloud, request: Call) -> None:
    """Delete over HTTP what `load` created, except aggregates, project, user and consumer type.

    Raises `AssertionError` if a request is refused.
    """
    for name in CONSUMERS:
        if _usages(cloud, name):
            _send(request, "DELETE", f"/allocations/{uuid_of(name)}")
    for provider in reversed(cloud.providers):
        _send(request, "DELETE", f"/resource_providers/{provider.uuid}")


def _usages(cloud: Cloud, consumer: str) -> dict[str, dict[str, int]]:
    usages = {
        provider.uuid: {
            name: used
            for name, inventory in provider.inventories.items()
            if (used := inventory.used_by(consumer))
        }
        for provider in cloud.providers
    }
    return {uuid: used for uuid, used in usages.items() if used}


def _inventory(inventory: Inventory) -> dict[str, Any]:
    units = ["total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio"]
    return {unit: getattr(inventory, unit) for unit in units}


def _reshape(
    request: Call,
    inventories: Mapping[str, Mapping[str, Any]],
    generations: Mapping[str, int],
    allocations: Mapping[str, Any],
) -> None:
    body = {
        "inventories": {
            uuid: {"resource_provider_generation": generations[uuid], "inventories": records}
            for uuid, records in inventories.items()
        },
        "allocations": allocations,
    }
    _send(request, "POST", "/reshaper", body)


def _send(request: Call, method: str, path: str, body: Any = None) -> Any:
    status, response = request(method, path, json=body, headers=_HEADERS)
    assert status < 300, (method, path, status, response)
    return response
