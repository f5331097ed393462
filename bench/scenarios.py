"""The scenarios: each has a cloud, and requests whose number of candidates is known."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from bench import clouds, filters, ordered
from bench.clouds import CPU_TRAIT, DEVICE, DEVICES, MATCHING_HOSTS, RARE_TRAIT, Cloud, uuid_of, zone
from bench.filters import Filter
from bench.services import VERSION, VERSION_WITH_EXTENSIONS

LIMITS = (10, 1000)
"""Each request is sent once per limit."""


@dataclass(frozen=True)
class Request:
    """A request for allocation candidates.

    `query` does not include the limit. `candidates` returns the number of candidates without a limit, for a
    number of hosts. The report compares the time with that of the request `compared_with` of the scenario.
    """

    name: str
    query: str
    candidates: Callable[[int], int]
    compared_with: str | None = None


@dataclass(frozen=True)
class Scenario:
    """Requests for a cloud, which `cloud` returns for a number of hosts.

    The cloud has at most `max_hosts` hosts. If `with_reference` is false, the reference is not measured
    because it would not finish, or does not know the query. `version` is that of the requests, as in their
    header.
    """

    name: str
    cloud: Callable[[int], Cloud]
    requests: tuple[Request, ...]
    max_hosts: int | None = None
    with_reference: bool = True
    version: str = VERSION

    def hosts(self, requested: int) -> int:
        """Return the number of hosts of the cloud if this number was requested."""
        return requested if self.max_hosts is None else min(requested, self.max_hosts)


def _matching_hosts(hosts: int) -> int:
    return min(hosts, MATCHING_HOSTS)


def _device_request(count: int) -> Request:
    """Return a request with one suffixed group per device, so that each permutation is a candidate."""
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


def _filtered(query: str, all_filters: Iterable[Filter]) -> tuple[Request, ...]:
    """Return the query with each of the filters; it has one candidate in each host that matches."""
    return tuple(
        Request(each.name, query + each.query, each.count, compared_with=filters.NONE.name)
        for each in all_filters
    )


def _ordered(query: str, resource_class: str = "VCPU") -> tuple[Request, ...]:
    """Return the query in each order, by what is free of a class; it has one candidate in each host."""
    return tuple(
        Request(name, query + order, lambda hosts: hosts, compared_with=ordered.UNORDERED)
        for name, order in ordered.orders(resource_class).items()
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
    Scenario(
        "rare",
        clouds.flat,
        (Request("a trait of 3 hosts", f"{SMALL}&required={RARE_TRAIT}", _matching_hosts),),
    ),
    Scenario("none", clouds.flat, (Request("more than any host has", "resources=VCPU:1000", lambda _: 0),)),
    Scenario(
        "instances", clouds.flat_with_instances, (Request("a small instance", SMALL, lambda hosts: hosts),)
    ),
    Scenario("full", clouds.full, (Request("3 hosts are free", SMALL, _matching_hosts),)),
    Scenario("nested", clouds.nested, (NESTED,)),
    Scenario(
        "full-nested",
        clouds.full_nested,
        (replace(NESTED, name="3 hosts are free", candidates=lambda hosts: 2 * _matching_hosts(hosts)),),
    ),
    Scenario("shared", clouds.shared, (Request("shared disk", SMALL, lambda hosts: hosts),)),
    Scenario(
        "filters",
        filters.flat,
        _filtered(SMALL, filters.HOST_FILTERS),
    ),
    Scenario(
        "filters-nested",
        filters.nested,
        _filtered(NESTED.query, (*filters.HOST_FILTERS, *filters.CHILD_FILTERS)),
    ),
    Scenario("ordered", ordered.flat, _ordered(SMALL), with_reference=False, version=VERSION_WITH_EXTENSIONS),
    Scenario(
        "ordered-nested",
        ordered.nested,
        _ordered(NESTED.query),
        with_reference=False,
        version=VERSION_WITH_EXTENSIONS,
    ),
    Scenario(
        "ordered-shared",
        ordered.shared,
        _ordered(SMALL, "DISK_GB"),
        with_reference=False,
        version=VERSION_WITH_EXTENSIONS,
    ),
    Scenario("pci", clouds.pci, tuple(_device_request(count) for count in (2, 4, 6, 8)), max_hosts=100),
    Scenario("pci-alone", clouds.pci, (_device_request(DEVICES),), max_hosts=1000, with_reference=False),
)
