"""The facts that order candidates: free amounts, preferred traits and uuids of suppliers."""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    null,
    select,
)

from placement_svc.db.filters import any_id, free_amount, held_among, ids_text
from placement_svc.db.prepared import FixedStatement, fetch_rows
from placement_svc.db.search.anchors import Anchor
from placement_svc.db.search.ignored_consumers import FreedInventory
from placement_svc.db.search.ordered_subtrees import MAX_LEVELS, OrderedSubtrees
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


LONG_PATH = ""
"""The text instead of a path of too many levels."""


class FactsReader:
    """Reads the facts about the suppliers of anchors into `facts`, those of each supplier once.

    `class_id` is that of the class of `order_by` (None: there is none), and `freed` are the inventories of
    this class from which ignored consumers have allocations, by provider id. The paths that `subtrees` needs
    are added to it.
    """

    def __init__(
        self,
        connection: Connection,
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
        self._class_id = class_id
        self._freed = freed
        self._subtrees = subtrees
        self._deadline = deadline
        self._memory = memory
        self._known: set[int] = set()
        """The providers whose facts have been read."""

    def read(self, anchors: Sequence[Anchor]) -> None:
        """Read the facts about the suppliers of these anchors that are needed and not known yet."""
        ordering = self._ordering
        # Random texts are not read, and the uuid of the only supplier of a demand decides nothing.
        needs_uuids = not ordering.is_random
        ranking = {*ordering.class_demands, *(ordering.unsuffixed_demands if ordering.preferred else ())}
        wanted = {anchor.id for anchor in anchors} if needs_uuids else set()
        for anchor in anchors if needs_uuids or ranking else ():
            self._deadline.check()
            all_ids = anchor.supplier_ids
            lists = [all_ids[demand] for demand in ranking]
            if needs_uuids:
                lists += [ids for ids in all_ids if len(ids) > 1]
            lists += self._subtrees.needed(anchor)
            wanted.update(*distinct_lists(lists))
        wanted -= self._known
        if not wanted:
            return
        self._known |= wanted
        self._fetch(wanted)

    def _fetch(self, provider_ids: Collection[int]) -> None:
        """Fetch the facts of these providers, in one statement that reads them by their primary keys."""
        ordering, facts = self._ordering, self.facts
        values = {
            "class_id": self._class_id,
            "provider_ids": ids_text(provider_ids),
            "trait_ids": ids_text(ordering.preferred),
        }
        statement = _FACTS[bool(ordering.preferred), bool(self._subtrees)]
        rows = fetch_rows(self._connection, statement, values)
        self._memory.reserve(FACTS_SIZE * len(rows))
        self._deadline.check()
        free = {id_: amount for id_, _, amount, *_ in rows if amount is not None}
        free.update((id_, self._freed[id_].free) for id_ in self._freed.keys() & free.keys())
        facts.free.update(free)
        if ordering.preferred:
            preferred = ((id_, frozenset(trait_ids)) for id_, _, _, trait_ids, *_ in rows if trait_ids)
            facts.preferred.update(preferred)
        if not ordering.is_random:
            # `RandomTexts` decide ties otherwise.
            facts.tie_breakers.update((id_, uuid) for id_, uuid, *_ in rows)
        if self._subtrees:
            self._memory.reserve(PATH_SIZE * len(rows))
            self._subtrees.paths.update(
                (id_, _path(id_, root_id, parent_id, path))
                for id_, _, _, _, root_id, parent_id, path in rows
                if path != LONG_PATH
            )


class RandomTexts(dict[int, str]):
    """A random text for each provider, which decides ties like a uuid; it is drawn at its first use."""

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory

    def __missing__(self, provider_id: int) -> str:
        self._memory.reserve(TEXT_SIZE)
        text = self[provider_id] = f"{UNDRAWN}{random.getrandbits(64):016x}"
        return text


def _path(id_: int, root_id: int, parent_id: int | None, text: str | None) -> tuple[int, ...]:
    """Return the path of a provider; the text has that of more than three levels."""
    if text is not None:
        return tuple(map(int, text[1:-1].split(",")))
    if parent_id is None:
        return (id_,)
    return (root_id, id_) if parent_id == root_id else (root_id, parent_id, id_)


def _select_facts(*, with_traits: bool, with_paths: bool) -> FixedStatement:
    provider, inventory = resource_providers.c, inventories.c
    is_of_class = and_(
        inventory.provider_id == provider.id,
        inventory.resource_class_id == bindparam("class_id", type_=Integer),
    )
    preferred_traits: ColumnElement[Any] = held_among("trait_ids") if with_traits else null()
    path: Sequence[ColumnElement[Any]] = ()
    if with_paths:
        # Few paths are a text, as that takes longer; psycopg2 takes even longer to parse an array.
        levels = func.cardinality(provider.path)
        text = case((levels <= 3, null()), (levels <= MAX_LEVELS, cast(provider.path, Text)), else_=LONG_PATH)
        path = provider.root_id, provider.parent_id, text
    query = (
        select(provider.id, provider.uuid, free_amount(inventories), preferred_traits, *path)
        .select_from(resource_providers.outerjoin(inventories, is_of_class))
        .where(provider.id == any_id("provider_ids"))
    )
    return FixedStatement(query, {"class_id": "integer", "provider_ids": "text", "trait_ids": "text"})


_FACTS = {
    (with_traits, with_paths): _select_facts(with_traits=with_traits, with_paths=with_paths)
    for with_traits in (False, True)
    for with_paths in (False, True)
}
