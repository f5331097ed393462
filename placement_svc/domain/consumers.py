"""Consumers and projects as lists show them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Consumer:
    """A consumer; `created_at` is None if it is older than the record of these times.

    `updated_at` is the time of the last claim after the one that created the consumer, None if there is none.
    """

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str
    created_at: datetime | None
    updated_at: datetime | None


@dataclass(frozen=True)
class ConsumerDetails:
    """A consumer with its allocations, as the API shows them; None if they were not requested."""

    consumer: Consumer
    allocations: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ConsumerFilter:
    """The filters of a list of consumers; None does not restrict it.

    One allocation of a listed consumer satisfies `resource_provider`, `in_tree` (the uuid of any provider of
    a tree) and `resource_class` together.
    """

    project_id: str | None = None
    user_id: str | None = None
    consumer_type: str | None = None
    resource_provider: str | None = None
    in_tree: str | None = None
    resource_class: str | None = None


@dataclass(frozen=True)
class ProjectUsage:
    """A project with the number of its consumers and the sums of their allocations by resource class."""

    project_id: str
    consumers: int
    usages: Mapping[str, int] = field(default_factory=dict)
