"""Schemas of the aggregates of a resource provider (`docs/spec/resources.md 5`)."""

from typing import Any

from placement_svc.domain.limits import MAX_AGGREGATE_UUID_LENGTH
from placement_svc.schemas.base import Array, Schema
from placement_svc.schemas.patches import EXPECTED_GENERATION
from placement_svc.schemas.scalars import ANY_UUID, Integer, String


class AggregateUuids(Array):
    """Uuids of aggregates. Before 1.19, they are the whole body of PUT .../aggregates."""

    def __init__(self, **options: Any) -> None:
        super().__init__(String(uuid=ANY_UUID, max_length=MAX_AGGREGATE_UUID_LENGTH), unique=True, **options)


class PatchedAggregates(Schema):
    """The body of PATCH /resource_providers/{uuid}/aggregates."""

    add = AggregateUuids()
    remove = AggregateUuids()
    resource_provider_generation = Integer(metadata=EXPECTED_GENERATION)


class ChangedAggregates(Schema):
    """The body of PUT .../aggregates since 1.19."""

    aggregates = AggregateUuids(required=True)
    resource_provider_generation = Integer(required=True)
