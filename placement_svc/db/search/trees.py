"""What is to be known of whole trees, for combining and for the summaries."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Text,
    any_,
    bindparam,
    cast,
    func,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Boolean, Integer, String

from placement_svc.db.engine import driver_rows
from placement_svc.db.tables import inventories, resource_classes, resource_providers, traits


def _array(ids: Iterable[int]) -> str:
    return f"{{{','.join(map(str, ids))}}}"


TreeProvider = tuple[int, str, int | None, int]
"""A provider of a tree as the driver tells of it, as there are thousands: id, uuid, parent_id, root_id."""


class TraitSet(NamedTuple):
    """Traits, by their names, and the ids of providers that have just these: hosts are mostly alike."""

    names: list[str]
    provider_ids: list[int]


class Trees:
    """All providers of the trees that were fetched so far, by id; they are the facts of combining.

    `shown` are the resource classes that the summaries tell of (None: all), `summed` those whose room
    is asked for.
    """

    def __init__(self, shown: Collection[str] | None, summed: Collection[str]) -> None:
        self.shown = shown
        self.summed = summed
        self.providers: dict[int, TreeProvider] = {}
        self.uuids: dict[int, str] = {}
        self.resources: dict[int, str] = {}
        """What each provider has in its summary, the members of a JSON object as text; none if missing."""
        self.trait_sets: list[TraitSet] = []
        """The traits of each provider that has any."""
        self._trait_ids: dict[int, frozenset[int]] = {}
        self._rooms: dict[tuple[int, str], int] = {}
        self._paths: dict[int, tuple[int, ...]] = {}

    def fetch(self, connection: Connection, root_ids: Sequence[int]) -> None:
        """Fetch the providers of the trees of these roots, and their room.

        One statement, or two if room is asked for, proportional to the trees: they read by the indexes
        on root_id.
        """
        rows = driver_rows(connection, _PROVIDERS, {"root_ids": _array(root_ids)})
        self.providers.update({row[0]: row for row in rows})
        self.uuids.update({row[0]: row[1] for row in rows})
        if self.summed:
            values = {"root_ids": _array(root_ids), "summed": sorted(self.summed)}
            for provider_id, name, room in driver_rows(connection, _ROOMS, values):
                self._rooms[provider_id, name] = room

    def fetch_rest(self, connection: Connection, root_ids: Sequence[int]) -> None:
        """Fetch what the providers of these trees have: resources and traits.

        One statement, proportional to the trees as well. Combining never asks for resources, and for
        traits only if the unsuffixed group has clauses of them.
        """
        values = {
            "root_ids": _array(root_ids),
            "all_shown": self.shown is None,
            "shown": sorted(self.shown or ()),
        }
        for _, name, ids, texts, trait_ids, trait_names in driver_rows(connection, _REST, values):
            if name is None:
                self._trait_ids.update(dict.fromkeys(ids, frozenset(trait_ids)))
                self.trait_sets.append(TraitSet(trait_names, ids))
                continue
            head = f'"{name}":{{"capacity":'
            for id_, text in zip(ids, texts.split(), strict=True):
                member = f"{head}{text}}}"
                self.resources[id_] = f"{self.resources[id_]},{member}" if id_ in self.resources else member

    def path(self, provider_id: int) -> tuple[int, ...]:
        """Return the ids from the provider's root down to itself."""
        path = self._paths.get(provider_id)
        if path is None:
            parent_id = self.providers[provider_id][2]
            above = () if parent_id is None else self.path(parent_id)
            path = self._paths[provider_id] = (*above, provider_id)
        return path

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        """Return the ids of the provider's traits."""
        return self._trait_ids.get(provider_id, frozenset())

    def room(self, provider_id: int, resource_class: str) -> int:
        """Return the most that one more consumer can get of one of the classes `summed`."""
        return self._rooms[provider_id, resource_class]


def _any(name: str, type_: Any) -> ColumnElement[Any]:
    return func.any(bindparam(name, type_=ARRAY(type_)))


# As text: a list would be a thousand literals, which psycopg2 and PostgreSQL deal with one by one, in 1.5 ms.
# PostgreSQL does not see how many there are: to weigh each of a thousand for each table takes a tenth of the
# time. It expects ten, and reads by the indexes as it should.
_ROOT_IDS = func.any(
    cast(select(cast(bindparam("root_ids", type_=String), ARRAY(Integer))).scalar_subquery(), ARRAY(Integer))
)

_PROVIDERS = select(
    resource_providers.c.id,
    resource_providers.c.uuid,
    resource_providers.c.parent_id,
    resource_providers.c.root_id,
).where(resource_providers.c.root_id == _ROOT_IDS)

_ROOMS = (
    select(inventories.c.provider_id, resource_classes.c.name, inventories.c.max_allocatable)
    .join(resource_classes, resource_classes.c.id == inventories.c.resource_class_id)
    .where(inventories.c.root_id == _ROOT_IDS, resource_classes.c.name == _any("summed", String))
)

_shown_ids = select(resource_classes.c.id).where(resource_classes.c.name == _any("shown", String))

# A row for each class, with who has it, and of each what stands in the summary behind "capacity": to sort
# the inventories by provider, and to send thousands of rows, takes longer.
_resources = (
    select(
        inventories.c.resource_class_id,
        select(resource_classes.c.name)
        .where(resource_classes.c.id == inventories.c.resource_class_id)
        .scalar_subquery(),
        func.array_agg(inventories.c.provider_id),
        func.string_agg(
            cast(inventories.c.capacity, Text).concat(',"used":').concat(cast(inventories.c.used, Text)), " "
        ),
        null(),
        null(),
    )
    .where(
        inventories.c.root_id == _ROOT_IDS,
        or_(bindparam("all_shown", type_=Boolean), inventories.c.resource_class_id.in_(_shown_ids)),
    )
    .group_by(inventories.c.resource_class_id)
)

# A row for each set of traits, with who has just these: told with each provider they take longer.
_trait_sets = (
    select(
        null(),
        null(),
        func.array_agg(resource_providers.c.id),
        null(),
        resource_providers.c.trait_ids,
        func.array(
            select(traits.c.name)
            .where(traits.c.id == any_(resource_providers.c.trait_ids))
            .order_by(traits.c.id)
            .scalar_subquery()
        ),
    )
    .where(resource_providers.c.root_id == _ROOT_IDS, resource_providers.c.trait_ids != [])
    .group_by(resource_providers.c.trait_ids)
)

_REST = union_all(_resources, _trait_sets).order_by("resource_class_id")
