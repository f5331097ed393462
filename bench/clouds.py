"""Clouds as plain data: resource providers, and consumers with their allocations.

A cloud is the same in every run: each uuid is derived from a name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import NAMESPACE_URL, uuid5

import os_traits

HOST = {"VCPU": 32, "MEMORY_MB": 131_072, "DISK_GB": 2_000}
INSTANCE = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 10}
INSTANCES_PER_HOST = 20
"""Instances on each host of `flat_with_instances`."""

INSTANCES_PER_FULL_PROVIDER = 16
"""Instances that fill a provider; the total of each of its inventories is a multiple of this number."""

TRAITS = tuple(sorted(name for name in os_traits.get_traits() if name.startswith("COMPUTE_NET_")))
"""Traits of every host."""

CPU_TRAIT = "HW_CPU_X86_AVX2"
RARE_TRAIT = "CUSTOM_RARE"
MATCHING_HOSTS = 3
"""Hosts with the rare trait; hosts without instances in a full cloud."""

FREE_SLOTS = 40
"""Instances that fit into a nearly full cloud, each on another host."""

ZONES = 2
HOSTS_PER_STORAGE = 100
DEVICES = 8
DEVICE = "CUSTOM_DEVICE"
UNLIMITED = 2_000_000_000
"""A total that no run of the benchmark can allocate."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A resource provider.

    `inventories` has the total of each resource class. `parent` and `aggregates` are names.
    """

    name: str
    inventories: Mapping[str, int]
    parent: str | None = None
    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer with one allocation: `resources` of the provider with the name `provider`."""

    name: str
    provider: str
    resources: Mapping[str, int]


@dataclass(frozen=True)
class Cloud:
    """Providers, with each parent before its children, and consumers."""

    providers: tuple[Provider, ...]
    consumers: tuple[Consumer, ...] = ()


def uuid_of(name: str) -> str:
    """Return the uuid of the provider, aggregate or consumer with this name."""
    return str(uuid5(NAMESPACE_URL, f"bench:{name}"))


def host_names(hosts: int) -> list[str]:
    """Return the names of the hosts of a cloud."""
    return [f"host{number}" for number in range(hosts)]


def zone(number: int) -> str:
    """Return the name of the aggregate of a host; the hosts are divided evenly among `ZONES` aggregates."""
    return f"zone{number % ZONES}"


def flat(hosts: int) -> Cloud:
    """Return hosts of one provider each; only the last `MATCHING_HOSTS` have the rare trait."""
    return Cloud(
        tuple(
            Provider(
                name,
                HOST,
                traits=(*TRAITS, CPU_TRAIT, *((RARE_TRAIT,) if number >= hosts - MATCHING_HOSTS else ())),
                aggregates=(zone(number),),
            )
            for number, name in enumerate(host_names(hosts))
        )
    )


def flat_with_instances(hosts: int) -> Cloud:
    """Return flat hosts with `INSTANCES_PER_HOST` instances each."""
    instances = (
        Consumer(f"{name}-instance{number}", name, INSTANCE)
        for name in host_names(hosts)
        for number in range(INSTANCES_PER_HOST)
    )
    return Cloud(flat(hosts).providers, tuple(instances))


def full(hosts: int) -> Cloud:
    """Return flat hosts; all except the last `MATCHING_HOSTS` are full."""
    providers = flat(hosts).providers
    return Cloud(providers, tuple(_filling_instances(providers[: max(0, hosts - MATCHING_HOSTS)])))


def free_slots(hosts: int) -> Cloud:
    """Return flat hosts that are full, except that the last `FREE_SLOTS` have room for one instance each."""
    providers = flat(hosts).providers
    count = min(hosts, FREE_SLOTS)
    rest = {name: total - INSTANCE[name] for name, total in HOST.items()}
    nearly_full = [Consumer(f"{each.name}-rest", each.name, rest) for each in providers[hosts - count :]]
    return Cloud(providers, (*_filling_instances(providers[: hosts - count]), *nearly_full))


def full_nested(hosts: int) -> Cloud:
    """Return nested hosts; all NUMA nodes except those of the last `MATCHING_HOSTS` hosts are full."""
    providers = nested(hosts).providers
    free = set(host_names(hosts)[-MATCHING_HOSTS:])
    nodes = (provider for provider in providers if "VCPU" in provider.inventories)
    return Cloud(providers, tuple(_filling_instances(node for node in nodes if node.parent not in free)))


def _filling_instances(providers: Iterable[Provider]) -> Iterator[Consumer]:
    """Yield `INSTANCES_PER_FULL_PROVIDER` instances for each provider, which use all of its inventories."""
    for provider in providers:
        share = {name: total // INSTANCES_PER_FULL_PROVIDER for name, total in provider.inventories.items()}
        for number in range(INSTANCES_PER_FULL_PROVIDER):
            yield Consumer(f"{provider.name}-instance{number}", provider.name, share)


def unlimited(hosts: int) -> Cloud:
    """Return hosts of one provider each, which no run of claims can fill."""
    return Cloud(tuple(Provider(name, dict.fromkeys(HOST, UNLIMITED)) for name in host_names(hosts)))


def nested(hosts: int) -> Cloud:
    """Return hosts of seven providers: a root with the disk, and two NUMA nodes with two devices each.

    The devices of a NUMA node are a network card and an accelerator.
    """
    return Cloud(tuple(provider for name in host_names(hosts) for provider in _nested_host(name)))


def _nested_host(host: str) -> Iterator[Provider]:
    yield Provider(host, {"DISK_GB": HOST["DISK_GB"]}, traits=TRAITS)
    for node in (f"{host}-numa0", f"{host}-numa1"):
        inventories = {"VCPU": HOST["VCPU"], "MEMORY_MB": HOST["MEMORY_MB"]}
        yield Provider(node, inventories, host, ("HW_NUMA_ROOT", CPU_TRAIT))
        yield Provider(f"{node}-card", {"SRIOV_NET_VF": 8}, node)
        yield Provider(f"{node}-accelerator", {DEVICE: 2}, node)


def nested_zones(hosts: int) -> Cloud:
    """Return hosts of five providers: a root with disk in a zone, and two NUMA nodes with a network card."""
    return Cloud(
        tuple(
            replace(provider, aggregates=(zone(number),)) if provider.parent is None else provider
            for number, name in enumerate(host_names(hosts))
            for provider in _nested_host(name)
            if DEVICE not in provider.inventories
        )
    )


def shared(hosts: int) -> Cloud:
    """Return hosts without disks; one provider shares a disk with each `HOSTS_PER_STORAGE` hosts."""
    aggregates = [f"pool{number // HOSTS_PER_STORAGE}" for number in range(hosts)]
    storages = (
        Provider(
            f"storage of {aggregate}",
            {"DISK_GB": UNLIMITED},
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
    """Return hosts with `DEVICES` child providers each; each child is a device, with one unit."""
    return Cloud(tuple(provider for name in host_names(hosts) for provider in _pci_host(name)))


def _pci_host(host: str) -> Iterator[Provider]:
    yield Provider(host, HOST, traits=TRAITS)
    for number in range(DEVICES):
        yield Provider(f"{host}-device{number}", {DEVICE: 1}, host)
