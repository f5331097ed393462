"""What is to be known of whole trees, for combining and for the summaries."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    FromClause,
    any_,
    bindparam,
    cast,
    func,
    null,
    select,
    type_coerce,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by
from sqlalchemy.types import NULLTYPE, Integer, Text

from placement_svc.db.tables import inventories, resource_classes, resource_providers, traits
from placement_svc.domain.candidates import ResourceSummary, Supplier


def fetch_trees(connection: Connection, root_ids: Collection[int]) -> dict[int, Supplier]:
    """Return all providers of the trees with these roots, by id.

    One statement, proportional to the trees: two tables are read, by the indexes on their root_id.
    The names of traits come along, each once, and not with every provider that has them.
    """
    rows = connection.execute(_TREES, {"root_ids": list(root_ids)}).all()
    trait_names = {id_: name for id_, name, path, *_ in rows if path is None}
    providers = [row for row in rows if row[2] is not None]
    named = {
        ids: tuple(trait_names[int(id_)] for id_ in ids[1:-1].split(",") if id_)
        for ids in {row[3] for row in providers}
    }
    uuids = {row[0]: row[1] for row in providers}
    return {
        id_: Supplier(
            id=id_,
            uuid=uuid,
            parent_uuid=uuids[path[-2]] if len(path) > 1 else None,
            root_uuid=uuids[path[0]],
            path=tuple(path),
            traits=named[trait_ids],
            resources=_resources(*listed),
        )
        for id_, uuid, path, trait_ids, *listed in providers
    }


def _resources(
    classes: list[str] | None, capacities: list[int], used: list[int], max_units: list[int]
) -> dict[str, ResourceSummary]:
    if classes is None:
        return {}
    return dict(zip(classes, map(ResourceSummary, capacities, used, max_units), strict=True))


def _plain(array: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return `array` without its type: the driver's lists are what we want, and there are many."""
    return type_coerce(array, NULLTYPE)


def _query() -> CompoundSelect[Any]:
    """Return the query of providers by uuid with all they have, and of traits (no path) by name."""
    providers = resource_providers
    of_trees = providers.c.root_id == any_(bindparam("root_ids", type_=ARRAY(Integer)))
    listed = _listed_inventories()
    columns = [
        providers.c.id,
        providers.c.uuid.label("name"),
        _plain(providers.c.path).label("path"),
        # As text, such as {1,2,3}: few texts differ, and only those are taken apart.
        cast(providers.c.trait_ids, Text).label("trait_ids"),
        *listed.c[1:],
    ]
    provider_rows = select(*columns).outerjoin(listed, listed.c.provider_id == providers.c.id).where(of_trees)
    # Hosts mostly have the same traits: few sets of them are left to be taken apart.
    sets = select(providers.c.trait_ids).where(of_trees).distinct().subquery()
    trait_rows = select(traits.c.id, traits.c.name, *(null() for _ in columns[2:])).where(
        traits.c.id.in_(select(func.unnest(sets.c.trait_ids)))
    )
    return union_all(provider_rows, trait_rows)


def _listed_inventories() -> FromClause:
    """Return the inventories of the trees, folded into arrays by provider."""
    class_id = inventories.c.resource_class_id

    def listed(column: ColumnElement[Any]) -> ColumnElement[Any]:
        return _plain(func.array_agg(aggregate_order_by(column, class_id)))

    return (
        select(
            inventories.c.provider_id,
            listed(resource_classes.c.name).label("classes"),
            listed(inventories.c.capacity).label("capacities"),
            listed(inventories.c.used).label("used"),
            listed(inventories.c.max_unit).label("max_units"),
        )
        .join(resource_classes, resource_classes.c.id == class_id)
        .where(inventories.c.root_id == any_(bindparam("root_ids", type_=ARRAY(Integer))))
        .group_by(inventories.c.provider_id)
        .subquery()
    )


_TREES = _query()
