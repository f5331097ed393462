"""Clouds in which searches are expensive, as import records; a name and a seed determine each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from sqlalchemy import Engine

from placement_svc.db import imports
from placement_svc.db.connections.engine import Database
from placement_svc.domain.allocations import Claim
from placement_svc.domain.inventory import Inventory
from placement_svc.domain.placement_groups import POLICIES, PlacementGroup
from placement_svc.domain.records import (
    PlacementGroupRecord,
    ProviderRecord,
    Record,
    ResourceClassRecord,
    TraitRecord,
)
from tests.support.cloud import SHARING

CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB", *(f"CUSTOM_C{number}" for number in range(7)))
COMMON_TRAITS = ("HW_CPU_X86_AVX2", "HW_NUMA_ROOT", *(f"CUSTOM_T{number}" for number in range(8)))


@dataclass
class Cloud:
    """Records of a cloud, and the names that requests can use."""

    name: str
    seed: int
    records: list[Record] = field(default_factory=list)
    classes: tuple[str, ...] = CLASSES
    traits: tuple[str, ...] = COMMON_TRAITS
    aggregates: tuple[str, ...] = ()

    @property
    def providers(self) -> list[ProviderRecord]:
        """All providers."""
        return [record for record in self.records if isinstance(record, ProviderRecord)]

    @property
    def consumers(self) -> list[Claim]:
        """All consumers with their allocations."""
        return [record for record in self.records if isinstance(record, Claim)]

    @property
    def groups(self) -> list[str]:
        """The uuids of all placement groups."""
        return [record.group.uuid for record in self.records if isinstance(record, PlacementGroupRecord)]

    def load(self, engine: Engine) -> None:
        """Import the records into a database with the schema."""
        custom: list[Record] = [TraitRecord(name) for name in self.traits if name.startswith("CUSTOM_")]
        custom += [ResourceClassRecord(name) for name in self.classes if name.startswith("CUSTOM_")]
        records = enumerate(custom + self.records, 1)
        imports.load(Database(engine), records, allow_overcommitted=True)


class Builder:
    """Adds random providers to a cloud."""

    def __init__(self, cloud: Cloud, random: Random) -> None:
        self.cloud = cloud
        self.random = random

    def pick(self, *members: int) -> int:
        """Draw one of the arguments."""
        return self.random.choice(members)

    def uuid(self) -> str:
        """Return a new uuid."""
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def some(self, members: tuple[str, ...], most: int) -> tuple[str, ...]:
        """Draw at most `most` different members."""
        return tuple(self.random.sample(members, self.random.randint(0, min(most, len(members)))))

    def add(
        self,
        parent: str | None = None,
        *,
        total: int = 8,
        classes: tuple[str, ...] = CLASSES[:3],
        traits: int = 3,
    ) -> str:
        """Add a provider with `total` of each class and up to `traits` traits; return its uuid."""
        uuid = self.uuid()
        self.cloud.records.append(
            ProviderRecord(
                uuid=uuid,
                name=f"{self.cloud.name}-{len(self.cloud.records)}",
                parent_uuid=parent,
                traits=self.some(self.cloud.traits, traits),
                aggregates=self.some(self.cloud.aggregates, 2),
                inventories={name: Inventory(total, max_unit=total) for name in classes},
            )
        )
        return uuid

    def share(self, aggregates: tuple[str, ...]) -> None:
        """Add a sharing provider of storage classes."""
        self.cloud.records.append(
            ProviderRecord(
                uuid=self.uuid(),
                name=f"{self.cloud.name}-{len(self.cloud.records)}",
                parent_uuid=None,
                traits=(SHARING, *self.some(COMMON_TRAITS, 3)),
                aggregates=aggregates,
                inventories={name: Inventory(1000) for name in CLASSES[2:]},
            )
        )

    def consume(self, count: int) -> None:
        """Add consumers that have allocations from one provider, or from many."""
        providers = [provider for provider in self.cloud.providers if provider.inventories]
        for number in range(count):
            used = self.random.sample(providers, min(self.pick(1, 1, 1, 1, 1, 1, 2, 30), len(providers)))
            allocations = {provider.uuid: {next(iter(provider.inventories)): 1} for provider in used}
            self.cloud.records.append(
                Claim(self.uuid(), f"project-{number % 7}", "user-0", "INSTANCE", None, allocations)
            )

    def group(self) -> None:
        """Add placement groups of each policy, across roots and across aggregates, with members."""
        consumers = [consumer.consumer_uuid for consumer in self.cloud.consumers]
        for policy in POLICIES:
            for aggregates in (None, self.cloud.aggregates[: self.pick(1, 20, 1000)]):
                count = self.pick(0, 1, 30, 300, 3000)
                members, consumers = consumers[:count], consumers[count:]
                most = self.pick(1, 3) if policy.endswith("anti-affinity") else None
                group = PlacementGroup(self.uuid(), policy, most, aggregates)
                self.cloud.records.append(PlacementGroupRecord(group, members))


def _wide(build: Builder) -> None:
    """One to three roots, each with very many children."""
    for _ in range(build.pick(1, 2, 3)):
        root = build.add(classes=CLASSES[1:3])
        for _ in range(build.pick(100, 500, 2000)):
            build.add(root, total=build.pick(1, 2, 8), classes=build.some(CLASSES, 4))
    build.consume(build.pick(0, 30, 300))


def _racks(build: Builder) -> None:
    """Hosts in up to a thousand aggregates, with consumers in placement groups across these."""
    build.cloud.aggregates = tuple(build.uuid() for _ in range(build.pick(20, 300, 1000)))
    for _ in range(build.pick(100, 1000, 3000)):
        host = build.add(total=64, classes=CLASSES[:2])
        build.add(host, total=64, classes=CLASSES[:4])
    build.consume(build.pick(100, 1000, 5000))


def _deep(build: Builder) -> None:
    """Long chains of providers, each with one further child."""
    for _ in range(build.pick(1, 5)):
        parent = build.add()
        for _ in range(build.pick(30, 100, 400)):
            build.add(parent, total=build.pick(1, 4), classes=build.some(CLASSES, 3))
            parent = build.add(parent, total=build.pick(1, 4), classes=build.some(CLASSES, 3))
    build.consume(build.pick(0, 30, 300))


def _sharing(build: Builder) -> None:
    """Hosts that very many sharing providers supply."""
    for _ in range(build.pick(20, 100, 500)):
        host = build.add(classes=CLASSES[:2])
        build.add(host, classes=CLASSES[:2])
    for _ in range(build.pick(20, 100, 500)):
        build.share(build.cloud.aggregates[: build.pick(1, 3, 20)])
    build.consume(build.pick(0, 30, 300))


def _traits(build: Builder) -> None:
    """Hosts with hundreds of traits."""
    build.cloud.traits = (*COMMON_TRAITS, *(f"CUSTOM_T{number}" for number in range(8, 2000)))
    for _ in range(build.pick(50, 300)):
        build.add(traits=build.pick(10, 100, 400))


def _flat(build: Builder) -> None:
    """Thousands of hosts without children."""
    for _ in range(build.pick(1000, 5000)):
        build.add(total=build.pick(1, 8, 64), classes=CLASSES[: build.pick(3, 10)])


def _tight(build: Builder) -> None:
    """Trees whose many equal children are just too few, or have just too little, for a request."""
    for _ in range(build.pick(1, 4, 30)):
        root = build.add(classes=CLASSES[:1], total=1)
        for _ in range(build.pick(1, 3)):
            node = build.add(root, classes=(), total=1)
            for _ in range(build.pick(5, 8, 16, 30)):
                build.add(
                    node, total=build.pick(1, 1, 2), classes=CLASSES[3 : build.pick(4, 5, 10)], traits=5
                )


def _instances(build: Builder) -> None:
    """Hosts with many consumers, and consumers with allocations on many hosts."""
    hosts = [build.add(total=100_000) for _ in range(build.pick(100, 1000))]
    for number in range(build.pick(200, 10_000)):
        on = build.random.sample(hosts, build.pick(1, 1, 1, 50) if number % 50 == 0 else 1)
        allocations = {uuid: dict.fromkeys(CLASSES[:3], 1) for uuid in on}
        claim = Claim(
            build.uuid(), f"project-{number % 7}", f"user-{number % 31}", "INSTANCE", None, allocations
        )
        build.cloud.records.append(claim)


BUILDERS: dict[str, Callable[[Builder], None]] = {
    build.__name__.removeprefix("_"): build
    for build in (_wide, _tight, _sharing, _racks, _deep, _flat, _traits, _instances)
}


def build(name: str, seed: int) -> Cloud:
    """Return the cloud that a name of `BUILDERS` and a seed determine."""
    random = Random(f"{name}/{seed}")
    cloud = Cloud(name, seed)
    builder = Builder(cloud, random)
    cloud.aggregates = tuple(builder.uuid() for _ in range(20))
    BUILDERS[name](builder)
    builder.group()
    return cloud


def names(seed: int) -> Iterator[tuple[str, int]]:
    """Yield the name and seed of one cloud after another, without end; each kind as often as the others."""
    while True:
        for name in BUILDERS:
            yield name, seed
        seed += 1
