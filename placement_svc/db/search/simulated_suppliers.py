"""The suppliers around anchors with their inventories, which claims in memory use up."""

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Text,
    and_,
    cast,
    literal,
    select,
)

from placement_svc.db.filters import any_id, free_amount, held_among, ids_text
from placement_svc.db.prepared import FixedStatement, each_fixed_row
from placement_svc.db.search.anchors import Anchor
from placement_svc.db.search.candidates import SHUFFLED_ID_SIZE, SearchOptions
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.ignored_consumers import FreedInventories
from placement_svc.db.tables import inventories, resource_providers
from placement_svc.domain.combining.shared_lists import distinct_lists
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.simulated_claims.amounts import RootSuppliers, SimulatedInventories

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
    freed: FreedInventories,
) -> SimulatedSuppliers:
    """Return the suppliers around all anchors: one statement.

    Add them to `known`, without reading again what it has. `other_root_ids` are further roots whose uuids and
    names are needed. `freed` are the inventories from which ignored consumers have allocations.
    """
    found = known or SimulatedSuppliers()
    root_ids, supplier_ids = set(other_root_ids), set[int]()
    for anchor in anchors:
        options.deadline.check()
        root_ids.add(anchor.id)
        supplier_ids.update(*distinct_lists(anchor.supplier_ids))
    supplier_ids.difference_update(found.read_ids)
    root_ids.difference_update(found.uuids)
    _read_rows(connection, criteria, root_ids | supplier_ids, options, found)
    for name, by_provider in freed.items():
        for provider_id, inventory in by_provider.items():
            if provider_id in supplier_ids and (provider_id, name) in found.inventories.free:
                found.inventories.free[provider_id, name] = inventory.free
    found.read_ids |= supplier_ids
    return found


def _read_rows(
    connection: Connection,
    criteria: SearchCriteria,
    ids: Collection[int],
    options: SearchOptions,
    found: SimulatedSuppliers,
) -> None:
    """Add providers, and their inventories of the requested classes."""
    sharing_trait_id = criteria.sharing_trait_id
    trait_ids = frozenset[int]().union(*criteria.rules.unsuffixed_required)
    if criteria.ordering is not None:
        trait_ids |= criteria.ordering.preferred
    if sharing_trait_id is not None:
        trait_ids |= {sharing_trait_id}
    names_by_id = {id_: name for name, id_ in class_ids_of(criteria).items()}
    values = {"ids": ids_text(ids), "class_ids": ids_text(names_by_id), "trait_ids": ids_text(trait_ids)}
    splittable = criteria.rules.splittable_classes
    inventories = found.inventories
    for (
        id_,
        uuid,
        name,
        path,
        held,
        class_id,
        free,
        max_unit,
        min_unit,
        step_size,
    ) in options.deadline.checked(
        each_fixed_row(connection, _SUPPLIERS if trait_ids else _SUPPLIERS_WITHOUT_TRAITS, values)
    ):
        if id_ not in found.uuids:
            options.memory.reserve(PROVIDER_SIZE)
            found.uuids[id_] = uuid
            found.names[id_] = name
            inventories.paths[id_] = _ids(path)
            inventories.traits[id_] = frozenset(_ids(held))
            if sharing_trait_id in inventories.traits[id_]:
                found.sharing_ids.add(id_)
        if class_id is None:
            continue
        options.memory.reserve(INVENTORY_SIZE)
        key = id_, names_by_id[class_id]
        inventories.free[key] = free
        inventories.max_unit[key] = max_unit
        if key[1] in splittable:
            inventories.min_unit[key] = min_unit
            inventories.step_size[key] = step_size


def suppliers_by_uuid(
    anchors: Sequence[Anchor], uuids: Mapping[int, str], deadline: Deadline
) -> list[RootSuppliers]:
    """Return the suppliers of each root by uuid; demands and roots that share a list keep sharing one."""
    ordered: dict[int, Sequence[int]] = {}
    return [
        _with_lists(anchor, lambda ids: tuple(sorted(ids, key=uuids.__getitem__)), ordered, deadline)
        for anchor in anchors
    ]


def shuffled_suppliers(anchor: Anchor, deadline: Deadline, memory: MemoryBudget) -> RootSuppliers:
    """Return the suppliers of a root in random order; demands that share a list keep sharing one."""
    ordered: dict[int, Sequence[int]] = {}
    shuffled = _with_lists(anchor, lambda ids: random.sample(ids, len(ids)), ordered, deadline)
    memory.reserve(SHUFFLED_ID_SIZE * sum(map(len, ordered.values())))
    return shuffled


def _with_lists(
    anchor: Anchor,
    order: Callable[[Sequence[int]], Sequence[int]],
    ordered: dict[int, Sequence[int]],
    deadline: Deadline,
) -> RootSuppliers:
    """Return the suppliers of a root; `order` returns those of a list in another order.

    `ordered` has the results of `order`, by the identity of the list.
    """
    for ids in anchor.supplier_ids:
        if id(ids) not in ordered:
            # Around each of many roots there can be many long lists.
            deadline.check()
            ordered[id(ids)] = order(ids)
    return RootSuppliers(anchor.id, [ordered[id(ids)] for ids in anchor.supplier_ids])


def _ids(text: str) -> tuple[int, ...]:
    """Return the ids in the text of an array: the driver parses arrays slowly."""
    return tuple(map(int, text[1:-1].split(","))) if len(text) > 2 else ()


def _select_suppliers(held_traits: ColumnElement[Any]) -> FixedStatement:
    """Return the statement for providers: one row for each inventory, or one without.

    Paths and traits are texts.
    """
    # The OFFSET makes PostgreSQL compute the traits once for each provider.
    provider = (
        select(
            _provider.id,
            _provider.uuid,
            _provider.name,
            cast(_provider.path, Text).label("path"),
            cast(held_traits, Text).label("held_traits"),
        )
        .where(_provider.id == any_id("ids"))
        .offset(0)
        .subquery("provider")
    )
    is_requested = and_(
        inventories.c.provider_id == provider.c.id, inventories.c.resource_class_id == any_id("class_ids")
    )
    query = select(
        provider,
        inventories.c.resource_class_id,
        free_amount(inventories),
        inventories.c.max_unit,
        inventories.c.min_unit,
        inventories.c.step_size,
    ).select_from(provider.outerjoin(inventories, is_requested))
    return FixedStatement(query, {"ids": "text", "class_ids": "text", "trait_ids": "text"})


_provider = resource_providers.c
_SUPPLIERS = _select_suppliers(held_among("trait_ids"))
_SUPPLIERS_WITHOUT_TRAITS = _select_suppliers(literal("{}"))
