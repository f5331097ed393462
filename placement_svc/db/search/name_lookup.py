"""The ids of the names in a request for allocation candidates, and how many providers match each name."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import os_traits
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    any_,
    bindparam,
    column,
    func,
    literal,
    literal_column,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import Integer, String

from placement_svc.db.tables import (
    aggregates,
    inventories,
    provider_aggregates,
    provider_traits,
    resource_classes,
    resource_providers,
    traits,
)
from placement_svc.domain.groups import CandidatesRequest
from placement_svc.domain.inventory import MAX_INTEGER

RARITY_THRESHOLD = 200
"""A criterion that fewer providers or inventories match is rare: a lookup starts best from it."""


@dataclass(frozen=True)
class NamesLookup:
    """The ids of everything that a request names, and counts of what matches it, up to `RARITY_THRESHOLD`.

    Unknown names are missing. `root_ids` holds the root id of each provider that an `in_tree` names.
    """

    resource_classes: Mapping[str, int]
    traits: Mapping[str, int]
    aggregates: Mapping[str, int]
    root_ids: Mapping[str, int]
    providers_by_trait: Mapping[int, int]
    providers_by_aggregate: Mapping[int, int]
    inventories_by_amount: Mapping[tuple[str, int], int]
    """How many inventories can give an amount, by resource class and amount."""

    @property
    def frequent_traits(self) -> frozenset[int]:
        """The ids of the traits that at least `RARITY_THRESHOLD` providers have."""
        return frozenset(id_ for id_, count in self.providers_by_trait.items() if count == RARITY_THRESHOLD)


def look_up_names(connection: Connection, request: CandidatesRequest) -> NamesLookup:
    """Look up everything that a request names, and the trait of sharing providers, in one statement."""
    groups = request.groups
    trait_names = {os_traits.MISC_SHARES_VIA_AGGREGATE, *request.root_required.names}
    trait_names.update(name for group in groups for name in group.required.names)
    amounts = {item for group in groups for item in group.resources.items() if item[1] <= MAX_INTEGER}
    values = {
        "resource_classes": [name for group in groups for name in group.resources],
        "traits": list(trait_names),
        "aggregates": [name for group in groups for name in group.member_of.names],
        "in_tree": [group.in_tree for group in groups if group.in_tree],
        "amount_classes": [name for name, _ in amounts],
        "amounts": [amount for _, amount in amounts],
    }
    rows: defaultdict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for kind, name, id_or_amount, count in connection.execute(_LOOK_UP_NAMES, values):
        rows[kind].append((name, id_or_amount, count))
    return NamesLookup(
        resource_classes={name: id_ for name, id_, _ in rows["resource_classes"]},
        traits={name: id_ for name, id_, _ in rows["traits"]},
        aggregates={uuid: id_ for uuid, id_, _ in rows["aggregates"]},
        root_ids={uuid: root_id for uuid, root_id, _ in rows["in_tree"]},
        providers_by_trait={id_: count for _, id_, count in rows["traits"]},
        providers_by_aggregate={id_: count for _, id_, count in rows["aggregates"]},
        inventories_by_amount={(name, amount): count for name, amount, count in rows["amounts"]},
    )


def _select_ids(
    kind: str, name: Column[str], id_: Column[int], count: ColumnElement[int]
) -> Select[str, str, int, int]:
    return select(literal(kind).label("kind"), name, id_, count).where(
        name == any_(bindparam(kind, type_=ARRAY(String)))
    )


def _count_up_to_threshold(rows: Select[Any]) -> ColumnElement[int]:
    """Return the number of rows; counting ends at `RARITY_THRESHOLD`."""
    return select(func.count()).select_from(rows.limit(RARITY_THRESHOLD).subquery()).scalar_subquery()


def _count_providers(table: Table, key: Column[int], id_: Column[int]) -> ColumnElement[int]:
    """Return the number of rows of `table`, one for each provider, whose `key` is `id_`."""
    return _count_up_to_threshold(
        select(literal(1)).select_from(table).where(key == id_).correlate(id_.table)
    )


def _count_inventories() -> Select[str, str, int, int]:
    requested = (
        func.unnest(
            bindparam("amount_classes", type_=ARRAY(String)), bindparam("amounts", type_=ARRAY(Integer))
        )
        .table_valued(column("name", String), column("amount", Integer))
        .render_derived("requested")
    )
    fitting = select(literal(1)).where(
        inventories.c.resource_class_id == resource_classes.c.id,
        inventories.c.max_allocatable >= requested.c.amount,
    )
    return select(
        literal("amounts"),
        requested.c.name,
        requested.c.amount,
        _count_up_to_threshold(fitting.correlate(resource_classes, requested)),
    ).join(resource_classes, resource_classes.c.name == requested.c.name)


_NOT_COUNTED: ColumnElement[int] = literal_column("0")

# Reads one row for each name, by unique indexes, and up to RARITY_THRESHOLD index entries for each trait,
# aggregate and amount.
_LOOK_UP_NAMES = union_all(
    _select_ids("resource_classes", resource_classes.c.name, resource_classes.c.id, _NOT_COUNTED),
    _select_ids(
        "traits",
        traits.c.name,
        traits.c.id,
        _count_providers(provider_traits, provider_traits.c.trait_id, traits.c.id),
    ),
    _select_ids(
        "aggregates",
        aggregates.c.uuid,
        aggregates.c.id,
        _count_providers(provider_aggregates, provider_aggregates.c.aggregate_id, aggregates.c.id),
    ),
    _select_ids("in_tree", resource_providers.c.uuid, resource_providers.c.root_id, _NOT_COUNTED),
    _count_inventories(),
)
