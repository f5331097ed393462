"""Examples of requests, which succeed as they stand if the service has the cloud of `placement-svc demo`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from placement_svc.domain.demo import demo_uuid
from placement_svc.domain.inventory import MAX_INTEGER
from placement_svc.domain.pages import Position, SortKey
from placement_svc.schemas.pages import AMOUNT, write_marker

ABOUT = """\
The examples are for the cloud of `placement-svc demo`. The examples that delete a trait, a resource class or
allocations need the one that creates them (PUT) to be sent first. After a change of a provider, send its new
generation.
"""

HOST, NODE, OTHER_NODE, STORAGE = (demo_uuid(name) for name in ("CN1", "N11", "N12", "SS1"))
AGGREGATE, OTHER_AGGREGATE = demo_uuid("aggregate A"), demo_uuid("aggregate B")
SERVER, OTHER_SERVER = demo_uuid("server"), demo_uuid("other server")
GROUP = demo_uuid("placement group")

NODE_GENERATION = 2
OTHER_NODE_GENERATION = 1
HOST_GENERATION = 3
"""The generations of the nodes and of the host in a new demo."""

_OWNER = {"project_id": "demo-project", "user_id": "demo-user"}


@dataclass(frozen=True)
class Example:
    """The path parameters, the query parameters and the JSON body of one request."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None


def _provider(uuid: str, body: Any = None, **path: str) -> Example:
    return Example({"uuid": uuid, **path}, body=body)


def _node(**members: Any) -> dict[str, Any]:
    return {"resource_provider_generation": NODE_GENERATION, **members}


def _claim(**amounts: Mapping[str, int]) -> dict[str, Any]:
    """Return a claim of a new server; `amounts` are by the name of the provider in the demo."""
    return {
        "allocations": {demo_uuid(name): {"resources": dict(each)} for name, each in amounts.items()},
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
        **_OWNER,
    }


_CANDIDATES = {
    "resources": "MEMORY_MB:512,DISK_GB:500",
    "required": ["!MISC_SHARES_VIA_AGGREGATE"],
    "member_of": [AGGREGATE],
    "in_tree": [HOST],
    "groups": {"resources_CPU": "VCPU:2", "member_of_HOST": OTHER_AGGREGATE},
    "same_subtree": ["_CPU,_HOST"],
    "group_policy": "isolate",
    "isolate": ["_CPU"],
    "root_required": ["!MISC_SHARES_VIA_AGGREGATE"],
    "root_member_of": [f"in:{AGGREGATE},{OTHER_AGGREGATE}"],
    "limit": "10",
    "ignore_consumer": [SERVER],
    "preferred": ["COMPUTE_NODE"],
    "order_by": "spread:MEMORY_MB",
    "can_split": ["MEMORY_MB"],
}

