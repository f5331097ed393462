"""Lines of files to import, and the problems that an import reports."""

from collections import Counter
from typing import Any

import orjson
from click.testing import Result

from placement_svc.domain.records import RECORD_TYPES
from tests.support.cloud import uuid_of


def lines(*values: Any) -> bytes:
    """Return a file with these records and their counts."""
    numbers = Counter(key for value in values for key in value)
    counts = {name: numbers[name] for name in RECORD_TYPES.values()}
    return b"\n".join(map(orjson.dumps, [*values, {"counts": counts}]))


def provider(name: str, parent: str | None = None, /, **fields: Any) -> dict[str, Any]:
    """Return the record of a provider."""
    parent_uuid = parent and uuid_of(parent)
    record = {"uuid": uuid_of(name), "name": name, "parent_provider_uuid": parent_uuid, **fields}
    return {"resource_provider": record}


def consumer(name: str, amounts: dict[str, dict[str, int]], /, **fields: Any) -> dict[str, Any]:
    """Return the record of a consumer, from its amounts by provider and resource class."""
    allocations = {uuid_of(name): {"resources": resources} for name, resources in amounts.items()}
    owner = {"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE"}
    return {"consumer": {"uuid": uuid_of(name), **owner, "allocations": allocations, **fields}}


def placement_group(name: str, members: list[str], /, **fields: Any) -> dict[str, Any]:
    """Return the record of a placement group, by default one that keeps its members apart."""
    uuids = [uuid_of(member) for member in members]
    return {"placement_group": {"uuid": uuid_of(name), "policy": "anti-affinity", "members": uuids, **fields}}


def vcpus(total: int, **units: int) -> dict[str, Any]:
    """Return the inventories of a provider that has VCPU only."""
    return {"VCPU": {"total": total, **units}}


def reported_problems(refused: Result) -> list[str]:
    """Return the problems that a refused import reports, sorted."""
    assert (refused.exit_code, refused.stdout) == (1, "")
    first, *rest = refused.stderr.splitlines()
    assert first.startswith("Error: ")
    return sorted([first.removeprefix("Error: "), *rest])
