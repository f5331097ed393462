"""The facts that order candidates: free amounts, preferred traits and uuids of suppliers."""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import starmap
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    null,
    select,
    true,
)

from placement_svc.db.filters import any_id, free_amount, held_among, ids_text
from placement_svc.db.prepared import FixedStatement, fetch_rows
from placement_svc.db.search.anchors import Anchor
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.ignored_consumers import FreedInventory
from placement_svc.db.search.list_texts import joined, members
from placement_svc.db.search.ordered.subtrees import MAX_LEVELS, OrderedSubtrees
from placement_svc.db.tables import inventories, resource_providers
from placement_svc.domain.combining.ordering import Ordering, SupplierFacts
from placement_svc.domain.combining.shared_lists import distinct_lists
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget

UNDRAWN = "1"
"""The first character of the random texts; those of roots that are drawn one by one start with `0`."""

TEXT_SIZE = 200
"""Bytes of memory that the random text of a provider needs, approximately."""

FACTS_SIZE = 400
"""Bytes of memory that the facts of a provider need, approximately."""

PATH_SIZE = 300
"""Bytes of memory that a path needs, approximately."""

FREE_SIZE = 150
"""Bytes of memory that a free amount needs, approximately."""


class FactsReader:
    """Reads the facts about the suppliers of anchors into `facts`, those of each supplier once.

    `class_id` is that of the class of `order_by` (None: there is none), and `freed` are the inventories of
    this class from which ignored consumers have allocations, by provider id. The paths that `subtrees` needs
    are added to it.
    """

    def __init__(
        self,
        connection: Connection,
        criteria: SearchCriteria,
        ordering: Ordering,
        class_id: int | None,
        freed: Mapping[int, FreedInventory],
        subtrees: OrderedSubtrees,
        deadline: Deadline,
        memory: MemoryBudget,
    ) -> None:
        self.facts = SupplierFacts(tie_breakers=RandomTexts(memory) if ordering.is_random else {})
        self._connection = connection
        self._ordering = ordering
        self._demands = criteria.different(range(len(criteria.by_demand)))
        self._class_demands = criteria.different(ordering.class_demands)
        self._preferring = criteria.different(ordering.unsuffixed_demands) if ordering.preferred else ()
        """The demands whose suppliers may have preferred traits."""
        self._class_id = class_id
        self._freed = freed
        self._subtrees = subtrees
        self._deadline = deadline
        self._memory = memory
        self._known: set[int] = set()
        """The providers whose facts have been read, except for free amounts."""

    def read(self, anchors: Sequence[Anchor]) -> None:
        """Read the facts about the suppliers of these anchors that are needed and not known yet."""
        suppliers = [anchor.supplier_ids for anchor in anchors]
        wanted = self._union(ids_of[demand] for demand in self._preferring for ids_of in suppliers)
        # Random texts are not read, and the uuid of the only supplier of a demand decides nothing.
        if not self._ordering.is_random:
            wanted.update(anchor.id for anchor in anchors)
            of_demands = (ids_of[demand] for demand in self._demands for ids_of in suppliers)
            wanted |= self._union(ids for ids in of_demands if len(ids) > 1)
        wanted |= self._union(self._subtrees.needed(suppliers))
        wanted -= self._known
        of_class = self._union(ids_of[demand] for demand in self._class_demands for ids_of in suppliers)
        of_class -= self.facts.free.keys()
        if wanted or of_class:
            self._known |= wanted
            self._fetch(wanted, of_class)

    def read_free(self, provider_ids: Collection[int]) -> None:
        """Read what these providers have free of the class."""
        if provider_ids:
            self._fetch((), provider_ids)

    def _union(self, lists: Iterable[Sequence[int]]) -> set[int]:
        """Return the members of all lists; trees that the same providers serve share some of these."""
        union: set[int] = set()
        for ids in self._deadline.checked(distinct_lists(lists)):
            union.update(ids)
        return union

    def _fetch(self, provider_ids: Collection[int], of_class: Collection[int]) -> None:
        """Fetch the facts of providers, and what `of_class` have free; one statement by primary keys."""
        ordering, facts = self._ordering, self.facts
        values = {
            "class_id": self._class_id,
            "class_supplier_ids": ids_text(of_class),
            "provider_ids": ids_text(provider_ids),
            "trait_ids": ids_text(ordering.preferred),
        }
        statement = _FACTS[bool(ordering.preferred), bool(self._subtrees)]
        [(ids_of_row, uuids, trait_ids, *paths, with_free, amounts)] = fetch_rows(
            self._connection, statement, values
        )
        self._memory.reserve(FACTS_SIZE * len(provider_ids) + FREE_SIZE * len(of_class))
        self._deadline.check()
        free: dict[int, int] = dict(zip(members(with_free), members(amounts), strict=True))
        free.update((id_, self._freed[id_].free) for id_ in self._freed.keys() & free.keys())
        facts.free.update(free)
        ids = members(ids_of_row)
        if ids and ordering.preferred:
            facts.preferred.update(_trait_sets(ids, trait_ids.split(";")))
        if ids and not ordering.is_random:
            # `RandomTexts` decide ties otherwise.
            facts.tie_breakers.update(zip(ids, uuids.split(","), strict=True))
        if self._subtrees:
            self._memory.reserve(PATH_SIZE * len(ids))
            with_paths = zip(ids, starmap(_path, zip(ids, *map(members, paths), strict=True)), strict=True)
            self._subtrees.paths.update((id_, path) for id_, path in with_paths if path)


