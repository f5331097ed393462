"""Clouds as plain data: what providers there are, and what is held of them.

Names are the same in every run, and so are the uuids made of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5

import os_traits

HOST = {"VCPU": 32, "MEMORY_MB": 131_072, "DISK_GB": 2_000}
INSTANCE = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 10}
INSTANCES = 20
"""How many instances a host of `flat_with_instances` has."""

TO_THE_BRIM = 16
"""How many instances fill up a provider: of what it has there is a multiple of that."""

TRAITS = tuple(sorted(name for name in os_traits.get_traits() if name.startswith("COMPUTE_NET_")))
"""Traits that every host has."""

CPU_TRAIT = "HW_CPU_X86_AVX2"
RARE_TRAIT = "CUSTOM_RARE"
FEW = 3
"""How many hosts have the rare trait, and how many of a full cloud are free."""

ZONES = 2
HOSTS_AT_A_STORAGE = 100
DEVICES = 8
DEVICE = "CUSTOM_DEVICE"
ENDLESS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Provider:
    """A resource provider. `inventories` tells the total of each class; parent and aggregates are names."""

    name: str
    inventories: Mapping[str, int]
    parent: str | None = None
    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer that holds `resources` of one provider, which is named."""

    name: str
    provider: str
    resources: Mapping[str, int]


@dataclass(frozen=True)
class Cloud:
    """Providers, parents before their children, and the consumers that hold of them."""

    providers: tuple[Provider, ...]
    consumers: tuple[Consumer, ...] = ()


def uuid_of(name: str) -> str:
    """Return the uuid of the provider, aggregate or consumer of this name."""
    return str(uuid5(NAMESPACE_URL, f"bench:{name}"))


def host_names(hosts: int) -> list[str]:
    """Return the names of the hosts of a cloud."""
    return [f"host{number}" for number in range(hosts)]


def zone(number: int) -> str:
    """Return the name of the aggregate that every `ZONES`-th host is in."""
    return f"zone{number % ZONES}"


def flat(hosts: int) -> Cloud:
    """Return hosts that are one provider each; the last `FEW` have a trait that the others lack."""
    return Cloud(
        tuple(
            Provider(
                name,
                HOST,
                traits=(*TRAITS, CPU_TRAIT, *((RARE_TRAIT,) if number >= hosts - FEW else ())),
                aggregates=(zone(number),),
            )
            for number, name in enumerate(host_names(hosts))
        )
    )


def flat_with_instances(hosts: int) -> Cloud:
    """Return flat hosts with `INSTANCES` instances each."""
    instances = (
        Consumer(f"{name}-instance{number}", name, INSTANCE)
        for name in host_names(hosts)
        for number in range(INSTANCES)
    )
    return Cloud(flat(hosts).providers, tuple(instances))


def full(hosts: int) -> Cloud:
    """Return flat hosts that are filled up, but for the last `FEW`."""
    providers = flat(hosts).providers
    return Cloud(providers, tuple(_instances_to_the_brim(providers[: max(0, hosts - FEW)])))


def full_nested(hosts: int) -> Cloud:
    """Return nested hosts whose NUMA nodes are filled up, but for those of the last `FEW` hosts."""
    providers = nested(hosts).providers
    free = set(host_names(hosts)[-FEW:])
    nodes = (provider for provider in providers if "VCPU" in provider.inventories)
    return Cloud(providers, tuple(_instances_to_the_brim(node for node in nodes if node.parent not in free)))


def _instances_to_the_brim(providers: Iterable[Provider]) -> Iterator[Consumer]:
    """Yield `TO_THE_BRIM` instances for each provider, who hold all that it has."""
    for provider in providers:
        share = {name: total // TO_THE_BRIM for name, total in provider.inventories.items()}
        for number in range(TO_THE_BRIM):
            yield Consumer(f"{provider.name}-instance{number}", provider.name, share)


def endless(hosts: int) -> Cloud:
    """Return flat hosts that no run of claims can fill."""
    return Cloud(tuple(Provider(name, dict.fromkeys(HOST, ENDLESS)) for name in host_names(hosts)))


def nested(hosts: int) -> Cloud:
    """Return hosts of seven providers: the disk, two NUMA nodes, a card and an accelerator in each node."""
    return Cloud(tuple(provider for name in host_names(hosts) for provider in _nested_host(name)))


def _nested_host(host: str) -> Iterator[Provider]:
    yield Provider(host, {"DISK_GB": HOST["DISK_GB"]}, traits=TRAITS)
    for node in (f"{host}-numa0", f"{host}-numa1"):
        inventories = {"VCPU": HOST["VCPU"], "MEMORY_MB": HOST["MEMORY_MB"]}
        yield Provider(node, inventories, host, ("HW_NUMA_ROOT", CPU_TRAIT))
        yield Provider(f"{node}-card", {"SRIOV_NET_VF": 8}, node)
        yield Provider(f"{node}-accelerator", {DEVICE: 2}, node)


def shared(hosts: int) -> Cloud:
    """Return hosts without disks, and for every `HOSTS_AT_A_STORAGE` of them a storage that they share."""
    aggregates = [f"pool{number // HOSTS_AT_A_STORAGE}" for number in range(hosts)]
    storages = (
        Provider(
            f"storage of {aggregate}",
            {"DISK_GB": ENDLESS},
            traits=(os_traits.MISC_SHARES_VIA_AGGREGATE,),
            aggregates=(aggregate,),
        )
        for aggregate in dict.fromkeys(aggregates)
    )
    inventories = {"VCPU": HOST["VCPU"], "MEMORY_MB": HOST["MEMORY_MB"]}
    computes = (
        Provider(name, inventories, traits=TRAITS, aggregates=(aggregate,))
        for name, aggregate in zip(host_names(hosts), aggregates, strict=True)
    )
    return Cloud((*storages, *computes))


def pci(hosts: int) -> Cloud:
    """Return hosts with `DEVICES` devices each, every device a child provider with one unit."""
    return Cloud(tuple(provider for name in host_names(hosts) for provider in _pci_host(name)))


def _pci_host(host: str) -> Iterator[Provider]:
    yield Provider(host, HOST, traits=TRAITS)
    for number in range(DEVICES):
        yield Provider(f"{host}-device{number}", {DEVICE: 1}, host)
