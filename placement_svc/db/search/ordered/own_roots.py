"""The roots in the order of the best amount of a class that their own trees have free."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from sqlalchemy import ColumnElement, Connection, Select, not_, select

from placement_svc.db.filters import free_amount, is_any
from placement_svc.db.prepared import FixedStatement, each_row
from placement_svc.db.search.ordered.uuid_order import (
    AFTER_ALL,
    BEFORE_ALL,
    BEHIND_UUIDS,
    STATEMENT_CACHE_SIZE,
    UuidCursor,
    by_uuid_statement,
    in_order_of_uuids,
    root,
)
from placement_svc.db.tables import inventories

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

_inventory_row = inventories.alias("inventory")
_inventory = _inventory_row.c
_free = free_amount(_inventory_row)


@dataclass(frozen=True, kw_only=True)
class OwnInventories:
    """The inventories of a class with at least `least_amount` free, except those of `excluded` providers.

    The key of each is the amount, with `spreads` its negative.
    """

    class_id: int
    least_amount: int
    excluded: frozenset[int]
    spreads: bool

    @property
    def conditions(self) -> Iterator[ColumnElement[bool]]:
        """The conditions on an inventory, apart from the least amount."""
        yield _inventory.resource_class_id == self.class_id
        if self.excluded:
            yield not_(is_any(_inventory.provider_id, self.excluded))


class OwnRoots:
    """The roots whose trees have some inventories, by the key of these.

    A root comes once for each inventory, and no root that is left precedes `next_position`. Roots of the same
    key are in the order of their uuids.
    """

    def __init__(self, connection: Connection, own: OwnInventories) -> None:
        self._connection = connection
        self._own = own
        self._sign = -1 if own.spreads else 1
        self._tests_roots = True
        """Whether the next roots by uuid are tested for an amount; not if few of those tested had it."""
        self._inventories_per_root = 1.0
        """How many inventories of the class the roots by key have, on average."""
        self._by_uuid = UuidCursor(connection)
        self.restart()

    def restart(self) -> None:
        """Return all roots again, the first ones first."""
        self._after_free: int | None = None
        """The roots with so much free, or a better amount, have been returned."""
        self._tied_free: int | None = None
        """The amount whose roots are being returned by uuid, as there are more than a batch of them."""
        self.exhausted = False
        self.next_position = BEFORE_ALL

    def next(self, size: int, last_key: float = math.inf) -> Sequence[int]:
        """Return about `size` roots that come next, with one statement; those up to `last_key` at most."""
        if self._tied_free is not None:
            return self._next_tied(self._tied_free, size)
        return self._next_by_key(size, None if last_key == math.inf else int(last_key))

    def _next_by_key(self, size: int, last_key: int | None) -> Sequence[int]:
        """Return the next roots by key, all of each key, until there are `size`.

        `inventories_free_idx` has the inventories in this order, so the statement reads as many entries as
        it returns. If many roots have the last key, and they are too many, they come next, by uuid.
        """
        count = math.ceil(size * self._inventories_per_root)
        last_free = None if last_key is None else self._sign * last_key
        text = _by_free(self._own, self._after_free, last_free, count)
        rows = list(each_row(self._connection, text))
        all_read = len(rows) < count
        found = dict[int, None]()
        complete = 0
        for free, of_key in groupby(rows, key=itemgetter(1)):
            inventories_of_key = list(of_key)
            is_incomplete = not all_read and complete + len(inventories_of_key) == count
            is_too_large = is_incomplete or len(found) + len(inventories_of_key) > size
            if is_too_large and len(inventories_of_key) >= MIN_TIED * count:
                self._tied_free = free
                self._by_uuid.restart()
            if self._tied_free is not None or is_incomplete or len(found) >= size:
                self.next_position = (self._sign * free, "")
                break
            found.update((id_, None) for id_, _ in inventories_of_key)
            complete += len(inventories_of_key)
            self._after_free = free
        else:
            self._end_range(last_key)
        if complete:
            self._inventories_per_root = complete / len(found)
        return list(found)

    def _end_range(self, last_key: int | None) -> None:
        """Continue behind the last key; all roots up to it have been returned."""
        if last_key is None:
            self.exhausted, self.next_position = True, AFTER_ALL
        else:
            self._after_free, self.next_position = self._sign * last_key, (last_key, BEHIND_UUIDS)

    def _next_tied(self, free: int, size: int) -> Sequence[int]:
        """Return the next roots of one key by uuid."""
        is_tested = self._tests_roots and size >= MIN_TESTED
        build = _tested_for_free if is_tested else _by_uuid_of_free
        root_ids = self._by_uuid.next(build(self._own, free, size), size)
        if self._by_uuid.exhausted and is_tested:
            # All roots have been tested, or too few of them have the amount.
            self._by_uuid.exhausted = self._tests_roots = False
        elif self._by_uuid.exhausted:
            self._after_free, self._tied_free = free, None
        self.next_position = self._by_uuid.position(self._sign * free)
        return root_ids


@lru_cache(STATEMENT_CACHE_SIZE)
def _by_free(own: OwnInventories, after: int | None, last: int | None, size: int) -> str:
    """Return the SQL for the next roots by what is free of a class, behind `after` and up to `last`.

    It contains all values: without them, PostgreSQL would expect a few inventories, and sort them.
    """
    query = select(_inventory.root_id, _free).where(*own.conditions, _free >= own.least_amount)
    spreads = own.spreads
    if after is not None:
        query = query.where(_free < after if spreads else _free > after)
    if last is not None:
        query = query.where(_free >= last if spreads else _free <= last)
    query = query.order_by(_free.desc() if spreads else _free).limit(size)
    return FixedStatement(query, {}).text


@lru_cache(STATEMENT_CACHE_SIZE)
def _tested_for_free(own: OwnInventories, free: int, size: int) -> FixedStatement:
    """Return the statement for those of the next roots by uuid that have an inventory with so much free.

    It tests a limited number of roots, one by one until it has enough: the offset keeps PostgreSQL from
    reading all such inventories.
    """
    has_inventory = _with_free(own, free).offset(0).exists()
    roots = in_order_of_uuids(TESTS_PER_ROOT * size)
    tested = roots.add_columns(has_inventory.label("has_inventory")).subquery("tested").c
    return by_uuid_statement(
        select(tested.id, tested.uuid).where(tested.has_inventory).order_by(tested.uuid).limit(size)
    )


@lru_cache(STATEMENT_CACHE_SIZE)
def _by_uuid_of_free(own: OwnInventories, free: int, size: int) -> FixedStatement:
    """Return the statement for the next roots by uuid that have an inventory with so much free.

    PostgreSQL tests the next roots by uuid, or sorts the roots with such inventories: its statistics say how
    many there are, as the amount is a part of the text.
    """
    has_inventory = _with_free(own, free).exists()
    return by_uuid_statement(in_order_of_uuids(size, has_inventory))


def _with_free(own: OwnInventories, free: int) -> Select[tuple[int]]:
    """Return the query for the inventories of a root with so much free."""
    return select(_inventory.root_id).where(_inventory.root_id == root.id, *own.conditions, _free == free)
