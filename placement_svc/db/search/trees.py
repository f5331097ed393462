"""What is to be known of whole trees, for combining and for the summaries."""

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Text,
    bindparam,
    cast,
    func,
    literal,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by
from sqlalchemy.types import NULLTYPE, Boolean, Integer, String

from placement_svc.db.engine import driver_rows
from placement_svc.db.tables import inventories, resource_classes, resource_providers, traits


def _ids(array: str) -> tuple[int, ...]:
    return tuple(map(int, filter(None, array[1:-1].split(","))))


TreeProvider = tuple[int, str, int | None, int, str, str]
"""A provider of a tree as PostgreSQL tells of it: id, uuid, parent_id, root_id, traits and resources.

There are thousands in an answer. So they are the driver's own tuples, and taken apart no further than
needed: the traits are an array of ids as text, such as ``{1,2,3}``, and the resources are what stands in
the summary, the members of a JSON object as text.
"""

_COLUMNS = 6


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
        self._rooms: dict[int, dict[str, int]] = {}
        self._paths: dict[int, tuple[int, ...]] = {}
        self._trait_ids: dict[str, frozenset[int]] = {}

    def fetch(self, connection: Connection, root_ids: Iterable[int]) -> None:
        """Fetch the trees of these roots, but for those that are there.

        One statement, proportional to the trees: two tables are read, by the indexes on their root_id.
        """
        new = [id_ for id_ in root_ids if id_ not in self.providers]
        if not new:
            return
        values = {
            "root_ids": new,
            "all_shown": self.shown is None,
            "shown": sorted(self.shown or ()),
            "summed": sorted(self.summed),
        }
        rows = driver_rows(connection, _WITH_ROOMS if self.summed else _TREES, values)
        if self.summed:
            for id_, *_, classes, rooms in rows:
                self._rooms[id_] = dict(zip(classes or (), rooms or (), strict=True))
            rows = [row[:_COLUMNS] for row in rows]
        self.providers.update({row[0]: row for row in rows})
        self.uuids.update({row[0]: row[1] for row in rows})

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
        text = self.providers[provider_id][4]
        ids = self._trait_ids.get(text)
        if ids is None:
            ids = self._trait_ids[text] = frozenset(_ids(text))
        return ids

    def room(self, provider_id: int, resource_class: str) -> int:
        """Return the most that one more consumer can get of one of the classes `summed`."""
        return self._rooms[provider_id][resource_class]

    def name_traits(self, connection: Connection) -> dict[str, list[str]]:
        """Return the names of each set of traits that a provider has, by how that is told.

        One statement; hosts mostly have the same traits, so that few sets are to be taken apart.
        """
        sets = {text: _ids(text) for text in {provider[4] for provider in self.providers.values()}}
        wanted = sorted({id_ for ids in sets.values() for id_ in ids})
        names = dict(connection.execute(_TRAIT_NAMES, {"ids": wanted}).all())
        return {text: [names[id_] for id_ in ids] for text, ids in sets.items()}


def _plain(array: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return `array` without its type: the driver's lists are what we want, and there are many."""
    return type_coerce(array, NULLTYPE)


def _any(name: str, type_: Any) -> ColumnElement[Any]:
    return func.any(bindparam(name, type_=ARRAY(type_)))


# PostgreSQL does not see how many there are: to weigh each of a thousand for each table takes a tenth of the
# time. It expects ten, and reads by the indexes as it should.
_ROOT_IDS = func.any(
    cast(select(bindparam("root_ids", type_=ARRAY(Integer))).scalar_subquery(), ARRAY(Integer))
)

# Where the JSON of an inventory begins; the OFFSET lets that be put together once for each class.
_classes = (
    select(
        resource_classes.c.id,
        resource_classes.c.name,
        literal('"').concat(resource_classes.c.name).concat('":{"capacity":').label("head"),
    )
    .offset(0)
    .subquery("classes")
)


def _of_providers(*, with_rooms: bool) -> Select[Any]:
    """Return the query of providers with all they have."""
    class_id, name = inventories.c.resource_class_id, _classes.c.name
    # Built by PostgreSQL: a dict of each inventory would cost more than all the rest.
    capacity, used = cast(inventories.c.capacity, Text), cast(inventories.c.used, Text)
    member = _classes.c.head.concat(capacity).concat(',"used":').concat(used).concat("}")
    columns: list[ColumnElement[Any]] = [
        func.string_agg(member, aggregate_order_by(literal(","), class_id)).label("resources")
    ]
    if with_rooms:
        summed = name == _any("summed", String)
        columns += [_plain(func.array_agg(column).filter(summed)) for column in (name, inventories.c.room)]
    stock = (
        select(inventories.c.provider_id, *columns)
        .join(_classes, _classes.c.id == class_id)
        .where(
            inventories.c.root_id == _ROOT_IDS,
            or_(bindparam("all_shown", type_=Boolean), name == _any("shown", String)),
        )
        .group_by(inventories.c.provider_id)
        .subquery("stock")
    )
    provider = resource_providers
    return (
        select(
            provider.c.id,
            provider.c.uuid,
            provider.c.parent_id,
            provider.c.root_id,
            cast(provider.c.trait_ids, Text),
            func.coalesce(stock.c.resources, ""),
            *stock.c[2:],
        )
        .outerjoin(stock, stock.c.provider_id == provider.c.id)
        .where(provider.c.root_id == _ROOT_IDS)
    )


_TREES = _of_providers(with_rooms=False)
_WITH_ROOMS = _of_providers(with_rooms=True)
_TRAIT_NAMES = select(traits.c.id, traits.c.name).where(traits.c.id == _any("ids", Integer))
