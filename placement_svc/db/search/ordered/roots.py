"""The roots of the cloud in the order of the best key that their trees can have, in batches.

A batch costs as much as its roots: an index has them in this order, whatever the size of the cloud. The roots
of a few sets can be ordered alone (`sets`); then a batch costs as much as all of these.
"""

import math
import random
from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from operator import itemgetter

from sqlalchemy import ColumnElement, Connection, Select, String, bindparam, select, true

from placement_svc.db.filters import any_id, free_amount, ids_text
from placement_svc.db.prepared import FixedStatement, each_row, fetch_rows
from placement_svc.db.search.ordered.sets import OrderedSets
from placement_svc.db.search.random_root import least_and_greatest_id
from placement_svc.db.serial_plans import SERIAL_PLANS
from placement_svc.db.tables import inventories, resource_providers
from placement_svc.domain.combining.ordering import Ordering
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

MAX_READS = 5
"""How many statements may find the roots of a batch; some of those found may have been returned before."""

MIN_TIED = 1 / 4
"""The part of the inventories read that must have one amount, so that their roots are read by uuid."""

MIN_TESTED = 200
"""The number of roots wanted by uuid from which on the next ones are tested for an amount, one by one.

PostgreSQL does so for fewer roots. But it does not know how many inventories of a class have an amount. In a
cloud of 10,000 hosts that all had the same free, it expected a sixth, read all inventories, and took 14 ms
for a thousand roots, not 3.
"""

TESTS_PER_ROOT = 2
"""At most how many roots are tested for each one wanted. If that is not enough, PostgreSQL decides again."""

INDEX_PLANS = f"{SERIAL_PLANS}; SET LOCAL random_page_cost = 1.1"
"""The SQL before a statement for the next roots by uuid: it prefers indexes until the end of the transaction.

With two parallel workers, which had to start and tested more roots than needed, PostgreSQL found 31 of
250,000 hosts in 22 ms instead of 6. With the cost of a random page on a disk, it read all roots of 10,000 to
find the 329 with an amount, in 1.9 ms instead of 0.5. These pages are usually in memory.
"""

STATEMENT_CACHE_SIZE = 64
"""Statements of one kind whose texts are cached: schedulers repeat the requests for the same flavors."""

BEHIND_UUIDS = "~"
"""A text behind all uuids."""

BEFORE_ALL = (-(2**62), "")
"""A key and a text before those of all roots."""

_root = resource_providers.alias("root").c
_inventory_row = inventories.alias("inventory")
_inventory = _inventory_row.c
_free = free_amount(_inventory_row)


