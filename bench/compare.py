"""Ask two placement services the same questions about the same cloud, and show the ratio of their times."""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_DNS, uuid5

from rich.console import Console
from rich.progress import track
from rich.table import Table

HEADERS = {
    "X-Auth-Token": "admin",
    "X-Roles": "admin,service",
    "Accept": "application/json",
    "Content-Type": "application/json",
    "OpenStack-API-Version": "placement 1.39",
}
HOSTS_AT_ONCE = 20

QUESTIONS = {
    "a small server, limit 10": "resources=VCPU:1,MEMORY_MB:512,DISK_GB:10&limit=10",
    "a small server, limit 1000": "resources=VCPU:1,MEMORY_MB:512,DISK_GB:10&limit=1000",
    "CPU and network of one NUMA node, limit 10": (
        "resources_C=VCPU:1,MEMORY_MB:512&resources_N=SRIOV_NET_VF:1&required_R=HW_NUMA_ROOT"
        "&same_subtree=_C,_N,_R&group_policy=none&limit=10"
    ),
    "two NUMA nodes and their networks, limit 10": (
        "resources_C1=VCPU:1&resources_N1=SRIOV_NET_VF:1&same_subtree=_C1,_N1"
        "&resources_C2=VCPU:1&resources_N2=SRIOV_NET_VF:1&same_subtree=_C2,_N2&group_policy=isolate&limit=10"
    ),
    "four functions of one host, limit 10": (
        "&".join(f"resources{n}=SRIOV_NET_VF:1" for n in range(1, 5)) + "&group_policy=isolate&limit=10"
    ),
    "more than there is": "resources=VCPU:1000&limit=10",
}


@dataclass(frozen=True)
class Service:
    """A running placement service."""

    url: str

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the body of the answer; raises RuntimeError unless it is a success."""
        at = urlsplit(self.url)
        connection = HTTPConnection(at.hostname or "127.0.0.1", at.port or 80, timeout=600)
        connection.request(method, f"{at.path}{path}", body and json.dumps(body), HEADERS)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if response.status >= 300:
            raise RuntimeError(f"{method} {self.url}{path}: {response.status} {content[:300]!r}")
        return content


def uuid_of(name: str) -> str:
    """Return the uuid of the provider of this name, the same in both services."""
    return str(uuid5(NAMESPACE_DNS, name))


def providers_of(host: str) -> Iterator[tuple[str, str | None, dict[str, int]]]:
    """Yield the name, the parent's name and the inventories of each provider of a host."""
    yield host, None, {"DISK_GB": 2000}
    for node in range(2):
        numa = f"{host}-numa{node}"
        yield numa, host, {"VCPU": 32, "MEMORY_MB": 131072}
        for function in range(2):
            yield f"{numa}-pf{function}", numa, {"SRIOV_NET_VF": 8}


def load_host(service: Service, host: str) -> None:
    """Create the providers of a host, and the traits of its NUMA nodes."""
    for name, parent, inventories in providers_of(host):
        body = {"name": name, "uuid": uuid_of(name)}
        if parent is not None:
            body["parent_provider_uuid"] = uuid_of(parent)
        service.ask("POST", "/resource_providers", body)
        if "VCPU" in inventories:
            traits = {"traits": ["HW_NUMA_ROOT", "HW_CPU_X86_AVX2"], "resource_provider_generation": 0}
            service.ask("PUT", f"/resource_providers/{uuid_of(name)}/traits", traits)


def fill_hosts(service: Service, hosts: list[str]) -> None:
    """Give all providers of some hosts their inventories."""
    inventories = {
        uuid_of(name): {
            "resource_provider_generation": 1 if "VCPU" in amounts else 0,
            "inventories": {name: {"total": total} for name, total in amounts.items()},
        }
        for host in hosts
        for name, _, amounts in providers_of(host)
    }
    service.ask("POST", "/reshaper", {"inventories": inventories, "allocations": {}})


def load(service: Service, count: int) -> None:
    """Load a cloud of `count` hosts."""
    hosts = [f"host{number}" for number in range(count)]
    with ThreadPoolExecutor(4) as pool:
        loading = pool.map(lambda host: load_host(service, host), hosts)
        for _ in track(loading, f"Loading {service.url}", total=count):
            pass
    for start in range(0, count, HOSTS_AT_ONCE):
        fill_hosts(service, hosts[start : start + HOSTS_AT_ONCE])


def measure(service: Service, query: str, times: int) -> tuple[float, int]:
    """Return the median time of a request for candidates in ms, and how many candidates it brought."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        content = service.ask("GET", f"/allocation_candidates?{query}")
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken), len(json.loads(content)["allocation_requests"])


def main() -> None:
    """Load both services, ask both, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Service, help="URL of the service that is compared")
    parser.add_argument("second", type=Service, help="URL of the service that it is compared with")
    parser.add_argument("--hosts", type=int, default=500)
    parser.add_argument("--times", type=int, default=5, help="how often each question is asked")
    parser.add_argument("--loaded", action="store_true", help="the cloud is there from an earlier run")
    arguments = parser.parse_args()
    services = (arguments.first, arguments.second)
    if not arguments.loaded:
        for service in services:
            load(service, arguments.hosts)
    table = Table("question", "first, ms", "second, ms", "ratio", "candidates")
    for question, query in QUESTIONS.items():
        (first, count), (second, other) = (measure(service, query, arguments.times) for service in services)
        counts = str(count) if count == other else f"{count} and {other}"
        table.add_row(question, f"{first:.1f}", f"{second:.1f}", f"{second / first:.0f}", counts)
    Console().print(table)


if __name__ == "__main__":
    main()
