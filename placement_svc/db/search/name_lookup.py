"""The ids of the names in a request for allocation candidates, and how many providers match each name."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import os_traits
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    ScalarSelect,
    Select,
    Table,
    any_,
    bindparam,
    cast,
    column,
    func,
    literal,
    literal_column,
    select,
    table,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, REGCLASS
from sqlalchemy.types import Double, Integer, String, TypeEngine

from placement_svc.db.prepared import FixedStatement, fetch_rows
from placement_svc.db.shared_clauses import shared
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

LOWEST_MAX_COUNT = 1000
HIGHEST_MAX_COUNT = 5000
"""Counting the providers with a trait or in an aggregate ends between these numbers (`_MAX_COUNT`)."""

NameRow = tuple[str, str, int, int]
"""A row of the statement: the kind of a name, the name, its id or the amount, and what was counted."""


@dataclass(frozen=True)
class NamesLookup:
    """The ids of everything that a request names, and counts of what matches it.

    Unknown names are missing. `root_ids` holds the root id of each provider that an `in_tree` names. Counting
    providers ends at `max_count`, counting inventories at `RARITY_THRESHOLD`.
    """

    max_count: int

    resource_classes: Mapping[str, int]
    traits: Mapping[str, int]
    aggregates: Mapping[str, int]
    root_ids: Mapping[str, int]
    providers_by_trait: Mapping[int, int]
    providers_by_aggregate: Mapping[int, int]
    inventories_by_amount: Mapping[tuple[str, int], int]
    """How many inventories can give an amount, by resource class and amount."""

    @classmethod
    def of(cls, name_rows: Iterable[NameRow]) -> "NamesLookup":
        """Return the rows of `fetch_name_rows` by their kinds."""
        rows: defaultdict[str, list[tuple[str, int, int]]] = defaultdict(list)
        for kind, name, id_or_amount, count in name_rows:
            rows[kind].append((name, id_or_amount, count))
        return cls(
            max_count=rows["max_count"][0][1],
            resource_classes={name: id_ for name, id_, _ in rows["resource_classes"]},
            traits={name: id_ for name, id_, _ in rows["traits"]},
            aggregates={uuid: id_ for uuid, id_, _ in rows["aggregates"]},
            root_ids={uuid: root_id for uuid, root_id, _ in rows["in_tree"]},
            providers_by_trait={id_: count for _, id_, count in rows["traits"]},
            providers_by_aggregate={id_: count for _, id_, count in rows["aggregates"]},
            inventories_by_amount={(name, amount): count for name, amount, count in rows["amounts"]},
        )

    @property
    def frequent_traits(self) -> frozenset[int]:
        """The ids of the traits that at least `RARITY_THRESHOLD` providers have."""
        return frozenset(id_ for id_, count in self.providers_by_trait.items() if count >= RARITY_THRESHOLD)

    def has_few_providers(self, trait_ids: frozenset[int]) -> bool:
        """Return whether fewer than `max_count` providers have one of these traits."""
        return sum(self.providers_by_trait[id_] for id_ in trait_ids) < self.max_count

    def has_few_members(self, aggregate_ids: frozenset[int]) -> bool:
        """Return whether fewer than `max_count` providers are in one of these aggregates."""
        return sum(self.providers_by_aggregate[id_] for id_ in aggregate_ids) < self.max_count


def fetch_name_rows(connection: Connection, request: CandidatesRequest) -> tuple[NameRow, ...]:
    """Look up everything that a request names, and the trait of sharing providers, in one statement.

    The rows are those of `NamesLookup.of`. They are the same for the same request and the same data.
    """
    groups = request.groups
    trait_names = {os_traits.MISC_SHARES_VIA_AGGREGATE, *request.root_required.names, *request.preferred}
    trait_names.update(name for group in groups for name in group.required.names)
    all_amounts = {item for group in groups for item in request.least_amounts(group).items()}
    amounts = [item for item in all_amounts if item[1] <= MAX_INTEGER]
    values = {
        "resource_classes": [name for group in groups for name in group.resources],
        "traits": list(trait_names),
        "aggregates": [
            *request.root_member_of.names,
            *(name for group in groups for name in group.member_of.names),
        ],
        "in_tree": [
            uuid for group in groups for uuid in (group.in_tree, *group.not_in_tree) if uuid is not None
        ],
        "amount_classes": [name for name, _ in amounts],
        "amounts": [amount for _, amount in amounts],
        "limit": min(request.limit or 0, MAX_INTEGER),
    }
    return tuple(fetch_rows(connection, _LOOK_UP_NAMES, values))


def _select_ids(
    kind: str, name: Column[str], id_: Column[int], count: ColumnElement[int]
) -> Select[str, str, int, int]:
    return select(literal(kind).label("kind"), name, id_, count).where(
        name == any_(cast(_hidden(kind, ARRAY(String)), ARRAY(String)))
    )


def _hidden(name: str, type_: TypeEngine[Any]) -> ScalarSelect[Any]:
    """Return a parameter whose value the planner does not see, so its plan suits all values."""
    return select(bindparam(name, type_=type_)).scalar_subquery()


def _count_up_to(maximum: ColumnElement[int] | int, rows: Select[Any]) -> ColumnElement[int]:
    """Return the number of rows; counting ends at `maximum`."""
    return select(func.count()).select_from(rows.limit(maximum).subquery()).scalar_subquery()


def _max_count() -> ColumnElement[int]:
    """Return the number of providers at which counting them ends.

    If n of r roots match, a scan examines limit * r / n roots to find as many as the limit, and a list of the
    matching roots has n entries. To examine a root takes five times as long as to list one. So the list costs
    less if n < sqrt(5 * limit * r). The number of roots is that of PostgreSQL's statistics.
    """
    roots = column("reltuples", Double)
    most = func.sqrt(5 * cast(bindparam("limit"), Double) * func.greatest(roots, 0))
    return (
        select(cast(func.least(func.greatest(most, LOWEST_MAX_COUNT), HIGHEST_MAX_COUNT), Integer))
        .select_from(table("pg_class", roots, column("oid")))
        .where(column("oid") == cast("resource_providers_roots_idx", REGCLASS))
        .scalar_subquery()
    )


_maximum = shared(select(_max_count().label("max_count")).cte("maximum").prefix_with("MATERIALIZED"))
_MAX_COUNT = select(_maximum.c.max_count).scalar_subquery()


def _count_providers(members: Table, key: Column[int], id_: Column[int]) -> ColumnElement[int]:
    """Return the number of rows of `members`, one for each provider, whose `key` is `id_`."""
    return _count_up_to(
        _MAX_COUNT,
        select(literal(1)).select_from(members).where(key == id_).correlate(id_.table),
    )


def _count_inventories() -> Select[str, str, int, int]:
    requested = (
        func.unnest(_hidden("amount_classes", ARRAY(String)), _hidden("amounts", ARRAY(Integer)))
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
        _count_up_to(RARITY_THRESHOLD, fitting.correlate(resource_classes, requested)),
    ).join(resource_classes, resource_classes.c.name == requested.c.name)


_NOT_COUNTED: ColumnElement[int] = literal_column("0")

# Reads one row for each name, by unique indexes, up to `max_count` index entries for each trait and
# aggregate, and up to RARITY_THRESHOLD for each amount.
_LOOK_UP_NAMES = FixedStatement(
    union_all(
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
        select(literal("max_count"), literal(""), _MAX_COUNT, _NOT_COUNTED),
        _select_ids("in_tree", resource_providers.c.uuid, resource_providers.c.root_id, _NOT_COUNTED),
        _count_inventories(),
    ),
    {
        "limit": "bigint",
        "resource_classes": "text[]",
        "traits": "text[]",
        "aggregates": "text[]",
        "in_tree": "text[]",
        "amount_classes": "text[]",
        "amounts": "integer[]",
    },
)