EXAMPLES: Mapping[str, Example] = {
    "resource_providers.list_providers": Example(
        query={
            "name": "CN1",
            "uuid": HOST,
            "member_of": [f"in:{AGGREGATE},{OTHER_AGGREGATE}"],
            "resources": "MEMORY_MB:512,DISK_GB:500",
            "in_tree": NODE,
            "required": ["!MISC_SHARES_VIA_AGGREGATE"],
            "include": "inventories,usages",
            "limit": "10",
            "sort_by": "-used:MEMORY_MB",
            "marker": write_marker(Position(STORAGE, 4096), SortKey("used", "MEMORY_MB", descending=True)),
        }
    ),
    "resource_providers.create_provider": Example(
        body={"name": "N13", "uuid": demo_uuid("N13"), "parent_provider_uuid": HOST}
    ),
    "resource_providers.show_provider": _provider(HOST),
    "resource_providers.change_provider": _provider(NODE, {"name": "node", "parent_provider_uuid": HOST}),
    "resource_providers.delete_provider": _provider(OTHER_NODE),
    "inventories.list_inventories": _provider(HOST),
    "inventories.create_inventory": _provider(NODE, {"resource_class": "MEMORY_MB", "total": 1024}),
    "inventories.replace_inventories": _provider(
        NODE, _node(inventories={"VCPU": {"total": 8, "allocation_ratio": 2.0}, "MEMORY_MB": {"total": 1024}})
    ),
    "inventories.change_inventories": _provider(
        NODE, {"VCPU": {"reserved": 1}, "MEMORY_MB": {"total": 1024}, "DISK_GB": None}
    ),
    "inventories.delete_inventories": _provider(OTHER_NODE),
    "inventories.show_inventory": _provider(NODE, resource_class="VCPU"),
    "inventories.replace_inventory": _provider(NODE, _node(total=8, reserved=1), resource_class="VCPU"),
    "inventories.delete_inventory": _provider(OTHER_NODE, resource_class="VCPU"),
    "usages.show_provider_usages": _provider(NODE),
    "usages.show_usages": Example(query={**_OWNER, "consumer_type": "INSTANCE"}),
    "provider_aggregates.list_provider_aggregates": _provider(HOST),
    "provider_aggregates.replace_provider_aggregates": _provider(
        HOST, {"resource_provider_generation": HOST_GENERATION, "aggregates": [AGGREGATE]}
    ),
    "provider_aggregates.change_provider_aggregates": _provider(
        HOST, {"add": [OTHER_AGGREGATE], "remove": [AGGREGATE]}
    ),
    "provider_traits.list_provider_traits": _provider(STORAGE),
    "provider_traits.replace_provider_traits": _provider(NODE, _node(traits=["HW_NUMA_ROOT"])),
    "provider_traits.change_provider_traits": _provider(
        NODE, {"add": ["HW_NUMA_ROOT"], "remove": ["STORAGE_DISK_SSD"]}
    ),
    "provider_traits.delete_provider_traits": _provider(STORAGE),
    "traits.list_traits": Example(query={"name": "startswith:MISC_", "associated": "true"}),
    "traits.show_trait": Example({"name": "MISC_SHARES_VIA_AGGREGATE"}),
    "traits.ensure_trait": Example({"name": "CUSTOM_FAST"}),
    "traits.delete_trait": Example({"name": "CUSTOM_FAST"}),
    "resource_classes.create_resource_class": Example(body={"name": "CUSTOM_GPU"}),
    "resource_classes.show_resource_class": Example({"name": "VCPU"}),
    "resource_classes.put_resource_class": Example({"name": "CUSTOM_LICENSE"}),
    "resource_classes.delete_resource_class": Example({"name": "CUSTOM_LICENSE"}),
    "allocation_candidates.list_candidates": Example(query=_CANDIDATES),
    "explanations.explain_candidates": Example(
        query={**_CANDIDATES, "resources": "MEMORY_MB:2048", "root": "CN1", "relaxations": "1"}
    ),
    "fits.show_fits": Example(
        query={
            **_CANDIDATES,
            "max": "1000",
            "without": STORAGE,
            "group_by": "aggregate",
            "marker": write_marker(Position(STORAGE, 2), SortKey("fits", descending=True)),
        }
    ),
    "empty_answers.list_empty_answers": Example(
        query={
            "request_id": "req-5f8f5aa0-8cf0-4a9c-9d9c-000000000001",
            "limit": "10",
            "marker": demo_uuid("empty answer"),
        }
    ),
    "allocations.list_allocations": Example(query={"consumer_uuid": f"in:{SERVER},{OTHER_SERVER}"}),
    "allocations.replace_allocations": Example(body={OTHER_SERVER: _claim(N12={"VCPU": 1})}),
    "claims.place_consumers": Example(
        body={
            "request": "resources=MEMORY_MB:512&resources_CPU=VCPU:1",
            "consumers": [
                {
                    "uuid": OTHER_SERVER,
                    "consumer_type": "INSTANCE",
                    "consumer_generation": None,
                    **_OWNER,
                }
            ],
            "min_count": 1,
            "dry_run": False,
        }
    ),
    "allocations.show_allocations": Example({"consumer_uuid": SERVER}),
    "allocations.replace_consumer_allocations": Example(
        {"consumer_uuid": SERVER}, body=_claim(CN1={"MEMORY_MB": 512, "DISK_GB": 500}, N11={"VCPU": 1})
    ),
    "allocations.delete_allocations": Example({"consumer_uuid": SERVER}),
    "allocations.list_provider_allocations": _provider(NODE),
    "reshaper.reshape": Example(
        body={
            "inventories": {
                NODE: _node(inventories={"VCPU": {"total": 4}}),
                OTHER_NODE: {
                    "resource_provider_generation": OTHER_NODE_GENERATION,
                    "inventories": {"VCPU": {"total": 12}},
                },
            },
            "allocations": {OTHER_SERVER: _claim(N12={"VCPU": 10})},
        }
    ),
    "aggregates.show_aggregate": _provider(AGGREGATE),
    "capacity.show_capacity": Example(
        query={
            "name": "CN1",
            "uuid": HOST,
            "member_of": [AGGREGATE],
            "resources": "MEMORY_MB:512",
            "in_tree": NODE,
            "required": ["!MISC_SHARES_VIA_AGGREGATE"],
            "group_by": "root",
            "limit": "10",
            "sort_by": "-ratio:MEMORY_MB",
            "marker": write_marker(Position(STORAGE, 2.0), SortKey("ratio", "MEMORY_MB", descending=True)),
        }
    ),
    "consumers.list_consumers": Example(
        query={
            "project_id": _OWNER["project_id"],
            "user_id": _OWNER["user_id"],
            "consumer_type": "INSTANCE",
            "resource_provider": NODE,
            "in_tree": HOST,
            "resource_class": "VCPU",
            "include": "allocations",
            "sort_by": "created_at",
            "limit": "10",
            "marker": write_marker(Position("", datetime(2026, 1, 1, tzinfo=UTC)), SortKey("created_at")),
        }
    ),
    "consumers.show_consumer": Example({"consumer_uuid": SERVER}),
    "placement_groups.list_placement_groups": Example(
        query={"limit": "10", "marker": "00000000-0000-0000-0000-000000000000"}
    ),
    "placement_groups.show_placement_group": Example({"uuid": GROUP}),
    "placement_groups.replace_placement_group": Example(
        {"uuid": GROUP},
        body={"policy": "anti-affinity", "max_per_domain": 2, "across": [AGGREGATE, OTHER_AGGREGATE]},
    ),
    "placement_groups.delete_placement_group": Example({"uuid": GROUP}),
    "consumers.list_projects": Example(
        query={
            "project_id": _OWNER["project_id"],
            "limit": "10",
            "sort_by": "-VCPU",
            "marker": write_marker(Position("", MAX_INTEGER), SortKey(AMOUNT, "VCPU", descending=True)),
        }
    ),
}
"""The example of each operation that has parameters or a body, by blueprint and view."""
