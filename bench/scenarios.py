"""The scenarios: a cloud each, and requests for candidates whose numbers are known."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from bench import clouds
from bench.clouds import CPU_TRAIT, DEVICE, DEVICES, FEW, RARE_TRAIT, Cloud, uuid_of, zone

LIMITS = (10, 1000)
"""Every request is asked with each of these limits."""


@dataclass(frozen=True)
class Request:
    """A request for candidates.

    `query` lacks the limit. `candidates` tells how many there are without one, by the number of hosts.
    """

    name: str
    query: str
    candidates: Callable[[int], int]


@dataclass(frozen=True)
class Scenario:
    """A cloud, made for a number of hosts, and what it is asked.

    A scenario has no more than `most_hosts` hosts. Where `with_reference` is false the reference is left
    out: it would not finish.
    """

    name: str
    cloud: Callable[[int], Cloud]
    requests: tuple[Request, ...]
    most_hosts: int | None = None
    with_reference: bool = True

    def hosts(self, wanted: int) -> int:
        """Return how many hosts the cloud has when so many are wanted."""
        return wanted if self.most_hosts is None else min(wanted, self.most_hosts)


def _few(hosts: int) -> int:
    return min(hosts, FEW)


def _of_devices(count: int) -> Request:
    """Return a request for so many devices, each a group of its own: every order is a candidate."""
    groups = "".join(f"&resources{number}={DEVICE}:1" for number in range(1, count + 1))
    return Request(
        f"{count} of {DEVICES} devices",
        f"resources=VCPU:1{groups}&group_policy=isolate",
        lambda hosts: hosts * math.perm(DEVICES, count),
    )


SMALL = "resources=VCPU:1,MEMORY_MB:512,DISK_GB:10"

NESTED = Request(
    "CPU and network of one NUMA node",
    "resources=DISK_GB:10&resources_C=VCPU:2,MEMORY_MB:512&resources_N=SRIOV_NET_VF:1"
    "&same_subtree=_C,_N&group_policy=none",
    lambda hosts: 2 * hosts,
)

SCENARIOS = (
    Scenario(
        "flat",
        clouds.flat,
        (
            Request(
                "an aggregate and a trait",
                "resources=VCPU:1,DISK_GB:10,MEMORY_MB:256"
                f"&member_of={uuid_of(zone(0))}&required={CPU_TRAIT}",
                lambda hosts: math.ceil(hosts / clouds.ZONES),
            ),
        ),
    ),
    Scenario("rare", clouds.flat, (Request("a trait of 3 hosts", f"{SMALL}&required={RARE_TRAIT}", _few),)),
    Scenario("none", clouds.flat, (Request("more than any host has", "resources=VCPU:1000", lambda _: 0),)),
    Scenario(
        "instances", clouds.flat_with_instances, (Request("a small instance", SMALL, lambda hosts: hosts),)
    ),
    Scenario("full", clouds.full, (Request("3 hosts are free", SMALL, _few),)),
    Scenario("nested", clouds.nested, (NESTED,)),
    Scenario(
        "full-nested",
        clouds.full_nested,
        (replace(NESTED, name="3 hosts are free", candidates=lambda hosts: 2 * _few(hosts)),),
    ),
    Scenario("shared", clouds.shared, (Request("shared disk", SMALL, lambda hosts: hosts),)),
    Scenario("pci", clouds.pci, tuple(_of_devices(count) for count in (2, 4, 6, 8)), most_hosts=100),
    Scenario("pci-alone", clouds.pci, (_of_devices(DEVICES),), most_hosts=1000, with_reference=False),
)
