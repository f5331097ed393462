"""Resource providers, as they are told about."""

from dataclasses import dataclass
from datetime import datetime

from placement_svc.domain.groups import NO_REQUIREMENTS, RequestGroup


@dataclass(frozen=True)
class Provider:
    """A resource provider and its place in its tree; a root is its own root and has no parent."""

    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str
    modified: datetime


@dataclass(frozen=True)
class ProviderChange:
    """A resource provider after a change, and when it had been changed before (None: never)."""

    provider: Provider
    changed_before: datetime | None


@dataclass(frozen=True)
class ProviderFilter:
    """Which providers are wanted: of this name, of this uuid, each able to satisfy `group` alone."""

    name: str | None = None
    uuid: str | None = None
    group: RequestGroup = NO_REQUIREMENTS
