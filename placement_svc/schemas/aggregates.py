"""Aggregates of a resource provider: bodies (`docs/spec/resources.md 5`)."""

from typing import Any

from placement_svc.schemas.base import UUID, Array, Document, Integer, String


class Aggregates(Array):
    """The uuids of aggregates; before 1.19 they are the whole body of PUT .../aggregates."""

    def __init__(self, **options: Any) -> None:
        super().__init__(String(uuid=UUID), unique=True, **options)


class ChangedAggregates(Document):
    """PUT .../aggregates since 1.19."""

    aggregates = Aggregates(required=True)
    resource_provider_generation = Integer(required=True)
