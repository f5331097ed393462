"""The roots of the cloud in the order of the best key that their trees can have, in batches.

A batch costs as much as its roots: an index has them in this order, whatever the size of the cloud. The roots
of a few sets can be ordered alone (`sets`); then a batch costs as much as all of these.
"""

import math
import random
from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import Connection, select

from placement_svc.db.filters import any_id, ids_text
from placement_svc.db.prepared import FixedStatement, each_row, fetch_rows
from placement_svc.db.search.ordered.own_roots import OwnRoots
from placement_svc.db.search.ordered.served_roots import ServedRoots
from placement_svc.db.search.ordered.sets import OrderedSets
from placement_svc.db.search.ordered.uuid_order import (
    BEFORE_ALL,
    STATEMENT_CACHE_SIZE,
    Position,
    UuidCursor,
    by_uuid_statement,
    in_order_of_uuids,
    root,
)
from placement_svc.db.search.random_root import least_and_greatest_id
from placement_svc.domain.execution.deadline import Deadline

DRAWS_PER_ROOT = 1.2
"""How many ids are drawn at first for each root that is wanted, as if almost all were those of roots."""

MAX_DRAWS_PER_ROOT = 20
"""The most ids that are drawn for each root that is wanted, if roots are rare among the ids."""

SPARE_DRAWS = 200
"""How many more are drawn: these take no time, and mostly suffice for a few roots among other providers."""

MAX_RATIO_DRAWN = 1 / 2
"""The part of all ids above which all roots are read and shuffled.

Draws may repeat earlier ones. To find almost all of 1,000 hosts in smaller draws took 50 statements.
"""

MIN_LISTED = 1000
"""The least number of roots in sets that are read at once: reading few of them takes as long."""

MAX_READS = 5
"""How many statements may find the roots of a batch; some of those found may have been returned before."""


