"""The cloud of the demo: topology P2 of `docs/spec/candidates.md 6.1` with consumers, and racks of hosts.

P2 has two hosts with two NUMA nodes each, and a sharing provider with storage for both. The consumers of P2
leave enough for each of the eight candidates of its request. Everything is the same in each demo.
"""

from collections.abc import Iterable, Iterator

import os_traits

from placement_svc.db import imports
from placement_svc.db.connections.engine import Database
from placement_svc.demo.racks import rack_records
from placement_svc.demo.records import consumer, provider
from placement_svc.domain.inventory import Inventory
from placement_svc.domain.records import ImportResult, Record

HOSTS = 240
"""The default number of hosts in racks."""

_CPUS = {"VCPU": Inventory(8)}
_HOST = {"MEMORY_MB": Inventory(1024), "DISK_GB": Inventory(1000)}
_SHARING = (os_traits.MISC_SHARES_VIA_AGGREGATE,)

P2 = (
    provider("SS1", {"DISK_GB": Inventory(1000)}, traits=_SHARING, aggregates=("A",)),
    provider("CN1", _HOST, aggregates=("A", "B")),
    provider("N11", _CPUS, parent="CN1"),
    provider("N12", _CPUS, parent="CN1"),
    provider("CN2", _HOST, aggregates=("A",)),
    provider("N21", _CPUS, parent="CN2", aggregates=("B",)),
    provider("N22", _CPUS, parent="CN2"),
)

P2_CONSUMERS = (
    consumer("web-1", "web", {"CN1": {"MEMORY_MB": 256, "DISK_GB": 100}, "N11": {"VCPU": 2}}),
    consumer("data-1", "data", {"CN2": {"MEMORY_MB": 512}, "N21": {"VCPU": 4}, "SS1": {"DISK_GB": 200}}),
    consumer("ci-1", "ci", {"N22": {"VCPU": 6}}),
)


def records(hosts: int) -> Iterator[Record]:
    """Yield topology P2 with its consumers, and `hosts` hosts in racks with theirs."""
    yield from P2
    yield from P2_CONSUMERS
    yield from rack_records(hosts)


def load(database: Database, cloud: Iterable[Record]) -> ImportResult:
    """Store the records of a cloud in an empty database."""
    return imports.load(database, enumerate(cloud, 1), allow_overcommitted=False)
