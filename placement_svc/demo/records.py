"""The records of the providers and consumers of the demo, by their names."""

from collections.abc import Mapping

from placement_svc.domain.allocations import Claim
from placement_svc.domain.demo import demo_uuid
from placement_svc.domain.inventory import Inventory
from placement_svc.domain.records import ProviderRecord

CONSUMER_TYPES = {"batch": "BATCH_JOB", "ci": "CI_RUNNER"}
"""The types of the consumers of some projects; those of other projects are instances."""


def provider(
    name: str,
    inventories: Mapping[str, Inventory],
    *,
    parent: str | None = None,
    traits: tuple[str, ...] = (),
    aggregates: tuple[str, ...] = (),
) -> ProviderRecord:
    """Return a provider; `parent` is a name, and `aggregates` has the names of aggregates."""
    return ProviderRecord(
        uuid=demo_uuid(name),
        name=name,
        parent_uuid=parent and demo_uuid(parent),
        traits=traits,
        aggregates=[demo_uuid(f"aggregate {aggregate}") for aggregate in aggregates],
        inventories=inventories,
    )


def consumer(
    name: str, project: str, allocations: Mapping[str, Mapping[str, int]], consumer_type: str = ""
) -> Claim:
    """Return a consumer of a project; `allocations` are by the names of providers."""
    return Claim(
        consumer_uuid=demo_uuid(name),
        project_id=project,
        user_id=f"{project}-operator",
        consumer_type=consumer_type or CONSUMER_TYPES.get(project, "INSTANCE"),
        generation=None,
        allocations={demo_uuid(provider): amounts for provider, amounts in allocations.items()},
    )
