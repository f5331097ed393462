"""A random cloud with consumers of several projects, users and types, from a seed."""

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from tests.support.cloud import SHARING

Call = Callable[..., Any]
"""A function that sends a request which must succeed, and returns the response's body."""

CLASSES = ["VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_GPU"]
TRAITS = [SHARING, "HW_NUMA_ROOT", "COMPUTE_NODE", "STORAGE_DISK_SSD"]
PROJECTS = ["p", "P", "a project & more", "é", "z", "☃"]
TYPES = ["INSTANCE", "MIGRATION"]
TREES = 5
CONSUMERS = 12


def random_uuid(random: Random) -> str:
    """Return a random uuid."""
    return str(UUID(int=random.getrandbits(128)))


def fill(call: Call, seed: int) -> None:
    """Create the cloud in an empty database; some usages exceed the capacity of their inventories."""
    random = Random(seed)
    call("PUT", "/resource_classes/CUSTOM_GPU")
    aggregates = [random_uuid(random) for _ in range(3)]
    providers = []
    for tree in range(TREES):
        members: list[str] = []
        for number in range(random.randint(1, 4)):
            uuid = random_uuid(random)
            body = {"name": f"{random.choice('aAb%_')}{tree}.{number}", "uuid": uuid}
            if members:
                body["parent_provider_uuid"] = random.choice(members)
            call("POST", "/resource_providers", body)
            members.append(uuid)
        providers += members
    inventories = {uuid: _inventories(random) for uuid in providers}
    for uuid in providers:
        path = f"/resource_providers/{uuid}"
        unlimited = {name: {"total": 10**6} for name in inventories[uuid]}
        call("PUT", f"{path}/inventories", {"resource_provider_generation": 0, "inventories": unlimited})
        traits = random.sample(TRAITS, random.randint(0, 2))
        call("PUT", f"{path}/traits", {"resource_provider_generation": 1, "traits": traits})
        generation = call("GET", path)["generation"]
        held = random.sample(aggregates, random.randint(0, 2))
        call("PUT", f"{path}/aggregates", {"resource_provider_generation": generation, "aggregates": held})
    for _ in range(CONSUMERS):
        _claim(call, random, inventories)
    for uuid, wanted in inventories.items():
        generation = call("GET", f"/resource_providers/{uuid}")["generation"]
        body = {"resource_provider_generation": generation, "inventories": wanted}
        call("PUT", f"/resource_providers/{uuid}/inventories", body)


def _inventories(random: Random) -> dict[str, dict[str, float]]:
    return {
        name: {
            "total": (total := random.choice([4, 8, 8, 100])),
            "reserved": random.choice([0, 0, 3, total]),
            "min_unit": random.choice([1, 1, 2]),
            "max_unit": random.choice([4, 1000]),
            "step_size": random.choice([1, 1, 3]),
            "allocation_ratio": random.choice([0.3, 1.0, 1.5, 16.0]),
        }
        for name in random.sample(CLASSES, random.randint(0, 3))
    }


def _claim(call: Call, random: Random, inventories: dict[str, dict[str, Any]]) -> None:
    allocations: dict[str, Any] = {}
    for uuid in random.sample(sorted(inventories), 3):
        resources = {name: random.choice([1, 2, 2, 5]) for name in inventories[uuid] if random.random() < 0.7}
        if resources:
            allocations[uuid] = {"resources": resources}
    if not allocations:
        return
    claim: dict[str, Any] = {
        "allocations": allocations,
        "project_id": random.choice(PROJECTS),
        "user_id": random.choice(["u", "v"]),
        "consumer_generation": None,
    }
    consumer_type = random.choice([None, *TYPES])
    if consumer_type:
        claim["consumer_type"] = consumer_type
    version = "1.39" if consumer_type else "1.37"
    call("PUT", f"/allocations/{random_uuid(random)}", claim, version=version)
