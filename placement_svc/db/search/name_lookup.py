"""The ids of the names in a request for allocation candidates, and how many providers match each name."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Any
from weakref import ref

import os_traits
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    ScalarSelect,
    Select,
    any_,
    bindparam,
    cast,
    column,
    func,
    literal,
    literal_column,
    select,
    table,
    true,
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

MIN_ROOTS_PER_PROVIDER = 70
"""How many roots a cloud has for each provider of a set that suffices without large sets.

To examine a root takes about as long as to read so many members of a large set, which may have all roots.
"""

COUNT_SECONDS = 1.0
"""Seconds for which a session uses the same counts: they decide how a search is done, not what it finds."""

MAX_COUNTED_REQUESTS = 32
"""The most requests whose counts a session keeps."""

MAX_COUNTED_ROWS = 100
"""The most rows of a request whose counts are kept."""

SAMPLED_HOLDERS = 8
"""The providers with a trait whose resource classes are read, to find out what kind of provider has it."""

MAX_SAMPLED_TRAITS = 8
"""The most traits of a request of which such providers are read."""

_COUNTED = "placement_svc.counted_names"
"""The key of the `_CountedNames` of a session, by the id of the request, in the `info` of a connection."""

NameRow = tuple[str, str, int, int]
"""A row of the statement: the kind of a name, the name, its id or the amount, and what was counted."""


@dataclass(frozen=True)
class NamesLookup:
    """The ids of everything that a request names, and counts of what matches it.

    Unknown names are missing. `root_ids` holds the root id of each provider that an `in_tree` names. Counting
    providers ends at `max_count`, counting inventories at `RARITY_THRESHOLD`.
    """

    max_count: int
    root_count: int
    """The number of root providers, from PostgreSQL's statistics; 0 if it has none."""

    resource_classes: Mapping[str, int]
    traits: Mapping[str, int]
    aggregates: Mapping[str, int]
    root_ids: Mapping[str, int]
    providers_by_trait: Mapping[int, int]
    providers_by_aggregate: Mapping[int, int]
    inventories_by_amount: Mapping[tuple[str, int], int]
    """How many inventories can give an amount, by resource class and amount."""

    holder_classes: frozenset[int]
    """The first class of the unsuffixed group that each of some providers with a forbidden trait has."""

    @classmethod
    def of(cls, name_rows: Iterable[NameRow]) -> "NamesLookup":
        """Return the rows of `fetch_name_rows` by their kinds."""
        rows: defaultdict[str, list[tuple[str, int, int]]] = defaultdict(list)
        for kind, name, id_or_amount, count in name_rows:
            rows[kind].append((name, id_or_amount, count))
        return cls(
            max_count=rows["max_count"][0][1],
            root_count=rows["max_count"][0][2],
            resource_classes={name: id_ for name, id_, _ in rows["resource_classes"]},
            traits={name: id_ for name, id_, _ in rows["traits"]},
            aggregates={uuid: id_ for uuid, id_, _ in rows["aggregates"]},
            root_ids={uuid: root_id for uuid, root_id, _ in rows["in_tree"]},
            providers_by_trait={id_: count for _, id_, count in rows["traits"]},
            providers_by_aggregate={id_: count for _, id_, count in rows["aggregates"]},
            inventories_by_amount={(name, amount): count for name, amount, count in rows["amounts"]},
            holder_classes=frozenset(class_id for _, class_id, _ in rows["holder_classes"]),
        )

    @property
    def frequent_traits(self) -> frozenset[int]:
        """The ids of the traits that at least `RARITY_THRESHOLD` providers have."""
        return frozenset(id_ for id_, count in self.providers_by_trait.items() if count >= RARITY_THRESHOLD)

    def is_small_trait_set(self, trait_ids: frozenset[int]) -> bool:
        """Return whether fewer than `max_count` providers have one of these traits."""
        return self._provider_count(trait_ids) < self.max_count

    def is_small_aggregate_set(self, aggregate_ids: frozenset[int]) -> bool:
        """Return whether fewer than `max_count` providers are in one of these aggregates."""
        return self._member_count(aggregate_ids) < self.max_count

    def is_sufficient_trait_set(self, trait_ids: frozenset[int]) -> bool:
        """Return whether the providers with one of these traits are less than a small part of the roots."""
        return self._provider_count(trait_ids) < self._sufficient_count

    def is_sufficient_aggregate_set(self, aggregate_ids: frozenset[int]) -> bool:
        """Return whether the providers in one of these aggregates are less than a small part of the roots."""
        return self._member_count(aggregate_ids) < self._sufficient_count

    def _provider_count(self, trait_ids: frozenset[int]) -> int:
        return sum(self.providers_by_trait[id_] for id_ in trait_ids)

    def _member_count(self, aggregate_ids: frozenset[int]) -> int:
        return sum(self.providers_by_aggregate[id_] for id_ in aggregate_ids)

    @property
    def _sufficient_count(self) -> float:
        return min(self.max_count, self.root_count / MIN_ROOTS_PER_PROVIDER)


