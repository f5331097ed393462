"""What is to be known of whole trees, for combining and for the summaries."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, any_, bindparam, func, select, type_coerce
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by
from sqlalchemy.types import NULLTYPE, Integer

from placement_svc.db import names
from placement_svc.db.tables import inventories, resource_classes, resource_providers
from placement_svc.domain.candidates import ResourceSummary, Supplier


def fetch_trees(connection: Connection, root_ids: Collection[int]) -> dict[int, Supplier]:
    """Return all providers of the trees with these roots, by id.

    One statement, proportional to the trees: two tables are read, by the indexes on their root_id.
    """
    rows = connection.execute(_TREES, {"root_ids": list(root_ids)}).all()
    held = {tuple(row.trait_ids) for row in rows}
    trait_names = names.trait_names(connection, set().union(*held))
    named = {ids: tuple(trait_names[id_] for id_ in ids) for ids in held}
    uuids = {row.id: row.uuid for row in rows}
    return {
        row.id: Supplier(
            id=row.id,
            uuid=row.uuid,
            parent_uuid=uuids[row.path[-2]] if len(row.path) > 1 else None,
            root_uuid=uuids[row.path[0]],
            path=tuple(row.path),
            traits=named[tuple(row.trait_ids)],
            resources=_resources(row),
        )
        for row in rows
    }


def _plain(array: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return `array` without its type: the driver's lists are what we want, and there are many."""
    return type_coerce(array, NULLTYPE)


def _query() -> Select[Any]:
    providers = resource_providers
    root_ids = bindparam("root_ids", type_=ARRAY(Integer))
    class_id = inventories.c.resource_class_id

    def listed(column: ColumnElement[Any]) -> ColumnElement[Any]:
        return _plain(func.array_agg(aggregate_order_by(column, class_id)))

    listed_inventories = (
        select(
            inventories.c.provider_id,
            listed(resource_classes.c.name).label("classes"),
            listed(inventories.c.capacity).label("capacities"),
            listed(inventories.c.used).label("used"),
            listed(inventories.c.max_unit).label("max_units"),
        )
        .join(resource_classes, resource_classes.c.id == class_id)
        .where(inventories.c.root_id == any_(root_ids))
        .group_by(inventories.c.provider_id)
        .subquery()
    )
    return (
        select(
            providers.c.id,
            providers.c.uuid,
            _plain(providers.c.path).label("path"),
            _plain(providers.c.trait_ids).label("trait_ids"),
            *listed_inventories.c[1:],
        )
        .outerjoin(listed_inventories, listed_inventories.c.provider_id == providers.c.id)
        .where(providers.c.root_id == any_(root_ids))
        .order_by(providers.c.root_id, providers.c.id)
    )


_TREES = _query()


def _resources(row: Row[Any]) -> dict[str, ResourceSummary]:
    if row.classes is None:
        return {}
    amounts = map(ResourceSummary, row.capacities, row.used, row.max_units)
    return dict(zip(row.classes, amounts, strict=True))