class OrderedRoots:
    """The roots in order: by what is free of a class, at random, or by uuid.

    No root that is left precedes `next_position`, which is a key and a uuid. Roots of the same key are in the
    order of their uuids. Each root comes once.
    """

    def __init__(
        self,
        connection: Connection,
        ordering: Ordering,
        class_id: int | None,
        least_amount: int,
        deadline: Deadline,
    ) -> None:
        self._connection = connection
        self._ordering = ordering
        self._class_id = class_id
        self._least_amount = least_amount
        self._deadline = deadline
        self._sign = -1 if ordering.spreads else 1
        self._after_free: int | None = None
        """The roots with so much free, or a better amount, have been returned."""
        self._tied_free: int | None = None
        """The amount whose roots are being returned by uuid, as there are more than a batch of them."""
        self._tests_roots = True
        """Whether the next roots by uuid are tested for an amount; not if few of those tested had it."""
        self._after_uuid = ""
        self._sets: OrderedSets | None = None
        """The sets whose roots alone are returned."""
        self._after_in_sets = BEFORE_ALL
        self._seed = random.getrandbits(63)
        self._inventories_per_root = 1.0
        """How many inventories of the class the roots by key have, on average."""
        self._returned = set[int]()
        """The roots that have been returned, or are excluded."""
        self.drawn: dict[int, str] = {}
        """For a random order, the roots drawn so far, and texts that sort as they were drawn."""
        self._spare: list[int] = []
        """The roots that were drawn and are not returned yet."""
        self._draws_per_root = DRAWS_PER_ROOT
        self._all_drawn = False
        self.exhausted = False
        self.next_position: tuple[float, str] = (0, "")

    def restart(self, excluded: Collection[int]) -> None:
        """Return all roots again, the first ones first, except for those in `excluded`."""
        self._sets = None
        self._after_free = self._tied_free = None
        self._after_uuid = ""
        self._returned = set(excluded)
        self._spare = list(self.drawn)
        self.exhausted = False

    def restrict(self, sets: OrderedSets) -> None:
        """Return only roots in these sets from now on.

        In a random order, they follow those that have been returned, so `restart` must not follow.
        """
        self._sets, self._after_in_sets, self.exhausted = sets, BEFORE_ALL, False

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
        if self._ordering.is_random:
            return self._draw(size)
        if self._class_id is None:
            return self._next_by_uuid(size)
        if self._tied_free is not None:
            return self._next_tied(self._class_id, self._tied_free, size)
        return self._next_by_key(self._class_id, size)

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
        key, text = self._after_in_sets
        values = {"after_key": key, "after_text": text, "seed": self._seed}
        rows = fetch_rows(self._connection, sets.statement(size), values)
        if rows:
            self._after_in_sets = rows[-1][1:]
        self.exhausted = len(rows) < size
        self.next_position = self._after_in_sets
        if sets.is_random:
            self.drawn.update((id_, text) for id_, _, text in rows)
        return [id_ for id_, _, _ in rows]

    def _next_by_uuid(self, size: int) -> Sequence[int]:
        """Return the next roots by uuid; the index on the uuids of roots has them in order."""
        return self._after(_by_uuid(size), size, key=0)

    def _next_by_key(self, class_id: int, size: int) -> Sequence[int]:
        """Return the next roots by key, all of each key, until there are `size`.

        `inventories_free_idx` has the inventories in this order, so the statement reads as many entries as
        it returns. If many roots have the last key, and they are too many, they come next, by uuid.
        """
        count = math.ceil(size * self._inventories_per_root)
        text = _by_free(class_id, self._least_amount, self._after_free, count, spreads=self._sign < 0)
        rows = list(each_row(self._connection, text))
        all_read = len(rows) < count
        found = dict[int, None]()
        complete = 0
        for free, of_key in groupby(rows, key=itemgetter(1)):
            inventories_of_key = list(of_key)
            is_incomplete = not all_read and complete + len(inventories_of_key) == count
            is_too_large = is_incomplete or len(found) + len(inventories_of_key) > size
            if is_too_large and len(inventories_of_key) >= MIN_TIED * count:
                self._tied_free, self._after_uuid = free, ""
            if self._tied_free is not None or is_incomplete or len(found) >= size:
                self.next_position = (self._sign * free, "")
                break
            found.update((id_, None) for id_, _ in inventories_of_key)
            complete += len(inventories_of_key)
            self._after_free = free
        else:
            self.exhausted = True
        if complete:
            self._inventories_per_root = complete / len(found)
        return list(found)

    def _next_tied(self, class_id: int, free: int, size: int) -> Sequence[int]:
        """Return the next roots of one key by uuid."""
        key = self._sign * free
        if self._tests_roots and size >= MIN_TESTED:
            root_ids = self._after(_tested_for_free(class_id, free, size), size, key=key)
            if self.exhausted:
                # All roots have been tested, or too few of them have the amount.
                self.exhausted = self._tests_roots = False
                self.next_position = (key, self._after_uuid)
            return root_ids
        root_ids = self._after(_by_uuid_of_free(class_id, free, size), size, key=key)
        if self.exhausted:
            self.exhausted = False
            self._after_free, self._tied_free = free, None
        return root_ids

    def _after(self, statement: FixedStatement, size: int, *, key: int) -> Sequence[int]:
        """Return the next roots of a statement that orders them by uuid, and remember the last one."""
        rows = fetch_rows(self._connection, statement, {"after_uuid": self._after_uuid})
        self.exhausted = len(rows) < size
        self._after_uuid = rows[-1][1] if rows else self._after_uuid
        self.next_position = (key, BEHIND_UUIDS if self.exhausted else self._after_uuid)
        return [id_ for id_, _ in rows]


