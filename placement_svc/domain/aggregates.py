"""Aggregates: sets of resource providers. An aggregate has a uuid and no other property."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ProviderAggregates:
    """The aggregates that a provider belongs to, and the generation of the provider.

    `uuids` are spelled as clients sent them.
    """

    generation: int
    uuids: list[str]


@dataclass(frozen=True)
class AggregateSize:
    """An aggregate and the number of resource providers in it."""

    uuid: str
    resource_providers: int


@dataclass(frozen=True)
class AggregateMember:
    """A resource provider in an aggregate."""

    uuid: str
    name: str
