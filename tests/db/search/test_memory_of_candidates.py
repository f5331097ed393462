"""The memory that a search reserves for what it keeps of each anchor."""

from placement_svc.db.connections.engine import Database
from placement_svc.db.search.candidates import GENERATOR_SIZE, SearchOptions, find_candidates
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.groups import CandidatesRequest, RequestGroup
from tests.conftest import LoadCloud
from tests.support.cloud import read
from tests.support.search_memory import PRECISION, least_memory

HOSTS = 50
MOST = 1 << 20
"""Bytes that suffice for each search."""


def memory_of(database: Database, *resource_classes: str) -> int:
    groups = tuple(RequestGroup(f"_{number}", {name: 1}) for number, name in enumerate(resource_classes))
    request = CandidatesRequest(groups, limit=HOSTS)

    def search(memory: MemoryBudget) -> None:
        database.read(find_candidates, request, SearchOptions(deadline=Deadline.of(60), memory=memory))

    return least_memory(search, MOST)


def test_generator_of_each_anchor_that_has_further_candidates_is_reserved(
    database: Database, load_cloud: LoadCloud
) -> None:
    """The searches have the same trees, and as many candidates, but VCPU has two suppliers in each host."""
    hosts = (f"h{n}{{VCPU8 DISK_GB8 MEMORY_MB8}}; c{n}<h{n}{{VCPU8}}" for n in range(HOSTS))
    load_cloud(read("; ".join(hosts)))
    single = memory_of(database, "DISK_GB", "MEMORY_MB")
    several = memory_of(database, "VCPU", "VCPU")
    assert several - single >= HOSTS * GENERATOR_SIZE - PRECISION
