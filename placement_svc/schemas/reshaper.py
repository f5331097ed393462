"""Schemas of the reshaper (`docs/spec/allocations.md 11`)."""

from functools import cache
from typing import Any

from placement_svc.domain.reshaper import ProviderReshape, Reshape
from placement_svc.schemas.allocations import claims_field, to_claim
from placement_svc.schemas.base import Map, Object, Schema
from placement_svc.schemas.inventories import ChangedInventories
from placement_svc.schemas.scalars import UUID_KEY, Version


@cache
def reshape_schema(version: Version) -> Schema:
    """Return the schema of POST /reshaper of a microversion."""

    class ReshapeBody(Schema):
        """Inventories by provider uuid, and allocations by consumer uuid."""

        inventories = Map(UUID_KEY, Object(ChangedInventories()), min_members=1, required=True)
        allocations = claims_field(version)

    return ReshapeBody()


def parse_reshape(body: Any, version: Version) -> Reshape:
    """Return the reshape in the body of POST /reshaper; raise `Invalid`."""
    loaded = reshape_schema(version).check(body)
    return Reshape(
        providers={
            uuid: ProviderReshape(item["resource_provider_generation"], item["inventories"])
            for uuid, item in loaded["inventories"].items()
        },
        claims=[to_claim(uuid, claim) for uuid, claim in loaded["allocations"].items()],
    )
