"""Racks of hosts for the demo, with NUMA nodes, network cards, GPUs and shared storage, and their consumers.

All racks have `HOSTS_PER_RACK` hosts, except for the last one. Their aggregates are those of the rack and of
one of `ZONES` zones. Which host has what follows from the numbers of the rack and of the host:

* Every fourth rack has GPUs.
* Hosts of even racks have no disk: they use the shared storage of their zone.
* Hosts from rack 7 on have AVX-512.
* All VCPUs in the rack `FULL_RACK` are in use.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import os_traits

from placement_svc.demo.records import consumer, provider
from placement_svc.domain.allocations import Claim
from placement_svc.domain.inventory import Inventory
from placement_svc.domain.records import ProviderRecord, Record, TraitRecord

HOSTS_PER_RACK = 20
ZONES = 3
FULL_RACK = 3

GPU, PUBLIC_NETWORK = "CUSTOM_GPU_A100", "CUSTOM_PHYSNET_PUBLIC"
"""The custom traits of the GPUs and of the network cards."""

NODE_INVENTORIES = {
    "VCPU": Inventory(32, reserved=2, allocation_ratio=2.0),
    "MEMORY_MB": Inventory(131072, reserved=4096),
}
VOLUMES_PER_POOL = 12

PROJECTS = ("web", "web", "web", "data", "data", "batch", "research", "ci")

SIZES = (
    {"VCPU": 4, "MEMORY_MB": 8192, "DISK_GB": 40},
    {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 80},
    {"VCPU": 16, "MEMORY_MB": 32768, "DISK_GB": 160},
)
"""The amounts of servers. Three of the largest fit on a NUMA node, together with a server with a GPU."""

FULL_SIZE = {"VCPU": 20, "MEMORY_MB": 40960, "DISK_GB": 200}
"""The amounts of the servers in the full rack: three of them use all VCPUs of a NUMA node."""

GPU_SIZE = {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100}


@dataclass(frozen=True)
class RackHost:
    """A host, with its number in the cloud and in its rack; all numbers count from 1."""

    number: int

    @property
    def rack(self) -> int:
        """The number of the rack."""
        return (self.number - 1) // HOSTS_PER_RACK + 1

    @property
    def zone(self) -> int:
        """The number of the zone."""
        return (self.rack - 1) % ZONES + 1

    @property
    def name(self) -> str:
        """The name, such as ``rack03-host07``."""
        return f"rack{self.rack:02}-host{(self.number - 1) % HOSTS_PER_RACK + 1:02}"

    @property
    def has_disk(self) -> bool:
        """Whether it has a disk of its own."""
        return self.rack % 2 == 1

    @property
    def has_gpus(self) -> bool:
        """Whether each of its NUMA nodes has a GPU."""
        return self.rack % 4 == 0

    @property
    def storage(self) -> str:
        """The name of the provider of its storage."""
        return self.name if self.has_disk else _pool_name(self.zone)

    def node(self, number: int) -> str:
        """Return the name of one of its NUMA nodes, 0 or 1."""
        return f"{self.name}-numa{number}"


def has_any_gpu(hosts: int) -> bool:
    """Return whether any of so many hosts has a GPU."""
    return any(RackHost(number).has_gpus for number in range(1, hosts + 1))


def _pool_name(zone: int) -> str:
    return f"zone{zone}-pool"


def rack_records(hosts: int) -> Iterator[Record]:
    """Yield the providers and consumers of this number of hosts, and of the shared storage."""
    if not hosts:
        return
    yield TraitRecord(GPU)
    yield TraitRecord(PUBLIC_NETWORK)
    for zone in range(1, ZONES + 1):
        yield from _pool(zone, hosts)
    for number in range(1, hosts + 1):
        host = RackHost(number)
        yield from _host(host)
        yield from _servers(host)


def _pool(zone: int, hosts: int) -> Iterator[Record]:
    """Yield the shared storage of a zone, and volumes in it."""
    name = _pool_name(zone)
    yield provider(
        name,
        {"DISK_GB": Inventory(20_000 + 1000 * hosts)},
        traits=(os_traits.MISC_SHARES_VIA_AGGREGATE, os_traits.STORAGE_DISK_SSD),
        aggregates=(f"storage {zone}", f"zone {zone}"),
    )
    for number in range(VOLUMES_PER_POOL):
        amounts = {"DISK_GB": 100 * (number % 5 + 1)}
        yield consumer(f"{name}-volume{number}", PROJECTS[number % len(PROJECTS)], {name: amounts}, "VOLUME")


def _host(host: RackHost) -> Iterator[ProviderRecord]:
    """Yield a host with its NUMA nodes, network card and GPUs."""
    traits = [os_traits.COMPUTE_NODE, os_traits.HW_CPU_X86_AVX2]
    if host.rack >= 7:
        traits.append(os_traits.HW_CPU_X86_AVX512F)
    if host.number == 87:
        traits.append(os_traits.COMPUTE_STATUS_DISABLED)
    aggregates = [f"rack {host.rack}", f"zone {host.zone}"]
    if not host.has_disk:
        aggregates.append(f"storage {host.zone}")
    disk = {"DISK_GB": Inventory(2000)} if host.has_disk else {}
    yield provider(host.name, disk, traits=tuple(traits), aggregates=tuple(aggregates))
    for number in range(2):
        node = host.node(number)
        yield provider(node, NODE_INVENTORIES, parent=host.name, traits=(os_traits.HW_NUMA_ROOT,))
        if host.has_gpus:
            yield provider(f"{host.name}-gpu{number}", {"PGPU": Inventory(1)}, parent=node, traits=(GPU,))
    network = (os_traits.HW_NIC_SRIOV, PUBLIC_NETWORK)
    functions = {"SRIOV_NET_VF": Inventory(16)}
    yield provider(f"{host.name}-nic", functions, parent=host.node(0), traits=network)


def _servers(host: RackHost) -> Iterator[Claim]:
    """Yield the consumers of a host: the servers on its two NUMA nodes in turn."""
    is_full = host.rack == FULL_RACK
    count = 6 if is_full else (host.number * 5 + host.rack) % 7
    for slot in range(count):
        size = FULL_SIZE if is_full else SIZES[(host.number + slot) % len(SIZES)]
        allocations = _allocations(host, slot % 2, size)
        if slot == 0:
            allocations[f"{host.name}-nic"] = {"SRIOV_NET_VF": 1}
        project = PROJECTS[(host.number // 3 + slot) % len(PROJECTS)]
        yield consumer(f"{host.name}-server{slot}", project, allocations)
    if host.has_gpus and host.number % 3:
        allocations = _allocations(host, 0, GPU_SIZE)
        allocations[f"{host.name}-gpu0"] = {"PGPU": 1}
        yield consumer(f"{host.name}-gpu-server", "research", allocations)


def _allocations(host: RackHost, node: int, size: Mapping[str, int]) -> dict[str, Mapping[str, int]]:
    """Return the allocations of a server on a NUMA node, by the name of the provider."""
    return {
        host.node(node): {name: size[name] for name in NODE_INVENTORIES},
        host.storage: {"DISK_GB": size["DISK_GB"]},
    }
