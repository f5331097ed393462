"""Aggregates: sets of resource providers that have a uuid and nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ProviderAggregates:
    """The uuids of the aggregates that a provider is in, each as it was sent; and its generation."""

    generation: int
    uuids: list[str]


@dataclass(frozen=True)
class AggregateSize:
    """How many resource providers are in an aggregate."""

    uuid: str
    resource_providers: int


@dataclass(frozen=True)
class Member:
    """A resource provider as a member of an aggregate."""

    uuid: str
    name: str
