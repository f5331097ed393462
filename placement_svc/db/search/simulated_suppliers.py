"""The suppliers around anchors with their inventories, which claims in memory use up."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Integer,
    String,
    any_,
    bindparam,
    cast,
    func,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY

from placement_svc.db.engine import each_driver_row
from placement_svc.db.filters import int_array
from placement_svc.db.search.anchors import Anchor
from placement_svc.db.search.candidates import SearchOptions
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.ignored_consumers import NOTHING_FREED, FreedInventories
from placement_svc.db.tables import inventories, resource_providers
from placement_svc.domain.claim_amounts import RootSuppliers, SimulatedInventories

PROVIDER_SIZE = 600
"""Bytes of memory that a root or a supplier needs, approximately."""

INVENTORY_SIZE = 400
"""Bytes of memory that an inventory needs, approximately."""


@dataclass
class SimulatedSuppliers:
    """Suppliers with their inventories, and the uuids and names of the suppliers and of all their roots.

    `sharing_ids` are those with MISC_SHARES_VIA_AGGREGATE.
    """

    inventories: SimulatedInventories = field(default_factory=SimulatedInventories)
    uuids: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    sharing_ids: set[int] = field(default_factory=set)
    read_ids: set[int] = field(default_factory=set)
    """The suppliers whose inventories have been read."""

    def __post_init__(self) -> None:
        self.inventories.uuids = self.uuids


def class_ids_of(criteria: SearchCriteria) -> dict[str, int]:
    """Return the ids of the requested classes by name."""
    return {
        name: class_id
        for demand, of_demand in zip(criteria.rules.demands, criteria.by_demand, strict=True)
        for (name, _), (class_id, _) in zip(demand.resources, of_demand.resources, strict=True)
    }


def read_suppliers(
    connection: Connection,
    criteria: SearchCriteria,
    anchors: Iterable[Anchor],
    options: SearchOptions,
    *,
    known: SimulatedSuppliers | None = None,
    other_root_ids: Collection[int] = (),
    freed: FreedInventories = NOTHING_FREED,
) -> SimulatedSuppliers:
    """Return the suppliers around all anchors: two statements.

    Add them to `known`, without reading again what it has. `other_root_ids` are further roots whose uuids and
    names are needed. `freed` are the inventories from which ignored consumers have allocations.
    """
    found = known or SimulatedSuppliers()
    root_ids, supplier_ids = set(other_root_ids), set[int]()
    for anchor in options.deadline.checked(anchors):
        root_ids.add(anchor.id)
        supplier_ids.update(*anchor.supplier_ids)
    supplier_ids.difference_update(found.read_ids)
    _read_providers(connection, criteria, (root_ids - found.uuids.keys()) | supplier_ids, options, found)
    _read_inventories(connection, criteria, supplier_ids, options, found)
    for name, by_provider in freed.items():
        for provider_id, inventory in by_provider.items():
            if provider_id in supplier_ids and (provider_id, name) in found.inventories.free:
                found.inventories.free[provider_id, name] = inventory.capacity - inventory.used
    found.read_ids |= supplier_ids
    return found


def _read_providers(
    connection: Connection,
    criteria: SearchCriteria,
    ids: Collection[int],
    options: SearchOptions,
    found: SimulatedSuppliers,
) -> None:
    sharing_trait_id = criteria.sharing_trait_id
    trait_ids = frozenset[int]().union(*criteria.rules.unsuffixed_required)
    if criteria.ordering is not None:
        trait_ids |= criteria.ordering.preferred
    if sharing_trait_id is not None:
        trait_ids |= {sharing_trait_id}
    query = _PROVIDERS_WITH_TRAITS if trait_ids else _PROVIDERS
    values = {"ids": _as_text(ids), "trait_ids": _as_text(trait_ids)}
    for id_, uuid, name, path, held in options.deadline.checked(each_driver_row(connection, query, values)):
        options.memory.reserve(PROVIDER_SIZE)
        found.uuids[id_] = uuid
        found.names[id_] = name
        found.inventories.paths[id_] = tuple(path)
        found.inventories.traits[id_] = frozenset(held)
        if sharing_trait_id in held:
            found.sharing_ids.add(id_)


def _read_inventories(
    connection: Connection,
    criteria: SearchCriteria,
    ids: Collection[int],
    options: SearchOptions,
    found: SimulatedSuppliers,
) -> None:
    names_by_id = {id_: name for name, id_ in class_ids_of(criteria).items()}
    values = {"ids": _as_text(ids), "class_ids": _as_text(names_by_id)}
    splittable = criteria.rules.splittable_classes
    for id_, class_id, free, max_unit, min_unit, step_size in options.deadline.checked(
        each_driver_row(connection, _INVENTORIES, values)
    ):
        options.memory.reserve(INVENTORY_SIZE)
        key = id_, names_by_id[class_id]
        found.inventories.free[key] = free
        found.inventories.max_unit[key] = max_unit
        if key[1] in splittable:
            found.inventories.min_unit[key] = min_unit
            found.inventories.step_size[key] = step_size


def is_one_of(column: Column[int], ids: Collection[int]) -> ColumnElement[bool]:
    """Return the condition that `column` is one of thousands of ids, which are hidden from the planner.

    It would make an estimate for each of them.
    """
    return column == any_(cast(select(int_array(ids)).scalar_subquery(), ARRAY(Integer)))


def root_suppliers(anchor: Anchor, uuids: Mapping[int, str]) -> RootSuppliers:
    """Return the suppliers of a root by uuid; demands with the same criteria keep sharing one list."""
    lists = {id(ids): ids for ids in anchor.supplier_ids}
    by_uuid = {key: tuple(sorted(ids, key=uuids.__getitem__)) for key, ids in lists.items()}
    return RootSuppliers(anchor.id, [by_uuid[id(ids)] for ids in anchor.supplier_ids])


def _as_text(ids: Iterable[int]) -> str:
    """Return ids as the text of an array, as the driver would send thousands of literals."""
    return f"{{{','.join(map(str, ids))}}}"


def _any(name: str) -> ColumnElement[Any]:
    """Return any element of an array that is sent as text; the planner does not see how many there are."""
    array = select(cast(bindparam(name, type_=String), ARRAY(Integer))).scalar_subquery()
    return func.any(cast(array, ARRAY(Integer)))


# Built once: to build them takes longer than to run them for a few providers.
_provider = resource_providers.c
_held = func.unnest(_provider.trait_ids, type_=Integer).column_valued("held")
_PROVIDERS = select(
    _provider.id, _provider.uuid, _provider.name, _provider.path, cast(literal("{}"), ARRAY(Integer))
).where(_provider.id == _any("ids"))
# Only the wanted traits of a provider: a host has a hundred others.
_PROVIDERS_WITH_TRAITS = select(
    _provider.id,
    _provider.uuid,
    _provider.name,
    _provider.path,
    func.array(select(_held).where(_held == _any("trait_ids")).scalar_subquery()),
).where(_provider.id == _any("ids"))
_INVENTORIES = select(
    inventories.c.provider_id,
    inventories.c.resource_class_id,
    inventories.c.capacity - inventories.c.used,
    inventories.c.max_unit,
    inventories.c.min_unit,
    inventories.c.step_size,
).where(inventories.c.provider_id == _any("ids"), inventories.c.resource_class_id == _any("class_ids"))