@dataclass(frozen=True)
class _CountedNames:
    """The rows of a request, and when their counts were read (monotonic clock).

    The parsed request of a repeated query is cached elsewhere, so it is the same object.
    """

    request: "ref[CandidatesRequest]"
    rows: tuple[NameRow, ...]
    since: float

    def is_recent(self, request: CandidatesRequest) -> bool:
        """Return whether this object is about a request, and the counts may be used."""
        return self.request() is request and monotonic() - self.since < COUNT_SECONDS

    @cached_property
    def uncounted(self) -> frozenset[NameRow]:
        """The rows of `_LOOK_UP_IDS` for the same data."""
        return frozenset(
            (kind, name, id_, min(count, 1) if kind == "traits" else 0)
            for kind, name, id_, count in self.rows
            if kind not in _COUNTS_ONLY
        )


def fetch_name_rows(connection: Connection, request: CandidatesRequest) -> tuple[NameRow, ...]:
    """Look up everything that a request names, and the trait of sharing providers, in one statement.

    The rows are those of `NamesLookup.of`, the same for the same request and the same data. Of the same
    request object, the counts may be `COUNT_SECONDS` old. A second statement counts again if there are other
    names than then, or a trait has got its first provider or lost its last one: whether any provider shares
    decides what a search finds.
    """
    values = _values(request)
    counted: OrderedDict[int, _CountedNames] = connection.info.setdefault(_COUNTED, OrderedDict())
    recent = counted.get(id(request))
    if recent is not None and recent.is_recent(request):
        names = {name: values[name] for name in _NAME_LISTS}
        if recent.uncounted == frozenset(fetch_rows(connection, _LOOK_UP_IDS, names)):
            return recent.rows
    samples = bool(values["sampled_traits"])
    rows = tuple(fetch_rows(connection, _LOOK_UP_NAMES_AND_HOLDERS if samples else _LOOK_UP_NAMES, values))
    if len(rows) <= MAX_COUNTED_ROWS:
        counted[id(request)] = _CountedNames(ref(request), rows, monotonic())
        counted.move_to_end(id(request))
        if len(counted) > MAX_COUNTED_REQUESTS:
            counted.popitem(last=False)
    return rows


def _values(request: CandidatesRequest) -> dict[str, Any]:
    """Return the parameters of `_LOOK_UP_NAMES`."""
    groups = request.groups
    trait_names = {os_traits.MISC_SHARES_VIA_AGGREGATE, *request.root_required.names, *request.preferred}
    trait_names.update(name for group in groups for name in group.required.names)
    unsuffixed = next((group for group in groups if not group.suffix), None)
    all_amounts = {item for group in groups for item in request.least_amounts(group).items()}
    amounts = [item for item in all_amounts if item[1] <= MAX_INTEGER]
    return {
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
        "unsuffixed_classes": list(unsuffixed.resources) if unsuffixed else [],
        "sampled_traits": sorted(unsuffixed.required.forbidden)[:MAX_SAMPLED_TRAITS] if unsuffixed else [],
        "limit": min(request.limit or 0, MAX_INTEGER),
    }


def _select_ids(
    kind: str, name: Column[str], id_: Column[int], count: ColumnElement[int]
) -> Select[str, str, int, int]:
    return select(literal(kind).label("kind"), name, id_, count).where(_is_in_list(name, kind))


def _is_in_list(name: Column[str], parameter: str) -> ColumnElement[bool]:
    """Return the condition that a name is in the list that a parameter has."""
    return name == any_(cast(_hidden(parameter, ARRAY(String)), ARRAY(String)))


def _hidden(name: str, type_: TypeEngine[Any]) -> ScalarSelect[Any]:
    """Return a parameter whose value the planner does not see, so its plan suits all values."""
    return select(bindparam(name, type_=type_)).scalar_subquery()


def _count_up_to(
    maximum: ColumnElement[int] | int, rows: Select[Any], index_order: Column[Any]
) -> ColumnElement[int]:
    """Return the number of rows; counting ends at `maximum`.

    `index_order` is the column behind the key in an index. The rows are read in its order, so that PostgreSQL
    stops there. It would otherwise often collect all rows with the key in a bitmap, and those that were
    changed since the last vacuum too.
    """
    counted = rows.order_by(index_order).limit(maximum).subquery()
    return select(func.count()).select_from(counted).scalar_subquery()


