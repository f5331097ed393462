"""Hosts that differ, and requests whose filters match a part of them.

The hosts of the flat and of the nested cloud have the same zones, racks and traits. A request has one
candidate in each host for which `Filter.matches` is true.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.clouds import HOST, TRAITS, Cloud, Provider, host_names, uuid_of

ZONES = 4
HOSTS_PER_RACK = 40
LICENSE_TRAIT = "CUSTOM_LICENSE"
HOSTS_PER_LICENSE = 3
SCARCE_TRAIT = "CUSTOM_SCARCE"
HOSTS_PER_SCARCE_TRAIT = 50
COMMON_TRAIT = "CUSTOM_COMMON"
"""The trait of the hosts without the scarce one."""
RACKS = tuple(range(11, 240, 12))
"""The racks that requests name: twenty of them, one in twelve."""

NEW_HOSTS = 10
"""The last hosts are in the aggregate `new`: one in this number."""

HUGE_PAGES_TRAIT = "CUSTOM_HUGE_PAGES"
PHYSICAL_NETWORKS = 4
HUGE_PAGES_EVERY = 3


@dataclass(frozen=True)
class Filter:
    """Filters of a request, as a part of its query, and the hosts that they match.

    `matches` gets the number of a host and the number of all hosts.
    """

    name: str
    query: str
    matches: Callable[[int, int], bool]

    def count(self, hosts: int) -> int:
        """Return how many hosts match."""
        return sum(self.matches(number, hosts) for number in range(hosts))


def _physical_network(number: int) -> str:
    return f"CUSTOM_PHYSNET_{number % PHYSICAL_NETWORKS}"


def _zone(number: int) -> str:
    return f"zone{number % ZONES}"


def _rack(number: int) -> str:
    return f"rack{number}"


def _aggregates(number: int, hosts: int) -> tuple[str, ...]:
    is_new = number >= hosts - hosts // NEW_HOSTS
    return _zone(number), _rack(number // HOSTS_PER_RACK), *(("new",) if is_new else ())


def _host_traits(number: int) -> tuple[str, ...]:
    licensed = (LICENSE_TRAIT,) if _is_licensed(number) else ()
    return *TRAITS, *licensed, SCARCE_TRAIT if _is_scarce(number) else COMMON_TRAIT


def _is_licensed(number: int) -> bool:
    return number % HOSTS_PER_LICENSE == 0


def _is_scarce(number: int) -> bool:
    return number % HOSTS_PER_SCARCE_TRAIT == 0


def _in_zone(number: int) -> bool:
    return number % ZONES == 0


def _in_racks(number: int) -> bool:
    return number // HOSTS_PER_RACK in RACKS


def _has_huge_pages(number: int) -> bool:
    return number % HUGE_PAGES_EVERY == 1


def _member_of(*names: str) -> str:
    return "&member_of=" + ("in:" if len(names) > 1 else "") + ",".join(map(uuid_of, names))


_IN_ZONE = _member_of(_zone(0))
_IN_RACKS = _member_of(*map(_rack, RACKS))
_IN_OTHER_ZONE = _member_of(_zone(1))

NONE = Filter("none", "", lambda _, __: True)

HOST_FILTERS = (
    NONE,
    Filter("zone", _IN_ZONE, lambda n, _: _in_zone(n)),
    Filter(
        "zone, not licensed",
        f"{_IN_ZONE}&required=!{LICENSE_TRAIT}",
        lambda n, _: _in_zone(n) and not _is_licensed(n),
    ),
    Filter(
        "zone, licensed", f"{_IN_ZONE}&required={LICENSE_TRAIT}", lambda n, _: _in_zone(n) and _is_licensed(n)
    ),
    Filter("20 racks, zone", f"{_IN_RACKS}{_IN_ZONE}", lambda n, _: _in_racks(n) and _in_zone(n)),
    Filter("scarce trait", f"&required={SCARCE_TRAIT}", lambda n, _: _is_scarce(n)),
    Filter(
        "scarce trait, licensed",
        f"&required={SCARCE_TRAIT},{LICENSE_TRAIT}",
        lambda n, _: _is_scarce(n) and _is_licensed(n),
    ),
    Filter("not common", f"&required=!{COMMON_TRAIT}", lambda n, _: _is_scarce(n)),
    Filter("disjoint zones", f"{_IN_ZONE}{_IN_OTHER_ZONE}", lambda _, __: False),
    Filter("not in zone", f"&member_of=!{uuid_of(_zone(0))}", lambda n, _: not _in_zone(n)),
    Filter("newest hosts", _member_of("new"), lambda n, hosts: n >= hosts - hosts // NEW_HOSTS),
    Filter("root licensed", f"&root_required={LICENSE_TRAIT}", lambda n, _: _is_licensed(n)),
    Filter(
        "root scarce, not licensed",
        f"&root_required={SCARCE_TRAIT},!{LICENSE_TRAIT}",
        lambda n, _: _is_scarce(n) and not _is_licensed(n),
    ),
)
"""Filters on the host itself, for a request with an unsuffixed group whose only supplier is the root."""

CHILD_FILTERS = (
    Filter("network", f"&required_N={_physical_network(1)}", lambda n, _: n % PHYSICAL_NETWORKS == 1),
    Filter("huge pages", f"&required_C={HUGE_PAGES_TRAIT}", lambda n, _: _has_huge_pages(n)),
    Filter("no huge pages", f"&required_C=!{HUGE_PAGES_TRAIT}", lambda n, _: not _has_huge_pages(n)),
    Filter(
        "huge pages, network",
        f"&required_C={HUGE_PAGES_TRAIT}&required_N={_physical_network(1)}",
        lambda n, _: _has_huge_pages(n) and n % PHYSICAL_NETWORKS == 1,
    ),
    Filter(
        "huge pages, network, racks",
        f"&required_C={HUGE_PAGES_TRAIT}&required_N={_physical_network(1)}{_IN_RACKS}",
        lambda n, _: _has_huge_pages(n) and n % PHYSICAL_NETWORKS == 1 and _in_racks(n),
    ),
    Filter("network of another zone", f"{_IN_ZONE}&required_N={_physical_network(1)}", lambda _, __: False),
)
"""Filters on child providers, in suffixed groups."""


def flat(hosts: int) -> Cloud:
    """Return hosts of one provider each, in zones and racks, some of them with traits that others lack."""
    return Cloud(
        tuple(
            Provider(name, HOST, traits=_host_traits(number), aggregates=_aggregates(number, hosts))
            for number, name in enumerate(host_names(hosts))
        )
    )


def nested(hosts: int) -> Cloud:
    """Return hosts of four providers: a root with the disk, two NUMA nodes, and a network card in the first.

    Zones, racks and the traits of `flat` are those of the root. The first NUMA node of some hosts has huge
    pages; the network card has the trait of its physical network.
    """
    return Cloud(
        tuple(
            provider
            for number, name in enumerate(host_names(hosts))
            for provider in _nested_host(name, number, hosts)
        )
    )


def _nested_host(host: str, number: int, hosts: int) -> Iterator[Provider]:
    yield Provider(
        host,
        {"DISK_GB": HOST["DISK_GB"]},
        traits=_host_traits(number),
        aggregates=_aggregates(number, hosts),
    )
    inventories = {"VCPU": HOST["VCPU"], "MEMORY_MB": HOST["MEMORY_MB"]}
    huge_pages = (HUGE_PAGES_TRAIT,) if _has_huge_pages(number) else ()
    for node in range(2):
        yield Provider(f"{host}-numa{node}", inventories, host, ("HW_NUMA_ROOT", *(huge_pages, ())[node]))
    yield Provider(f"{host}-card", {"SRIOV_NET_VF": 8}, f"{host}-numa0", (_physical_network(number),))
