"""The covered roots of an explanation, grouped by the patterns around them.

One statement reads each inventory of the requested classes and each provider of the covered roots once. It
returns one row for each distinct combination of patterns around a root; these are few, as hosts are alike.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, Select, Text, case, cast, func, literal, or_, select, true
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from placement_svc.db.arrays import join_texts
from placement_svc.db.explanation.layout import HELD_COLUMNS, Layout
from placement_svc.db.explanation.patterns import inventory_row, provider_row, read_pattern, select_patterns
from placement_svc.db.filters import is_any
from placement_svc.db.search.ignored_consumers import InventoryReader
from placement_svc.db.shared_clauses import shared
from placement_svc.db.tables import provider_aggregates, provider_traits, resource_providers
from placement_svc.domain.errors import NotFound
from placement_svc.domain.execution.memory import MemoryBudget
from placement_svc.domain.explanation.supplier_tests import Held, RootPattern
from placement_svc.domain.inventory import HeldAmount, UnitLimits

ROOT_SIZE = 50
"""Bytes of memory that the id of a root needs, approximately."""

PATTERN_SIZE = 150
"""Bytes of memory that a pattern around a root needs besides its bits, approximately."""

_root = shared(resource_providers.alias("root"))


@dataclass(frozen=True)
class Scope:
    """The roots that an explanation covers: one root, the first `max_roots` in the order of uuids, or all."""

    root_id: int | None = None
    max_roots: int | None = None

    def covers(self, root_id: ColumnElement[int]) -> ColumnElement[bool]:
        """Return the condition that a root is covered."""
        if self.root_id is not None:
            return root_id == self.root_id
        if self.max_roots is None:
            return true()
        first = select(_root.c.id).where(_root.c.parent_id.is_(None)).order_by(_root.c.uuid)
        return root_id.in_(first.limit(self.max_roots))


class NamedRoot(NamedTuple):
    """A root provider by id, uuid and name."""

    id: int
    uuid: str
    name: str


def find_root(reader: InventoryReader, provider: str) -> NamedRoot:
    """Return the root of the provider with this uuid, or else with this name; raises `NotFound`.

    The letter case of a uuid does not matter.
    """
    has_uuid = provider_row.c.uuid == provider.lower()
    found = (
        select(_root.c.id, _root.c.uuid, _root.c.name)
        .join(provider_row, provider_row.c.root_id == _root.c.id)
        .where(has_uuid | (provider_row.c.name == provider))
        .order_by(has_uuid.desc())
        .limit(1)
    )
    row = reader.execute(found).first()
    if row is None:
        raise NotFound(f"No resource provider with uuid or name {provider} found")
    return NamedRoot(*row)


def has_more_roots(reader: InventoryReader, max_roots: int) -> bool:
    """Return whether the cloud has more than so many roots."""
    beyond = select(_root.c.id).where(_root.c.parent_id.is_(None)).offset(max_roots).limit(1)
    return reader.execute(beyond).first() is not None


class Node(NamedTuple):
    """A provider of a tree: its pattern, its level, and its amounts of the classes in the layout.

    The root has level 1. If the cloud is not structured, it stands for all providers with this pattern.
    `allocatable` has two amounts for each class of `Layout.limits`, and `held` one inventory for each of
    `Layout.split_amounts`. `position` is that in the order of the uuids of those providers of the tree which
    have any of these inventories, if it matters.
    """

    pattern: int
    level: int
    allocatable: tuple[int, ...]
    held: tuple[HeldAmount, ...] = ()
    position: int = 0


class SharingProvider(NamedTuple):
    """A sharing provider that is in some aggregate."""

    id: int
    root_id: int
    node: Node
    path: tuple[int, ...]
    aggregate_ids: frozenset[int]


@dataclass(frozen=True)
class EqualRoots:
    """The roots with equal patterns around them, and with the same aggregates of sharing providers.

    `nodes` are the providers of the tree; parents precede their children. What they hold of the classes that
    may be split is equal too.
    """

    pattern: RootPattern
    nodes: tuple[Node, ...]
    aggregate_ids: frozenset[int]
    root_ids: tuple[int, ...]

    @cached_property
    def held(self) -> Held:
        """The inventories of the classes that may be split, for each of `nodes`."""
        return [node.held for node in self.nodes]


@dataclass(frozen=True)
class Cloud:
    """The covered roots by their patterns, and the sharing providers.

    Groups of roots with one pattern are next to each other.
    """

    scope: Scope
    layout: Layout
    roots: tuple[EqualRoots, ...]
    sharing: tuple[SharingProvider, ...]

    @property
    def serving(self) -> list[SharingProvider]:
        """The sharing providers that serve a covered root."""
        served = frozenset[int]().union(*(root.aggregate_ids for root in self.roots))
        return [provider for provider in self.sharing if provider.aggregate_ids & served]

    def serving_from_elsewhere(self, root: EqualRoots) -> list[SharingProvider]:
        """Return the sharing providers of other trees that serve the roots of a group.

        If the cloud is not structured, one of them can be in the tree of some of these roots.
        """
        return [
            provider
            for provider in self.sharing
            if provider.aggregate_ids & root.aggregate_ids and root.root_ids != (provider.root_id,)
        ]


def read_cloud(
    reader: InventoryReader,
    layout: Layout,
    sharing_trait_id: int | None,
    scope: Scope,
    memory: MemoryBudget,
) -> Cloud:
    """Return the patterns of all covered roots: one statement, and one more if any provider shares."""
    sharing = _read_sharing(reader, layout, sharing_trait_id)
    patterns_by_aggregate: dict[int, set[int]] = {}
    for provider in sharing:
        for aggregate_id in provider.aggregate_ids:
            patterns_by_aggregate.setdefault(aggregate_id, set()).add(provider.node.pattern)
    rows = reader.execute(_select_roots(layout, scope, sorted(patterns_by_aggregate)))
    nodes: dict[Any, Node] = {}
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    patterns: dict[tuple[object, ...], RootPattern] = {}
    by_pattern: dict[RootPattern, list[EqualRoots]] = {}
    for root_pattern, values, aggregate_ids, root_ids_text in rows:
        key = tuple(aggregate_ids)
        root_ids = tuple(map(int, root_ids_text[1:-1].split(",")))
        memory.reserve(ROOT_SIZE * len(root_ids) + PATTERN_SIZE * (len(values) + len(key)))
        if key not in shared:
            shared[key] = tuple(sorted(set().union(*map(patterns_by_aggregate.__getitem__, key))))
            memory.reserve(PATTERN_SIZE * len(shared[key]))
        for value in values:
            if value not in nodes:
                memory.reserve(PATTERN_SIZE + len(layout.bits))
                nodes[value] = _read_node(value, layout)
        of_tree = tuple(nodes[value] for value in values)
        own = tuple(dict.fromkeys(node.pattern for node in of_tree))
        of_providers = tuple(node.pattern for node in of_tree) if layout.split_amounts else ()
        around = read_pattern(root_pattern), own, shared[key], of_providers
        pattern = patterns.setdefault(around, RootPattern(*around))
        by_pattern.setdefault(pattern, []).append(EqualRoots(pattern, of_tree, frozenset(key), root_ids))
    roots = list(chain.from_iterable(by_pattern.values()))
    if layout.is_structured:
        roots = list(_separated(roots, {provider.root_id for provider in sharing}))
    return Cloud(scope, layout, tuple(roots), tuple(sharing))


def _read_node(value: int | str, layout: Layout) -> Node:
    """Return the provider in an element of the column `nodes`."""
    if isinstance(value, int):
        return Node(value, 1, ())
    pattern, *numbers = value.split("/")
    level, *amounts = map(int, numbers or ["1"])
    position = amounts.pop() if layout.has_order else 0
    return Node(read_pattern(pattern), level, *_read_amounts(amounts, layout), position)


def _read_amounts(amounts: Sequence[int], layout: Layout) -> tuple[tuple[int, ...], tuple[HeldAmount, ...]]:
    """Return the fields `allocatable` and `held` of a provider."""
    end = len(amounts) - HELD_COLUMNS * len(layout.split_amounts)
    inventories = (amounts[start : start + HELD_COLUMNS] for start in range(end, len(amounts), HELD_COLUMNS))
    held = (HeldAmount(UnitLimits(*units), capacity, free) for *units, capacity, free in inventories)
    return tuple(amounts[:end]), tuple(held)


def _separated(roots: Iterable[EqualRoots], separate_ids: set[int]) -> Iterator[EqualRoots]:
    """Yield the groups, but roots with these ids by themselves: sharing providers are in their trees."""
    for root in roots:
        separate = separate_ids.intersection(root.root_ids)
        if not separate:
            yield root
            continue
        for id_ in root.root_ids:
            if id_ in separate:
                yield replace(root, root_ids=(id_,))
        if len(separate) < len(root.root_ids):
            yield replace(root, root_ids=tuple(id_ for id_ in root.root_ids if id_ not in separate))


def _select_roots(layout: Layout, scope: Scope, aggregate_ids: Sequence[int]) -> Select[Any]:
    """Return the query for the groups of equal roots.

    PostgreSQL scans the inventories and the providers once each, without indexes, and joins them by hash: all
    of them are needed. With 10,000 hosts of 5 providers, the inventories take a fifth of the time and the
    patterns of the providers a half. The rest is for sorting these by root, so that equal trees are equal.
    """
    of_providers = select_patterns(layout.bits, scope.covers(inventory_row.c.root_id), layout.amounts)
    positions = [_position(of_providers, layout)] if layout.has_order else []
    patterns = (
        of_providers.add_columns(provider_row.c.path, *positions)
        .where(scope.covers(provider_row.c.root_id))
        .subquery("patterns")
    )
    is_root = patterns.c.provider_id == patterns.c.root_id
    if layout.is_structured:
        columns = (
            patterns.c.pattern,
            func.cardinality(patterns.c.path),
            *(patterns.c[name] for name in layout.amounts),
            *([patterns.c.position] if layout.has_order else []),
        )
        nodes = func.array_agg(aggregate_order_by(join_texts("/", columns), patterns.c.path))
    else:
        nodes = func.array_agg(aggregate_order_by(patterns.c.pattern.distinct(), patterns.c.pattern))
    by_root = (
        select(
            patterns.c.root_id,
            func.max(case((is_root, patterns.c.pattern))).label("root_pattern"),
            nodes.label("nodes"),
        )
        .group_by(patterns.c.root_id)
        .subquery("by_root")
    )
    aggregates: ColumnElement[Any] = cast(literal("{}"), ARRAY(Integer))
    if aggregate_ids:
        aggregates = func.array(
            select(provider_aggregates.c.aggregate_id)
            .where(
                provider_aggregates.c.root_id == by_root.c.root_id,
                is_any(provider_aggregates.c.aggregate_id, aggregate_ids),
            )
            .distinct()
            .order_by(provider_aggregates.c.aggregate_id)
            .scalar_subquery()
        )
    with_aggregates = select(by_root, aggregates.label("aggregate_ids")).subquery("with_aggregates")
    key = [with_aggregates.c[name] for name in ("root_pattern", "nodes", "aggregate_ids")]
    # psycopg2 takes ten times as long to parse an array as Python takes to split its text.
    return select(*key, cast(func.array_agg(with_aggregates.c.root_id), Text)).group_by(*key)


def _position(of_providers: Select[Any], layout: Layout) -> ColumnElement[int]:
    """Return the position of a provider in the order of uuids, among those with an inventory to split.

    It is 0 for others: in their order, trees that are equal would differ.
    """
    has_inventory = or_(*(of_providers.selected_columns[name] > 0 for name in layout.min_units))
    position = func.row_number().over(
        partition_by=(provider_row.c.root_id, has_inventory), order_by=provider_row.c.uuid
    )
    return case((has_inventory, position), else_=0).label("position")


def _read_sharing(
    reader: InventoryReader, layout: Layout, sharing_trait_id: int | None
) -> list[SharingProvider]:
    if sharing_trait_id is None:
        return []
    sharing = select(provider_traits.c.provider_id).where(provider_traits.c.trait_id == sharing_trait_id)
    query = (
        select_patterns(layout.bits, inventory_row.c.provider_id.in_(sharing), layout.amounts)
        .add_columns(
            provider_row.c.path,
            select(func.array_agg(provider_aggregates.c.aggregate_id))
            .where(provider_aggregates.c.provider_id == provider_row.c.id)
            .scalar_subquery()
            .label("aggregate_ids"),
        )
        .where(provider_row.c.id.in_(sharing))
    )
    return [
        SharingProvider(
            provider_id,
            root_id,
            Node(read_pattern(pattern), len(path), *_read_amounts(amounts, layout)),
            tuple(path),
            frozenset(aggregate_ids),
        )
        for provider_id, root_id, pattern, *amounts, path, aggregate_ids in reader.execute(query)
        if aggregate_ids
    ]
