"""Commands of `openstack`, and their output for the cloud of `test_openstack_command.py`.

`{name}` stands for the uuid of the resource with this name, in commands and in output.
"""

from typing import Any

NEWEST = "1.39"

Output = Any
"""Parsed JSON output of a command, None if it prints nothing."""


def provider(name: str, generation: int) -> dict[str, Any]:
    return {"uuid": f"{{{name}}}", "name": name, "generation": generation}


def nested(name: str, generation: int, root: str, parent: str | None = None) -> dict[str, Any]:
    tree = {"root_provider_uuid": f"{{{root}}}", "parent_provider_uuid": f"{{{parent}}}" if parent else None}
    return provider(name, generation) | tree


def inventory(total: int, **other: Any) -> dict[str, Any]:
    defaults = {"min_unit": 1, "max_unit": 2147483647, "reserved": 0, "step_size": 1, "allocation_ratio": 1.0}
    return defaults | {"total": total} | other


def allocation(provider: str, generation: int, resources: dict[str, int], **consumer: str) -> dict[str, Any]:
    return {
        "resource_provider": f"{{{provider}}}",
        "generation": generation,
        "resources": resources,
    } | consumer


def candidate(number: int, resources: str, provider: str, inventory: str, *traits: str) -> dict[str, Any]:
    """Return a row of the list of candidates.

    `traits` is one string with all traits, or absent at a microversion that does not return traits.
    """
    return {
        "#": number,
        "allocation": resources,
        "resource provider": f"{{{provider}}}",
        "inventory used/capacity": inventory,
    } | dict(zip(["traits"], traits, strict=False))


def usage(**used: int) -> list[dict[str, Any]]:
    return [{"resource_class": name, "usage": amount} for name, amount in used.items()]