class OrderedRoots:
    """The roots in order: by what is free of a class, at random, or by uuid.

    If they are ordered by what is free, `own` are those with own inventories of the class (None: they are
    not), and `served` those that sharing providers serve with it. Each root comes once. No root that is left
    precedes `next_position`. Roots of the same key are in the order of their uuids.
    """

    def __init__(
        self,
        connection: Connection,
        own: OwnRoots | None,
        served: ServedRoots,
        deadline: Deadline,
        *,
        is_random: bool,
    ) -> None:
        self._connection = connection
        self._own = own
        self._served = served
        self._deadline = deadline
        self._is_random = is_random
        self._by_uuid = UuidCursor(connection)
        self._sets: OrderedSets | None = None
        """The sets whose roots alone are returned."""
        self._listed: list[tuple[Any, ...]] = []
        """The ids, keys and texts of roots in the sets that have been read and are not returned yet."""
        self._all_listed = False
        self._seed = random.getrandbits(63)
        self._returned = set[int]()
        """The roots that have been returned, or are excluded."""
        self.drawn: dict[int, str] = {}
        """For a random order, the roots drawn so far, and texts that sort as they were drawn."""
        self._spare: list[int] = []
        """The roots that were drawn and are not returned yet."""
        self._draws_per_root = DRAWS_PER_ROOT
        self._all_drawn = False
        self.exhausted = False
        self.next_position: Position = BEFORE_ALL

    def restart(self, excluded: Collection[int]) -> None:
        """Return all roots again, the first ones first, except for those in `excluded`."""
        self._sets = None
        if self._own is not None:
            self._own.restart()
        self._served.restart()
        self._by_uuid.restart()
        self._returned = set(excluded)
        self._spare = list(self.drawn)
        self.exhausted = False

    def restrict(self, sets: OrderedSets) -> None:
        """Return only roots in these sets from now on.

        In a random order, they follow those that have been returned, so `restart` must not follow.
        """
        self._sets, self.exhausted, self.next_position = sets, False, BEFORE_ALL
        self._listed, self._all_listed = [], False

    def next(self, size: int, enough: int) -> Collection[int]:
        """Return about `size` further roots; fewer than `enough` only if few are left, or hard to find."""
        found = set[int]()
        for _ in range(MAX_READS):
            found.update(id_ for id_ in self._read(size - len(found)) if id_ not in self._returned)
            if self.exhausted or len(found) >= min(size, enough):
                break
        self._returned |= found
        return found

    def _read(self, size: int) -> Sequence[int]:
        """Return about `size` roots that come next, with one statement; some may have been returned."""
        self._deadline.check()
        if self._sets is not None:
            return self._next_in_sets(self._sets, size)
        if self._is_random:
            return self._draw(size)
        if self._own is None:
            return self._next_by_uuid(size)
        return self._next_by_key(self._own, self._served, size)

    def _draw(self, size: int) -> Sequence[int]:
        """Return roots drawn at random: each root that is left has the same chance.

        Ids are drawn, and those dropped that are not the id of a root.
        """
        if len(self._spare) < size and not self._all_drawn:
            self._draw_more(size - len(self._spare))
        chosen, self._spare = self._spare[:size], self._spare[size:]
        self.exhausted = self._all_drawn and not self._spare
        self.next_position = (0, _drawn_text(len(self.drawn) - len(self._spare)))
        return chosen

    def _draw_more(self, count: int) -> None:
        """Draw so many ids that probably `count` of them are roots, and keep the roots; or draw all roots."""
        ids = self._ids
        size = math.ceil(self._draws_per_root * count) + SPARE_DRAWS
        if size > MAX_RATIO_DRAWN * len(ids):
            all_roots = self._deadline.checked(each_row(self._connection, _ALL_ROOTS))
            new = [id_ for (id_,) in all_roots if id_ not in self.drawn]
            random.shuffle(new)
            self._all_drawn = True
        else:
            draws = random.sample(ids, size)
            found = {id_ for (id_,) in fetch_rows(self._connection, _ROOTS, {"ids": ids_text(draws)})}
            new = [id_ for id_ in self._deadline.checked(draws) if id_ in found and id_ not in self.drawn]
            self._draws_per_root = min(DRAWS_PER_ROOT * size / max(len(new), 1), MAX_DRAWS_PER_ROOT)
        self.drawn.update({id_: _drawn_text(len(self.drawn) + number) for number, id_ in enumerate(new)})
        self._spare += new

    @cached_property
    def _ids(self) -> range:
        """The ids among which those of all roots are."""
        [(first, last)] = each_row(self._connection, _ID_RANGE)
        return range(first or 0, (last or 0) + 1)

    def _next_in_sets(self, sets: OrderedSets, size: int) -> Sequence[int]:
        """Return the next roots in sets by key."""
        if len(self._listed) < size and not self._all_listed:
            self._list_more(sets, max(size, MIN_LISTED))
        chosen, self._listed = self._listed[:size], self._listed[size:]
        self.exhausted = self._all_listed and not self._listed
        if chosen:
            self.next_position = chosen[-1][1:]
        if sets.is_random:
            self.drawn.update((id_, text) for id_, _, text in chosen)
        return [id_ for id_, _, _ in chosen]

    def _list_more(self, sets: OrderedSets, count: int) -> None:
        """Read the next roots in sets; each time, PostgreSQL computes the keys of all."""
        after_key, after_text = self._listed[-1][1:] if self._listed else self.next_position
        values = {
            "after_key": after_key,
            "after_text": after_text,
            "seed": self._seed,
            "served_keys": self._served.keys_as_json,
        }
        rows = fetch_rows(self._connection, sets.statement(count), values)
        self._all_listed = len(rows) < count
        self._listed += rows

    def _next_by_uuid(self, size: int) -> Sequence[int]:
        """Return the next roots by uuid; the index on the uuids of roots has them in order."""
        root_ids = self._by_uuid.next(_by_uuid_statement(size), size)
        self.exhausted = self._by_uuid.exhausted
        self.next_position = self._by_uuid.position(0)
        return root_ids

    def _next_by_key(self, own: OwnRoots, served: ServedRoots, size: int) -> Sequence[int]:
        """Return the next roots by key: those that are served, and those with own inventories up to there."""
        root_ids: list[int] = []
        if not served.exhausted and served.next_position <= own.next_position:
            root_ids += served.next(size)
        if own.next_position < served.next_position:
            root_ids += own.next(size, served.next_position[0])
        self.exhausted = own.exhausted and served.exhausted
        self.next_position = min(own.next_position, served.next_position)
        return root_ids


def _drawn_text(number: int) -> str:
    """Return a text that sorts as the number of a draw."""
    return f"0{number:012}"


@lru_cache(STATEMENT_CACHE_SIZE)
def _by_uuid_statement(size: int) -> FixedStatement:
    """Return the statement for the next roots by uuid."""
    return by_uuid_statement(in_order_of_uuids(size))


_is_root = root.parent_id.is_(None)
_ID_RANGE = FixedStatement(select(*least_and_greatest_id()), {}).text
_ALL_ROOTS = FixedStatement(select(root.id).where(_is_root), {}).text
_ROOTS = FixedStatement(select(root.id).where(_is_root, root.id == any_id("ids")), {"ids": "text"})