def _drawn_text(number: int) -> str:
    """Return a text that sorts as the number of a draw."""
    return f"0{number:012}"


@lru_cache(STATEMENT_CACHE_SIZE)
def _by_free(class_id: int, least_amount: int, after: int | None, size: int, *, spreads: bool) -> str:
    """Return the SQL for the next roots by what is free of a class.

    It contains all values: without them, PostgreSQL would expect a few inventories, and sort them.
    """
    query = select(_inventory.root_id, _free).where(
        _inventory.resource_class_id == class_id, _free >= least_amount
    )
    if after is not None:
        query = query.where(_free < after if spreads else _free > after)
    query = query.order_by(_free.desc() if spreads else _free).limit(size)
    return FixedStatement(query, {}).text


@lru_cache(STATEMENT_CACHE_SIZE)
def _by_uuid(size: int) -> FixedStatement:
    """Return the statement for the next roots by uuid."""
    return _by_uuid_statement(_in_order_of_uuids(true(), size))


@lru_cache(STATEMENT_CACHE_SIZE)
def _tested_for_free(class_id: int, free: int, size: int) -> FixedStatement:
    """Return the statement for those of the next roots by uuid that have an inventory with so much free.

    It tests a limited number of roots, one by one until it has enough: the offset keeps PostgreSQL from
    reading all such inventories.
    """
    has_inventory = _inventories_with_free(class_id, free).offset(0).exists()
    roots = _in_order_of_uuids(true(), TESTS_PER_ROOT * size)
    tested = roots.add_columns(has_inventory.label("has_inventory")).subquery("tested").c
    return _by_uuid_statement(
        select(tested.id, tested.uuid).where(tested.has_inventory).order_by(tested.uuid).limit(size)
    )


@lru_cache(STATEMENT_CACHE_SIZE)
def _by_uuid_of_free(class_id: int, free: int, size: int) -> FixedStatement:
    """Return the statement for the next roots by uuid that have an inventory with so much free.

    PostgreSQL tests the next roots by uuid, or sorts the roots with such inventories: its statistics say how
    many there are, as the amount is a part of the text.
    """
    has_inventory = _inventories_with_free(class_id, free).exists()
    return _by_uuid_statement(_in_order_of_uuids(has_inventory, size))


def _inventories_with_free(class_id: int, free: int) -> Select[tuple[int]]:
    return select(_inventory.root_id).where(
        _inventory.root_id == _root.id, _inventory.resource_class_id == class_id, _free == free
    )


def _in_order_of_uuids(condition: ColumnElement[bool], size: int) -> Select[tuple[int, str]]:
    return (
        select(_root.id, _root.uuid)
        .where(condition, _root.parent_id.is_(None), _root.uuid > bindparam("after_uuid", type_=String))
        .order_by(_root.uuid)
        .limit(size)
    )


def _by_uuid_statement(query: Select[tuple[int, str]]) -> FixedStatement:
    return FixedStatement(query, {"after_uuid": "text"}, prepares_at_first_use=False, preceding=INDEX_PLANS)


_is_root = _root.parent_id.is_(None)
_ID_RANGE = FixedStatement(select(*least_and_greatest_id()), {}).text
_ALL_ROOTS = FixedStatement(select(_root.id).where(_is_root), {}).text
_ROOTS = FixedStatement(select(_root.id).where(_is_root, _root.id == any_id("ids")), {"ids": "text"})
