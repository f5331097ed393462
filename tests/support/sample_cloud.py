"""A small cloud with every kind of object, including the rare ones."""

from collections.abc import Callable
from typing import Any

from tests.support.cloud import load, read, uuid_of

Call = Callable[..., Any]
"""A function that sends a request which must succeed, and returns the response's body."""

# A host over its capacity, a NUMA node whose usage violates its units, a tree of three levels, and shared
# storage.
CLOUD = """
    cn{VCPU8 ratio1.5 used20 MEMORY_MB64 res32 DISK_GB1 res3}#COMPUTE_NODE,HW_NUMA_ROOT@A,B;
    numa<cn{VCPU8 min4 max6 step4 used3}#HW_NUMA_ROOT; pf<numa{SRIOV_NET_VF4 used4}@A; bare;
    ss{DISK_GB900 used9}$@B
"""


def fill(call: Call) -> None:
    """Create the cloud in an empty database."""
    call("PUT", "/traits/CUSTOM_HELD")
    call("PUT", "/traits/CUSTOM_UNHELD")
    call("PUT", "/resource_classes/CUSTOM_EMPTY")
    call("PUT", "/resource_classes/CUSTOM_GPU")
    load(read(" ".join(CLOUD.split())), lambda method, path, **options: (200, call(method, path, **options)))
    moved = uuid_of("bare")
    traits = {"traits": ["CUSTOM_HELD"], "resource_provider_generation": 0}
    call("PUT", f"/resource_providers/{moved}/traits", traits)
    inventories = {"inventories": {"CUSTOM_GPU": {"total": 3}}, "resource_provider_generation": 1}
    call("PUT", f"/resource_providers/{moved}/inventories", inventories)
    call("PUT", f"/resource_providers/{uuid_of('cn')}", {"name": "", "parent_provider_uuid": moved})
    held = {moved: {"resources": {"CUSTOM_GPU": 1}}}
    owner = {"project_id": "a project \\ \t", "user_id": "☃", "consumer_generation": None}
    untyped = {uuid_of("untyped").upper(): {"allocations": held, **owner}}
    call("POST", "/allocations", untyped, version="1.37")
