"""The providers of single trees with their patterns, from which suppliers are combined."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Integer, String, any_, cast, literal, or_, select
from sqlalchemy.dialects.postgresql import ARRAY

from placement_svc.db.engine import driver_rows
from placement_svc.db.explanation.patterns import (
    Cloud,
    RootGroup,
    provider_row,
    read_pattern,
    select_patterns,
)
from placement_svc.db.search.trees import PROVIDER_SIZE
from placement_svc.db.tables import inventories, resource_classes
from placement_svc.domain.memory import MemoryBudget
from placement_svc.domain.root_tests import GroupTest


@dataclass
class ExplainedTrees:
    """The providers of some trees, and the sharing providers that serve them: a `ProviderLookup`.

    With `unused`, `max_allocatable` is what an inventory could supply if nothing were used.
    """

    paths: dict[int, tuple[int, ...]] = field(default_factory=dict)
    traits: dict[int, frozenset[int]] = field(default_factory=dict)
    patterns: dict[int, int] = field(default_factory=dict)
    by_root: dict[int, list[int]] = field(default_factory=dict)
    allocatable: dict[tuple[int, str], int] = field(default_factory=dict)

    def path(self, provider_id: int) -> tuple[int, ...]:
        """Return the ids from the provider's root down to itself."""
        return self.paths[provider_id]

    def trait_ids(self, provider_id: int) -> frozenset[int]:
        """Return the ids of the provider's traits."""
        return self.traits[provider_id]

    def max_allocatable(self, provider_id: int, resource_class: str) -> int:
        """Return the largest amount of a class that the request names which a new allocation can get."""
        return self.allocatable[provider_id, resource_class]


def read_trees(
    connection: Connection,
    cloud: Cloud,
    roots: Iterable[RootGroup],
    summed_classes: Collection[str],
    memory: MemoryBudget,
    *,
    unused: bool,
) -> ExplainedTrees:
    """Return the trees with these roots: one statement, and one more if amounts have to be added."""
    root_ids = [id_ for root in roots for id_ in root.root_ids]
    served = frozenset[int]().union(*(root.aggregate_ids for root in roots))
    sharing_ids = [provider.id for provider in cloud.sharing if provider.aggregate_ids & served]
    in_trees = _in_trees(provider_row.c.root_id, provider_row.c.id, root_ids, sharing_ids)
    query = (
        select_patterns(cloud.bits).add_columns(provider_row.c.path, provider_row.c.trait_ids).where(in_trees)
    )
    rows = driver_rows(connection, query, {})
    memory.reserve(PROVIDER_SIZE * len(rows))
    trees = ExplainedTrees()
    for id_, root_id, pattern, path, trait_ids in rows:
        trees.paths[id_] = tuple(path)
        trees.traits[id_] = frozenset(trait_ids)
        trees.patterns[id_] = read_pattern(pattern)
        trees.by_root.setdefault(root_id, []).append(id_)
    if summed_classes:
        of_trees = _in_trees(inventories.c.root_id, inventories.c.provider_id, root_ids, sharing_ids)
        amounts = (
            select(
                inventories.c.provider_id,
                resource_classes.c.name,
                inventories.c.max_unit,
                inventories.c.capacity if unused else inventories.c.capacity - inventories.c.used,
            )
            .join(resource_classes, resource_classes.c.id == inventories.c.resource_class_id)
            .where(resource_classes.c.name.in_(sorted(summed_classes)), of_trees)
        )
        for provider_id, name, max_unit, limit in driver_rows(connection, amounts, {}):
            trees.allocatable[provider_id, name] = min(max_unit, limit)
    return trees


def suppliers_by_demand(
    cloud: Cloud, trees: ExplainedTrees, root: RootGroup, root_id: int, tests: Sequence[GroupTest]
) -> list[list[int]]:
    """Return for each demand of the request the ids of its suppliers at a root."""
    sharing = [
        provider
        for provider in cloud.sharing
        if provider.root_id != root_id and provider.aggregate_ids & root.aggregate_ids
    ]
    own = trees.by_root[root_id]
    return [
        [id_ for id_ in own if demand.supplies(root.pattern.root, trees.patterns[id_], is_shared=False)]
        + [
            provider.id
            for provider in sharing
            if demand.supplies(root.pattern.root, provider.pattern, is_shared=True)
        ]
        for test in tests
        for demand in test.demands
    ]


def _in_trees(
    root_id: Column[int], provider_id: Column[int], root_ids: Sequence[int], sharing_ids: Sequence[int]
) -> ColumnElement[bool]:
    """Return the condition that a provider is in one of the trees or one of the sharing providers.

    Without sharing providers there is no OR, so that the index on root_id serves the condition.
    """
    in_tree = root_id == _any(root_ids)
    return or_(in_tree, provider_id == _any(sharing_ids)) if sharing_ids else in_tree


def _any(ids: Sequence[int]) -> Any:
    """Return the ids as one text, which PostgreSQL reads faster than thousands of literals."""
    array = cast(literal("{" + ",".join(map(str, ids)) + "}", String), ARRAY(Integer))
    return any_(cast(select(array).scalar_subquery(), ARRAY(Integer)))
