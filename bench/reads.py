"""Reads by the extensions of this service, compared with what a client does without them."""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from bench import clouds
from bench.clouds import CPU_TRAIT, TRAITS, Cloud, uuid_of, zone
from bench.measuring import candidates_path
from bench.services import VERSION_WITH_EXTENSIONS, Service

BULK = "bulk"
PARTS = ("inventories", "usages", "allocations")
PAGE_SIZE = 1000
SAMPLE = 300
"""At least so many hosts are read one by one, if there are as many; the time for all is extrapolated."""

REPETITIONS = 9


@dataclass(frozen=True)
class ReadResult:
    """The time of one way to read something, and of the first way.

    If `is_extrapolated`, the time is extrapolated from that for a part of the hosts.
    """

    scenario: str
    read: str
    hosts: int
    milliseconds: float
    first_milliseconds: float
    is_extrapolated: bool = False

    @property
    def ratio(self) -> float:
        """The time divided by that of the first way."""
        return self.milliseconds / self.first_milliseconds


@dataclass(frozen=True)
class Comparison:
    """A search, and extensions at `paths` that get the same query; `cloud` takes a number of hosts.

    `candidates` is the number of candidates in each host of the first zone.
    """

    name: str
    cloud: Callable[[int], Cloud]
    query: str
    paths: tuple[str, ...]
    candidates: int = 2


QUERY = (
    f"resources=DISK_GB:10&member_of={uuid_of(zone(0))}"
    f"&resources_C=VCPU:2,MEMORY_MB:512&required_C={CPU_TRAIT}&resources_N=SRIOV_NET_VF:1"
    "&same_subtree=_C,_N&group_policy=none"
)
EXPLANATION = "/allocation_candidates/explanation"
EXPLANATIONS = (f"{EXPLANATION}?relaxations=0", EXPLANATION)
COMPARISONS = (
    Comparison("explain", clouds.nested_zones, QUERY, EXPLANATIONS),
    # The hosts have this trait, but no NUMA node does.
    Comparison(
        "explain-none",
        clouds.nested_zones,
        QUERY.replace(CPU_TRAIT, TRAITS[0]),
        EXPLANATIONS,
        candidates=0,
    ),
    Comparison("capacity", clouds.nested_zones, QUERY, ("/allocation_candidates/capacity",)),
)
NAMES = (BULK, *(comparison.name for comparison in COMPARISONS))


def measure_comparison(comparison: Comparison, service: Service, hosts: int) -> Iterator[ReadResult]:
    """Yield the time of the search with limit 1000 and those of the extensions, sent alternately."""
    reads = {"search, limit 1000": candidates_path(comparison.query, 1000)} | {
        path: f"{path}{'&' if '?' in path else '?'}{comparison.query}" for path in comparison.paths
    }
    times: dict[str, list[float]] = {name: [] for name in reads}
    with closing(service.connect()) as connection:
        for _ in range(1 + REPETITIONS):
            for name, path in reads.items():
                started = time.perf_counter()
                service.request_on(connection, "GET", path, version=VERSION_WITH_EXTENSIONS)
                times[name].append((time.perf_counter() - started) * 1000)
    medians = {name: statistics.median(of_read[1:]) for name, of_read in times.items()}
    first = next(iter(medians.values()))
    for name, milliseconds in medians.items():
        yield ReadResult(comparison.name, name, hosts, milliseconds, first)


def measure_bulk(ours: Service, reference: Service | None, hosts: int) -> Iterator[ReadResult]:
    """Yield the time of reading all hosts with their inventories, usages and allocations, in several ways."""
    ways = {"one response": read_all, f"pages of {PAGE_SIZE:,}": read_pages}
    read, first = {}, 0.0
    for name, way in ways.items():
        started = time.perf_counter()
        read[name] = way(ours)
        milliseconds = (time.perf_counter() - started) * 1000
        first = first or milliseconds
        yield ReadResult(BULK, name, hosts, milliseconds, first)
    sample = clouds.host_names(hosts)[:: max(1, hosts // SAMPLE)]
    for service in (ours, *([reference] if reference else [])):
        started = time.perf_counter()
        service.request("GET", "/resource_providers")
        listed = time.perf_counter()
        read[service.name] = read_one_by_one(service, sample)
        each = (time.perf_counter() - listed) / len(sample)
        milliseconds = (listed - started + each * hosts) * 1000
        name = f"three requests for each host, {service.name}"
        yield ReadResult(BULK, name, hosts, milliseconds, first, is_extrapolated=len(sample) < hosts)
    for name, found in read.items():
        for host in map(uuid_of, sample):
            assert found[host] == read["one response"][host], (name, host)


def read_all(service: Service) -> dict[str, Any]:
    """Return the parts of all providers by uuid, from one response."""
    body = service.request(
        "GET", f"/resource_providers?include={','.join(PARTS)}", version=VERSION_WITH_EXTENSIONS
    )
    return _parts_by_uuid(json.loads(body))


def read_pages(service: Service) -> dict[str, Any]:
    """Return the parts of all providers by uuid, from pages."""
    found = {}
    path = f"/resource_providers?include={','.join(PARTS)}&limit={PAGE_SIZE}"
    while path:
        body = json.loads(service.request("GET", path, version=VERSION_WITH_EXTENSIONS))
        found.update(_parts_by_uuid(body))
        path = body["links"][0]["href"] if body["links"] else ""
    return found


def _parts_by_uuid(body: Any) -> dict[str, Any]:
    return {
        provider["uuid"]: {part: provider[part] for part in PARTS} for provider in body["resource_providers"]
    }


def read_one_by_one(service: Service, hosts: Sequence[str]) -> dict[str, Any]:
    """Return the parts of these hosts by uuid, from a request for each part."""
    found: dict[str, Any] = {}
    with closing(service.connect()) as connection:
        for uuid in map(uuid_of, hosts):
            found[uuid] = {
                part: json.loads(service.request_on(connection, "GET", f"/resource_providers/{uuid}/{part}"))[
                    part
                ]
                for part in PARTS
            }
    return found
