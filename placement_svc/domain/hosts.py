"""Hosts as the console shows them: roots of provider trees, with the sums over their trees."""

from collections.abc import Sequence
from dataclasses import dataclass

from placement_svc.domain.capacity import Amounts


@dataclass(frozen=True)
class HostFilter:
    """The filters of a list of hosts; empty values do not restrict it.

    Any provider of the tree can satisfy each of them: `text` is a part of its name, or its uuid; `trait`,
    `aggregate` and `resource_class` are what it has.
    """

    text: str = ""
    trait: str = ""
    aggregate: str = ""
    resource_class: str = ""


@dataclass(frozen=True)
class Host:
    """A root, the number of providers in its tree, and the amounts of the tree by resource class."""

    uuid: str
    name: str
    providers: int
    amounts: Amounts


@dataclass(frozen=True)
class MapCell:
    """A host on the map: the group that it belongs to, and one resource class of its tree.

    `resource_class` is None if the tree has no inventory of the class, or no inventory at all.
    """

    uuid: str
    name: str
    group: int
    resource_class: str | None
    used: int
    capacity: int


@dataclass(frozen=True)
class HostMap:
    """The cells of a map, by group and name, and the names of the groups.

    `has_more` says whether the cloud has more hosts than the map shows.
    """

    groups: Sequence[str]
    cells: Sequence[MapCell]
    has_more: bool


@dataclass(frozen=True)
class ObjectCounts:
    """The numbers of objects in the database."""

    hosts: int
    providers: int
    consumers: int
    projects: int
