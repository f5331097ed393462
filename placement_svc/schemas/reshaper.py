"""Reshapes: bodies (`docs/spec/allocations.md 11`)."""

from functools import cache
from typing import Any

from placement_svc.domain.reshaper import ProviderReshape, Reshape
from placement_svc.schemas.allocations import claims_field, to_claim
from placement_svc.schemas.base import UUID_KEY, Document, Map, Object
from placement_svc.schemas.groups import Version
from placement_svc.schemas.inventories import ChangedInventories


@cache
def reshape_document(version: Version) -> Document:
    """Return the document of POST /reshaper as a microversion knows it."""

    class WantedReshape(Document):
        """Inventories by the uuid of the provider, and allocations by the uuid of the consumer."""

        inventories = Map(UUID_KEY, Object(ChangedInventories()), min_members=1, required=True)
        allocations = claims_field(version)

    return WantedReshape()


def parse_reshape(body: Any, version: Version) -> Reshape:
    """Return the reshape that `body` describes; raises `Invalid`."""
    stated = reshape_document(version).check(body)
    return Reshape(
        providers={
            uuid: ProviderReshape(item["resource_provider_generation"], item["inventories"])
            for uuid, item in stated["inventories"].items()
        },
        claims=[to_claim(uuid, claim) for uuid, claim in stated["allocations"].items()],
    )
