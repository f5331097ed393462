"""Resource providers as the API shows them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from placement_svc.domain.groups import NO_REQUIREMENTS, RequestGroup


@dataclass(frozen=True)
class Provider:
    """A resource provider and its position in its tree; a root is its own root and has no parent."""

    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str
    modified: datetime


@dataclass(frozen=True)
class ProviderChange:
    """A resource provider after a change, and the time of the change before that (None: never)."""

    provider: Provider
    changed_before: datetime | None


@dataclass(frozen=True)
class ProviderFilter:
    """The filters of a list of resource providers; a listed provider satisfies `group` alone.

    `uuids` are those that the list may have, and `name_part` a text that the name contains.
    """

    name: str | None = None
    name_part: str = ""
    uuids: frozenset[str] | None = None
    group: RequestGroup = NO_REQUIREMENTS


@dataclass(frozen=True)
class ProviderDetails:
    """A resource provider with the requested parts of it, such as its `traits`, by the name of the part."""

    provider: Provider
    parts: dict[str, Any]