def _select_maximum() -> Select[int, int]:
    """Return the query for the number of providers at which counting them ends, and the number of roots.

    If n of r roots match, a scan examines limit * r / n roots to find as many as the limit, and a list of the
    matching roots has n entries. To examine a root takes five times as long as to list one. So the list costs
    less if n < sqrt(5 * limit * r). The number of roots is that of PostgreSQL's statistics.
    """
    statistics = table("pg_class", column("reltuples", Double), column("oid"))
    roots = func.greatest(statistics.c.reltuples, 0)
    most = func.sqrt(5 * cast(bindparam("limit"), Double) * roots)
    max_count = cast(func.least(func.greatest(most, LOWEST_MAX_COUNT), HIGHEST_MAX_COUNT), Integer)
    return (
        select(max_count.label("max_count"), cast(roots, Integer).label("root_count"))
        .select_from(statistics)
        .where(statistics.c.oid == cast("resource_providers_roots_idx", REGCLASS))
    )


_maximum = shared(_select_maximum().cte("maximum").prefix_with("MATERIALIZED"))
_MAX_COUNT = select(_maximum.c.max_count).scalar_subquery()
_ROOT_COUNT = select(_maximum.c.root_count).scalar_subquery()


def _count_with_trait(maximum: ColumnElement[int] | int) -> ColumnElement[int]:
    """Return the number of providers with a trait; counting ends at `maximum`."""
    rows = select(literal(1)).where(provider_traits.c.trait_id == traits.c.id).correlate(traits)
    return _count_up_to(maximum, rows, provider_traits.c.root_id)


def _count_members() -> ColumnElement[int]:
    """Return the number of members of an aggregate, up to `_MAX_COUNT`."""
    rows = select(literal(1)).where(provider_aggregates.c.aggregate_id == aggregates.c.id)
    return _count_up_to(_MAX_COUNT, rows.correlate(aggregates), provider_aggregates.c.root_id)


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
        _count_up_to(
            RARITY_THRESHOLD,
            fitting.correlate(resource_classes, requested),
            inventories.c.max_allocatable,
        ),
    ).join(resource_classes, resource_classes.c.name == requested.c.name)


def _select_holder_classes() -> Select[str, str, int, int]:
    """Return the query for the first class of the unsuffixed group that each of some holders has.

    They are the first providers with each of some traits that the group forbids.
    """
    requested = select(resource_classes.c.id).where(
        _is_in_list(resource_classes.c.name, "unsuffixed_classes")
    )
    holder = (
        select(provider_traits.c.provider_id)
        .where(provider_traits.c.trait_id == traits.c.id)
        .correlate(traits)
        .order_by(provider_traits.c.root_id)
        .limit(SAMPLED_HOLDERS)
        .lateral("holder")
    )
    first = (
        select(func.min(inventories.c.resource_class_id).label("class_id"))
        .where(
            inventories.c.provider_id == holder.c.provider_id,
            inventories.c.resource_class_id.in_(requested),
        )
        .lateral("first_class")
    )
    return (
        select(literal("holder_classes"), literal(""), first.c.class_id, _NOT_COUNTED)
        .select_from(traits.join(holder, true()).join(first, first.c.class_id.is_not(None)))
        .where(_is_in_list(traits.c.name, "sampled_traits"))
        .distinct()
    )


_NOT_COUNTED: ColumnElement[int] = literal_column("0")

_NAME_LISTS = dict.fromkeys(("resource_classes", "traits", "aggregates", "in_tree"), "text[]")
_COUNTS_ONLY = ("max_count", "amounts", "holder_classes")
"""The kinds of rows that name nothing."""


def _select_names(
    trait_count: ColumnElement[int], aggregate_count: ColumnElement[int]
) -> list[Select[str, str, int, int]]:
    """Return the queries for the ids of everything that is named."""
    return [
        _select_ids("resource_classes", resource_classes.c.name, resource_classes.c.id, _NOT_COUNTED),
        _select_ids("traits", traits.c.name, traits.c.id, trait_count),
        _select_ids("aggregates", aggregates.c.uuid, aggregates.c.id, aggregate_count),
        _select_ids("in_tree", resource_providers.c.uuid, resource_providers.c.root_id, _NOT_COUNTED),
    ]


# Reads one row for each name, by unique indexes, and an index entry for each trait.
_LOOK_UP_IDS = FixedStatement(union_all(*_select_names(_count_with_trait(1), _NOT_COUNTED)), _NAME_LISTS)

# Reads, besides, up to `max_count` index entries for each trait and aggregate, and up to RARITY_THRESHOLD for
# each amount.
_NAMES = (
    *_select_names(_count_with_trait(_MAX_COUNT), _count_members()),
    select(literal("max_count"), literal(""), _MAX_COUNT, _ROOT_COUNT),
    _count_inventories(),
)
_PARAMETERS = {"limit": "bigint", **_NAME_LISTS, "amount_classes": "text[]", "amounts": "integer[]"}
_LOOK_UP_NAMES = FixedStatement(union_all(*_NAMES), _PARAMETERS)

# Reads, besides, the classes of up to SAMPLED_HOLDERS providers for each sampled trait.
_LOOK_UP_NAMES_AND_HOLDERS = FixedStatement(
    union_all(*_NAMES, _select_holder_classes()),
    _PARAMETERS | {"unsuffixed_classes": "text[]", "sampled_traits": "text[]"},
)