def names(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


HOST = nested("host", 6, "host")
NUMA0 = nested("numa0", 6, "host", "host")
NUMA1 = nested("numa1", 3, "host", "host")
SPARE = nested("spare", 0, "spare")
VCPU = {"resource_class": "VCPU"}
MEMORY = {"resource_class": "MEMORY_MB"}
DISK = {"resource_class": "DISK_GB"}
OWNER = {"project_id": "project", "user_id": "user"}
INSTANCE = OWNER | {"consumer_type": "INSTANCE"}
MIGRATION = OWNER | {"consumer_type": "MIGRATION"}
USED = {"DISK_GB": 20, "VCPU": 2, "MEMORY_MB": 512}
OWNED = "--project-id project --user-id user"
CLASS_SET = "resource provider inventory class set {numa1} VCPU"
AMEND = "resource provider inventory set {numa1} --resource VCPU:reserved=2 --amend"

READS: list[tuple[str, str, Output]] = [
    (
        "1.0",
        "resource provider list",
        [provider("host", 6), provider("numa0", 6), provider("numa1", 3), provider("spare", 0)],
    ),
    ("1.14", "resource provider list", [HOST, NUMA0, NUMA1, SPARE]),
    ("1.0", "resource provider list --name host", [provider("host", 6)]),
    ("1.0", "resource provider list --uuid {numa0}", [provider("numa0", 6)]),
    ("1.3", "resource provider list --member-of {rack}", [provider("host", 6)]),
    ("1.3", "resource provider list --member-of {row},{rack}", [provider("host", 6)]),
    ("1.3", "resource provider list --aggregate-uuid {rack}", [provider("host", 6)]),
    ("1.4", "resource provider list --resource VCPU=7", [provider("numa1", 3)]),
    ("1.4", "resource provider list --resource VCPU=1 --resource MEMORY_MB=1024", [provider("numa1", 3)]),
    ("1.14", "resource provider list --in-tree {numa0} --name numa1", [NUMA1]),
    ("1.18", "resource provider list --required CUSTOM_FAST --required HW_NUMA_ROOT", [NUMA0]),
    ("1.22", "resource provider list --required HW_NUMA_ROOT --forbidden CUSTOM_FAST", [NUMA1]),
    ("1.24", "resource provider list --member-of {rack} --member-of {row}", []),
    (NEWEST, "resource provider list --member-of {rack} --resource DISK_GB=50", [HOST]),
    (
        NEWEST,
        "resource provider list --required CUSTOM_FAST,HW_CPU_X86_AVX --forbidden COMPUTE_NODE",
        [NUMA0],
    ),
    ("1.0", "resource provider show {numa0}", provider("numa0", 6)),
    (NEWEST, "resource provider show {numa0}", NUMA0),
    (
        "1.0",
        "resource provider show {numa0} --allocations",
        provider("numa0", 6) | {"allocations": {"{consumer}": {"resources": {"VCPU": 2, "MEMORY_MB": 512}}}},
    ),
    (
        NEWEST,
        "resource provider show {host} --allocations",
        HOST | {"allocations": {"{consumer}": {"resources": {"DISK_GB": 20}, "consumer_generation": 1}}},
    ),
    ("1.1", "resource provider aggregate list {host}", [{"uuid": "{rack}"}]),
    (NEWEST, "resource provider aggregate list {host}", [{"uuid": "{rack}"}]),
    (
        "1.0",
        "resource provider inventory list {numa0}",
        [VCPU | inventory(8, used=2), MEMORY | inventory(1024, used=512)],
    ),
    (
        NEWEST,
        "resource provider inventory list {numa0}",
        [VCPU | inventory(8, used=2), MEMORY | inventory(1024, used=512)],
    ),
    ("1.0", "resource provider inventory show {numa0} VCPU", inventory(8, used=2)),
    (NEWEST, "resource provider inventory show {numa0} VCPU", inventory(8, used=2)),
    ("1.0", "resource provider usage show {numa0}", usage(VCPU=2, MEMORY_MB=512)),
    (NEWEST, "resource provider usage show {numa0}", usage(VCPU=2, MEMORY_MB=512)),
    ("1.6", "resource provider trait list {numa0}", names("HW_NUMA_ROOT", "CUSTOM_FAST")),
    (NEWEST, "resource provider trait list {numa0}", names("HW_NUMA_ROOT", "CUSTOM_FAST")),
    (
        "1.0",
        "resource provider allocation show {consumer}",
        [allocation("host", 6, {"DISK_GB": 20}), allocation("numa0", 6, {"VCPU": 2, "MEMORY_MB": 512})],
    ),
    (
        "1.12",
        "resource provider allocation show {consumer}",
        [
            allocation("host", 6, {"DISK_GB": 20}, **OWNER),
            allocation("numa0", 6, {"VCPU": 2, "MEMORY_MB": 512}, **OWNER),
        ],
    ),
    (
        "1.38",
        "resource provider allocation show {consumer}",
        [
            allocation("host", 6, {"DISK_GB": 20}, **INSTANCE),
            allocation("numa0", 6, {"VCPU": 2, "MEMORY_MB": 512}, **INSTANCE),
        ],
    ),
    (NEWEST, "resource provider allocation show {nobody}", []),
    ("1.9", "resource usage show project", usage(**USED)),
    ("1.9", "resource usage show project --user-id nobody", []),
    (
        NEWEST,
        "resource usage show project --user-id user",
        [{"resource_class": "INSTANCE", "usage": USED | {"consumer_count": 1}}],
    ),
    ("1.2", "resource class show VCPU", {"name": "VCPU"}),
    (NEWEST, "resource class show CUSTOM_GOLD", {"name": "CUSTOM_GOLD"}),
    ("1.6", "trait list --name startswith:CUSTOM_", names("CUSTOM_FAST", "CUSTOM_UNUSED")),
    (NEWEST, "trait list --associated", names("HW_NUMA_ROOT", "CUSTOM_FAST")),
    (
        NEWEST,
        "trait list --name in:CUSTOM_FAST,HW_CPU_X86_AVX,CUSTOM_NONE",
        names("HW_CPU_X86_AVX", "CUSTOM_FAST"),
    ),
    ("1.6", "trait show CUSTOM_FAST", {"name": "CUSTOM_FAST"}),
    (NEWEST, "trait show HW_CPU_X86_AVX", {"name": "HW_CPU_X86_AVX"}),
    (
        "1.10",
        "allocation candidate list --resource VCPU=5",
        [candidate(1, "VCPU=5", "numa0", "VCPU=2/8"), candidate(2, "VCPU=5", "numa1", "VCPU=0/8")],
    ),
    (
        "1.12",
        "allocation candidate list --resource VCPU=7 --resource MEMORY_MB=1",
        [candidate(1, "VCPU=7,MEMORY_MB=1", "numa1", "VCPU=0/8,MEMORY_MB=0/1024")],
    ),
    (
        "1.16",
        "allocation candidate list --resource VCPU=1 --limit 1",
        [candidate(1, "VCPU=1", "numa0", "VCPU=2/8")],
    ),
    (
        "1.17",
        "allocation candidate list --resource VCPU=1 --required CUSTOM_FAST",
        [candidate(1, "VCPU=1", "numa0", "VCPU=2/8", "HW_NUMA_ROOT,CUSTOM_FAST")],
    ),
    (
        "1.21",
        "allocation candidate list --resource DISK_GB=1 --member-of {row},{rack}",
        [candidate(1, "DISK_GB=1", "host", "DISK_GB=20/100", "")],
    ),
    (
        "1.21",
        "allocation candidate list --resource DISK_GB=1 --aggregate-uuid {rack}",
        [candidate(1, "DISK_GB=1", "host", "DISK_GB=20/100", "")],
    ),
    (
        "1.22",
        "allocation candidate list --resource VCPU=1 --forbidden CUSTOM_FAST",
        [candidate(1, "VCPU=1", "numa1", "VCPU=0/8", "HW_NUMA_ROOT")],
    ),
    ("1.24", "allocation candidate list --resource DISK_GB=1 --member-of {rack} --member-of {row}", []),
    (
        "1.29",
        "allocation candidate list --resource DISK_GB=1 --group 1 --resource VCPU=7 --required HW_NUMA_ROOT"
        " --group 2 --resource VCPU=3 --group-policy isolate",
        [
            candidate(1, "DISK_GB=1", "host", "DISK_GB=20/100", ""),
            candidate(1, "VCPU=7", "numa1", "VCPU=0/8,MEMORY_MB=0/1024", "HW_NUMA_ROOT"),
            candidate(1, "VCPU=3", "numa0", "VCPU=2/8,MEMORY_MB=512/1024", "HW_NUMA_ROOT,CUSTOM_FAST"),
        ],
    ),
    (
        NEWEST,
        "allocation candidate list --group A --resource VCPU=1 --required CUSTOM_FAST,HW_CPU_X86_AVX"
        " --group B --resource VCPU=2 --forbidden CUSTOM_FAST",
        [
            candidate(1, "VCPU=1", "numa0", "VCPU=2/8,MEMORY_MB=512/1024", "HW_NUMA_ROOT,CUSTOM_FAST"),
            candidate(1, "VCPU=2", "numa1", "VCPU=0/8,MEMORY_MB=0/1024", "HW_NUMA_ROOT"),
        ],
    ),
]
"""Microversion, command, and its output."""

WRITES: list[tuple[str, str, Output, str, Output]] = [
    (
        "1.0",
        "resource provider create --uuid {new} new",
        provider("new", 0),
        "resource provider show {new}",
        nested("new", 0, "new"),
    ),
    (
        "1.14",
        "resource provider create --uuid {new} new --parent-provider {numa0}",
        nested("new", 0, "host", "numa0"),
        "resource provider show {new}",
        nested("new", 0, "host", "numa0"),
    ),
    (
        NEWEST,
        "resource provider create --uuid {new} new --parent-provider {host}",
        nested("new", 0, "host", "host"),
        "resource provider list --in-tree {numa0} --name new",
        [nested("new", 0, "host", "host")],
    ),
    (
        "1.0",
        "resource provider set {host} --name box",
        provider("host", 6) | {"name": "box"},
        "resource provider list --name box",
        [HOST | {"name": "box"}],
    ),
    (
        "1.14",
        "resource provider set {spare} --name spare --parent-provider {numa1}",
        nested("spare", 0, "host", "numa1"),
        "resource provider show {spare}",
        nested("spare", 0, "host", "numa1"),
    ),
    (
        "1.37",
        "resource provider set {numa1} --name numa1 --parent-provider {spare}",
        nested("numa1", 3, "spare", "spare"),
        "resource provider list --in-tree {numa1} --required HW_NUMA_ROOT",
        [nested("numa1", 3, "spare", "spare")],
    ),
    (
        NEWEST,
        "resource provider set {numa1} --name numa1 --parent-provider {numa0}",
        nested("numa1", 3, "host", "numa0"),
        "resource provider show {numa1}",
        nested("numa1", 3, "host", "numa0"),
    ),
    ("1.0", "resource provider delete {spare}", None, "resource provider list --name spare", []),
    (
        NEWEST,
        "resource provider delete {numa1}",
        None,
        "resource provider list --in-tree {host}",
        [HOST, NUMA0],
    ),
    (
        "1.1",
        "resource provider aggregate set {host} --aggregate {row} --aggregate {rack}",
        [{"uuid": "{rack}"}, {"uuid": "{row}"}],
        "resource provider aggregate list {host}",
        [{"uuid": "{rack}"}, {"uuid": "{row}"}],
    ),
    ("1.1", "resource provider aggregate set {host}", [], "resource provider show {host}", HOST),
    (
        "1.19",
        "resource provider aggregate set {numa1} --aggregate {rack} --generation 3",
        [{"uuid": "{rack}"}],
        "resource provider show {numa1}",
        NUMA1 | {"generation": 4},
    ),
    (
        NEWEST,
        "resource provider aggregate set {host} --generation 6",
        [],
        "resource provider aggregate list {host}",
        [],
    ),
    (
        "1.0",
        "resource provider inventory set {numa1} --resource VCPU=16 --resource VCPU:allocation_ratio=2.0",
        [VCPU | inventory(16, allocation_ratio=2.0)],
        "resource provider inventory list {numa1}",
        [VCPU | inventory(16, allocation_ratio=2.0, used=0)],
    ),
    (
        NEWEST,
        "resource provider inventory set {numa1} --resource VCPU=16 --resource CUSTOM_GOLD:total=5",
        [VCPU | inventory(16), {"resource_class": "CUSTOM_GOLD"} | inventory(5)],
        "resource provider inventory show {numa1} CUSTOM_GOLD",
        inventory(5, used=0),
    ),
    (
        NEWEST,
        AMEND,
        [VCPU | inventory(8, reserved=2), MEMORY | inventory(1024)],
        "resource provider inventory show {numa1} VCPU",
        inventory(8, reserved=2, used=0),
    ),
    (
        NEWEST,
        f"{AMEND} --dry-run",
        [VCPU | inventory(8, reserved=2), MEMORY | inventory(1024)],
        "resource provider inventory show {numa1} VCPU",
        inventory(8, used=0),
    ),
    (
        "1.3",
        "resource provider inventory set {rack} --resource DISK_GB:total=500 --aggregate --amend",
        [{"resource_provider": "{host}"} | DISK | inventory(500)],
        "resource provider inventory show {host} DISK_GB",
        inventory(500, used=20),
    ),
    (
        "1.0",
        f"{CLASS_SET} --total 4 --max_unit 2 --step_size 2 --min_unit 2 --reserved 2 --allocation_ratio 1.5",
        inventory(4, max_unit=2, step_size=2, min_unit=2, reserved=2, allocation_ratio=1.5),
        "resource provider show {numa1}",
        NUMA1 | {"generation": 4},
    ),
    (
        NEWEST,
        f"{CLASS_SET} --total 4",
        inventory(4),
        "resource provider inventory show {numa1} VCPU",
        inventory(4, used=0),
    ),
    (
        "1.0",
        "resource provider inventory delete {numa1} --resource-class VCPU",
        None,
        "resource provider inventory list {numa1}",
        [MEMORY | inventory(1024, used=0)],
    ),
    (
        "1.5",
        "resource provider inventory delete {numa1}",
        None,
        "resource provider inventory list {numa1}",
        [],
    ),
    (
        NEWEST,
        "resource provider inventory delete {numa1} --resource-class MEMORY_MB",
        None,
        "resource provider inventory list {numa1}",
        [VCPU | inventory(8, used=0)],
    ),
    (
        "1.6",
        "resource provider trait set {numa0} --trait CUSTOM_FAST --trait STORAGE_DISK_SSD",
        names("CUSTOM_FAST", "STORAGE_DISK_SSD"),
        "resource provider show {numa0}",
        NUMA0 | {"generation": 7},
    ),
    (
        NEWEST,
        "resource provider trait set {numa0} --trait HW_CPU_X86_AVX",
        names("HW_CPU_X86_AVX"),
        "resource provider trait list {numa0}",
        names("HW_CPU_X86_AVX"),
    ),
    ("1.6", "resource provider trait delete {numa0}", None, "resource provider trait list {numa0}", []),
    (NEWEST, "resource provider trait delete {numa1}", None, "resource provider trait list {numa1}", []),
    (
        "1.0",
        "resource provider allocation set {new} --allocation rp={numa1},VCPU=2,MEMORY_MB=64",
        [allocation("numa1", 4, {"VCPU": 2, "MEMORY_MB": 64})],
        "resource provider usage show {numa1}",
        usage(VCPU=2, MEMORY_MB=64),
    ),
    (
        "1.8",
        f"resource provider allocation set {{new}} --allocation rp={{numa1}},VCPU=2 {OWNED}",
        [allocation("numa1", 4, {"VCPU": 2})],
        "resource provider usage show {numa1}",
        usage(VCPU=2, MEMORY_MB=0),
    ),
    (
        "1.12",
        f"resource provider allocation set {{new}} --allocation rp={{numa1}},VCPU=2 {OWNED}",
        [allocation("numa1", 4, {"VCPU": 2}, **OWNER)],
        "resource provider usage show {numa1}",
        usage(VCPU=2, MEMORY_MB=0),
    ),
    (
        "1.28",
        "resource provider allocation set {consumer} --allocation rp={numa1},VCPU=2"
        f" --allocation rp={{numa1}},MEMORY_MB=64 {OWNED}",
        [allocation("numa1", 4, {"VCPU": 2, "MEMORY_MB": 64}, **OWNER)],
        "resource provider usage show {numa0}",
        usage(VCPU=0, MEMORY_MB=0),
    ),
    (
        NEWEST,
        "resource provider allocation set {new} --allocation rp={numa1},VCPU=2"
        f" {OWNED} --consumer-type MIGRATION",
        [allocation("numa1", 4, {"VCPU": 2}, **MIGRATION)],
        "resource usage show project",
        [
            {"resource_class": "INSTANCE", "usage": USED | {"consumer_count": 1}},
            {"resource_class": "MIGRATION", "usage": {"VCPU": 2, "consumer_count": 1}},
        ],
    ),
    (
        "1.12",
        "resource provider allocation unset {consumer} --provider {numa0}",
        [allocation("host", 7, {"DISK_GB": 20}, **OWNER)],
        "resource provider usage show {numa0}",
        usage(VCPU=0, MEMORY_MB=0),
    ),
    (
        "1.12",
        "resource provider allocation unset {consumer}",
        [],
        "resource provider allocation show {consumer}",
        [],
    ),
    (
        "1.28",
        "resource provider allocation unset {consumer}",
        [],
        "resource provider allocation show {consumer}",
        [],
    ),
    (
        NEWEST,
        "resource provider allocation unset {consumer} --provider {numa0} --resource-class VCPU",
        [
            allocation("host", 7, {"DISK_GB": 20}, **INSTANCE),
            allocation("numa0", 7, {"MEMORY_MB": 512}, **INSTANCE),
        ],
        "resource provider usage show {numa0}",
        usage(VCPU=0, MEMORY_MB=512),
    ),
    (
        "1.0",
        "resource provider allocation delete {consumer}",
        None,
        "resource provider usage show {numa0}",
        usage(VCPU=0, MEMORY_MB=0),
    ),
    (
        NEWEST,
        "resource provider allocation delete {consumer}",
        None,
        "resource provider allocation show {consumer}",
        [],
    ),
    (
        "1.2",
        "resource class create CUSTOM_NEW",
        None,
        "resource class show CUSTOM_NEW",
        {"name": "CUSTOM_NEW"},
    ),
    (
        NEWEST,
        "resource class create CUSTOM_NEW",
        None,
        "resource class show CUSTOM_NEW",
        {"name": "CUSTOM_NEW"},
    ),
    ("1.7", "resource class set CUSTOM_NEW", None, "resource class show CUSTOM_NEW", {"name": "CUSTOM_NEW"}),
    (
        NEWEST,
        "resource class set CUSTOM_GOLD",
        None,
        "resource class show CUSTOM_GOLD",
        {"name": "CUSTOM_GOLD"},
    ),
    ("1.6", "trait create CUSTOM_NEW", None, "trait list --name startswith:CUSTOM_N", names("CUSTOM_NEW")),
    (NEWEST, "trait create CUSTOM_NEW", None, "trait show CUSTOM_NEW", {"name": "CUSTOM_NEW"}),
    ("1.6", "trait delete CUSTOM_UNUSED", None, "trait list --name startswith:CUSTOM_", names("CUSTOM_FAST")),
    (
        NEWEST,
        "trait delete CUSTOM_UNUSED",
        None,
        "trait list --name startswith:CUSTOM_",
        names("CUSTOM_FAST"),
    ),
]
"""Microversion, command, and its output; a command that reads the changed resource, and its output."""

ERRORS: list[tuple[str, str]] = [
    ("resource provider create host", "host already exists. (HTTP 409)"),
    ("resource provider show {nobody}", "No resource provider with uuid {nobody} found (HTTP 404)"),
    ("resource provider delete {host}", "Unable to delete parent resource provider {host}"),
    ("resource provider delete {numa0}", "Unable to delete resource provider {numa0}"),
    ("resource provider set {host} --name host --parent-provider {numa0}", "(HTTP 400)"),
    ("resource provider aggregate set {host} --generation 5", "generation"),
    ("resource provider inventory delete {numa0}", "in use. (HTTP 409)"),
    ("resource provider inventory delete {spare} --resource-class VCPU", "(HTTP 404)"),
    ("resource provider inventory set {numa1} --resource CUSTOM_NONE=1", "CUSTOM_NONE"),
    ("resource provider inventory set {row} --resource VCPU=1 --aggregate", "No resource providers found"),
    ("resource provider trait set {host} --trait CUSTOM_NONE", "No such trait CUSTOM_NONE (HTTP 400)"),
    ("resource provider allocation delete {nobody}", "No allocations for consumer '{nobody}' (HTTP 404)"),
    (
        f"resource provider allocation set {{new}} {OWNED} --allocation rp={{numa0}},VCPU=7"
        " --consumer-type INSTANCE",
        "would exceed the capacity. (HTTP 409)",
    ),
    ("resource class create GOLD", "'GOLD' does not match '^CUSTOM_[A-Z0-9_]+$'"),
    ("resource class create CUSTOM_GOLD", "already exists: CUSTOM_GOLD (HTTP 409)"),
    ("resource class delete VCPU", "standard resource class VCPU. (HTTP 400)"),
    ("resource class show CUSTOM_NONE", "No such resource class CUSTOM_NONE. (HTTP 404)"),
    ("trait create FAST", 'start with the prefix "CUSTOM_"'),
    ("trait delete CUSTOM_FAST", "CUSTOM_FAST is in use by a resource provider. (HTTP 409)"),
    ("trait delete HW_NUMA_ROOT", "Cannot delete standard trait HW_NUMA_ROOT. (HTTP 400)"),
    ("trait show CUSTOM_NONE", "No such trait(s): CUSTOM_NONE. (HTTP 404)"),
    ("allocation candidate list --resource CUSTOM_NONE=1", "No such resource class CUSTOM_NONE. (HTTP 400)"),
    ("resource provider list --required CUSTOM_NONE", "No such trait(s): CUSTOM_NONE. (HTTP 400)"),
]
"""Command, and a part of its error message."""