class RandomTexts(dict[int, str]):
    """A random text for each provider, which decides ties like a uuid; it is drawn at its first use."""

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory

    def __missing__(self, provider_id: int) -> str:
        self._memory.reserve(TEXT_SIZE)
        text = self[provider_id] = f"{UNDRAWN}{random.getrandbits(64):016x}"
        return text


def _trait_sets(ids: Sequence[int], texts: Sequence[str]) -> Iterable[tuple[int, frozenset[int]]]:
    """Yield each provider that has any trait, and its traits; few of the texts differ."""
    sets = {text: frozenset(members(text)) for text in set(texts)}
    return ((id_, sets[text]) for id_, text in zip(ids, texts, strict=True) if text)


def _path(
    id_: int, root_id: int, parent_id: int | None, path: Sequence[int] | bool | None
) -> tuple[int, ...] | None:
    """Return the path of a provider: `path` if it has more than three levels; None if these are too many."""
    if path is not None:
        return tuple(path) if isinstance(path, list) else None
    if parent_id is None:
        return (id_,)
    return (root_id, id_) if parent_id == root_id else (root_id, parent_id, id_)


def _select_facts(*, with_traits: bool, with_paths: bool) -> FixedStatement:
    """Return the statement; its only row has lists as texts, as thousands of rows take the driver longer.

    These are the ids of the providers, their uuids, with semicolons between them the ids of the preferred
    traits of each, their roots, parents and paths as JSON; and the ids of the providers with an inventory of
    the class, and what is free of it.
    """
    provider = resource_providers.c
    null_text: ColumnElement[Any] = null()
    trait_ids = roots = parents = paths = null_text
    if with_traits:
        trait_ids = joined(func.array_to_string(held_among("trait_ids"), ","), ";")
    if with_paths:
        roots = joined(provider.root_id)
        parents = joined(func.coalesce(cast(provider.parent_id, Text), "null"))
        # Few paths are read as a list, as that takes longer.
        levels = func.cardinality(provider.path)
        path = func.array_to_string(provider.path, ",", type_=Text)
        listed = literal_column("'['", Text).concat(path).concat(literal_column("']'", Text))
        paths = joined(case((levels <= 3, "null"), (levels <= MAX_LEVELS, listed), else_="false"))
    facts = (
        select(joined(provider.id), joined(provider.uuid), trait_ids, roots, parents, paths)
        .where(provider.id == any_id("provider_ids"))
        .subquery("facts")
    )
    inventory = inventories.c
    free = (
        select(joined(inventory.provider_id), joined(free_amount(inventories)))
        .where(
            inventory.provider_id == any_id("class_supplier_ids"),
            inventory.resource_class_id == bindparam("class_id", type_=Integer),
        )
        .subquery("free")
    )
    types = {"class_id": "integer", "class_supplier_ids": "text", "provider_ids": "text", "trait_ids": "text"}
    return FixedStatement(select(facts, free).select_from(facts.join(free, true())), types)


_FACTS = {
    (with_traits, with_paths): _select_facts(with_traits=with_traits, with_paths=with_paths)
    for with_traits in (False, True)
    for with_paths in (False, True)
}
