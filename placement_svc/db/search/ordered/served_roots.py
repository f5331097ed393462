"""The roots that sharing providers serve with a class, in the order of the best key of these providers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

import orjson
from sqlalchemy import (
    BigInteger,
    Connection,
    FromClause,
    Integer,
    String,
    bindparam,
    cast,
    column,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

from placement_svc.db.filters import ids_text, is_any
from placement_svc.db.prepared import FixedStatement, fetch_rows
from placement_svc.db.search.ordered.uuid_order import (
    AFTER_ALL,
    MAX_CACHED_IDS,
    STATEMENT_CACHE_SIZE,
    Position,
    UuidCursor,
    by_uuid_statement,
    in_order_of_uuids,
    root,
    root_row,
)
from placement_svc.db.search.sharing import SharedSupply
from placement_svc.db.search.tree_conditions import tree_aggregates

MAX_KEYS = 100
"""The most keys whose roots are read at once."""


@dataclass(frozen=True)
class ServedKey:
    """A key, and the aggregates through which no sharing provider serves a tree with a better one."""

    key: int
    aggregate_ids: tuple[int, ...]


def served_keys(
    supplies: Iterable[SharedSupply], free: Mapping[int, int], *, spreads: bool
) -> Sequence[ServedKey]:
    """Return the keys of these sharing providers in their order, each aggregate at its best key.

    `free` is what each provider has free of the class of `order_by`; the key is its negative with `spreads`.
    """
    best: dict[int, int] = {}
    for supply in supplies:
        key = -free[supply.provider_id] if spreads else free[supply.provider_id]
        for aggregate_id in supply.aggregate_ids:
            best[aggregate_id] = min(key, best.get(aggregate_id, key))
    by_key = sorted((key, aggregate_id) for aggregate_id, key in best.items())
    return [
        ServedKey(key, tuple(map(itemgetter(1), of_key))) for key, of_key in groupby(by_key, itemgetter(0))
    ]


class ServedRoots:
    """The roots that are served, by key, and those of the same key by uuid.

    A root may come again at a worse key. No root that is left precedes `next_position`. `root_count` is the
    number of roots of the cloud.
    """

    def __init__(self, connection: Connection, keys: Sequence[ServedKey], root_count: int) -> None:
        self._connection = connection
        self._keys = keys
        self._root_count = root_count
        self._by_uuid = UuidCursor(connection)
        self.restart()

    @cached_property
    def keys_as_json(self) -> str:
        """A JSON object with the key of each aggregate by its id."""
        by_aggregate = {str(id_): each.key for each in self._keys for id_ in each.aggregate_ids}
        return orjson.dumps(by_aggregate).decode()

    def restart(self) -> None:
        """Return all roots again, the first ones first."""
        self._begin_key(0)

    def _begin_key(self, number: int) -> None:
        """Continue with the first root of a key."""
        self._number = number
        self._by_uuid.restart()
        self._tests_roots = False
        """Whether the next roots by uuid are tested for being served at the current key."""
        self.exhausted = number == len(self._keys)
        self.next_position: Position = AFTER_ALL if self.exhausted else (self._keys[number].key, "")

    def next(self, size: int) -> Sequence[int]:
        """Return about `size` roots that come next, with two statements at most."""
        if self._tests_roots:
            return self._next_tested(size)
        keys = self._keys[self._number : self._number + MAX_KEYS]
        most_listed = self._most_listed(size)
        counts = self._count_members(keys, most_listed + 1)
        if counts[0] > most_listed:
            self._tests_roots = True
            return self._next_tested(size)
        sufficient = sum(total < size for total in accumulate(counts)) + 1
        return self._next_listed(keys[:sufficient], size)

    def _most_listed(self, size: int) -> int:
        """Return how many members of a key may be read to find so many of its roots.

        If n of r roots are served, `size * r / n` of them must be tested. To test a root takes twice as
        long as to read a member.
        """
        return math.isqrt(2 * size * self._root_count)

    def _next_tested(self, size: int) -> Sequence[int]:
        """Return the next roots of the current key; those of all keys are tested one by one."""
        current = self._keys[self._number]
        build = _cached_tested if len(current.aggregate_ids) <= MAX_CACHED_IDS else _tested
        root_ids = self._by_uuid.next(build(current.aggregate_ids, size), size)
        if self._by_uuid.exhausted:
            self._begin_key(self._number + 1)
        else:
            self.next_position = self._by_uuid.position(current.key)
        return root_ids

    def _next_listed(self, keys: Sequence[ServedKey], size: int) -> Sequence[int]:
        """Return the next roots of these keys; all their members are read."""
        values = _values(keys) | {"after_uuid": self._by_uuid.uuid, "size": size}
        rows = fetch_rows(self._connection, _LISTED, values)
        if len(rows) < size:
            self._begin_key(self._number + len(keys))
        else:
            number, self._by_uuid.uuid, _ = rows[-1]
            self._number += number
            self.next_position = self._by_uuid.position(keys[number].key)
        return [id_ for _, _, id_ in rows]

    def _count_members(self, keys: Sequence[ServedKey], most: int) -> Sequence[int]:
        """Return how many members the aggregates of each key have; counting ends at `most` in all."""
        rows = fetch_rows(self._connection, _MEMBER_COUNTS, _values(keys) | {"most": most})
        counts: dict[int, int] = dict(rows)
        return [counts.get(number, 0) for number in range(len(keys))]


def _values(keys: Sequence[ServedKey]) -> dict[str, Any]:
    """Return the parameters of `_served`."""
    numbers = [number for number, each in enumerate(keys) for _ in each.aggregate_ids]
    return {
        "aggregate_ids": ids_text(id_ for each in keys for id_ in each.aggregate_ids),
        "numbers": ids_text(numbers),
    }


_TYPES = {"aggregate_ids": "text", "numbers": "text"}


def _served() -> FromClause:
    """Return the aggregates of some keys, with the number of the key of each, in their order."""
    arrays = (cast(bindparam(name, type_=String), ARRAY(Integer)) for name in _TYPES)
    columns = column("aggregate_id", Integer), column("number", Integer)
    return func.unnest(*arrays).table_valued(*columns).render_derived("served")


def _count_statement() -> FixedStatement:
    """Return the statement for the number of members of each key; it reads `most` index entries at most."""
    served = _served()
    most = bindparam("most", type_=BigInteger)
    of_aggregate = (
        select(tree_aggregates.c.root_id)
        .where(tree_aggregates.c.aggregate_id == served.c.aggregate_id)
        .limit(most)
        .lateral()
    )
    counted = select(served.c.number).join(of_aggregate, true()).limit(most).subquery()
    query = select(counted.c.number, func.count()).group_by(counted.c.number)
    return FixedStatement(query, _TYPES | {"most": "bigint"})


def _list_statement() -> FixedStatement:
    """Return the statement for the next roots of some keys: the number of the key, the uuid and the id.

    `after_uuid` is that of the last root of the first key that has been returned.
    """
    served = _served()
    # The OFFSETs keep PostgreSQL from reading the members of all aggregates, or all roots.
    of_aggregate = (
        select(tree_aggregates.c.root_id)
        .where(tree_aggregates.c.aggregate_id == served.c.aggregate_id)
        .offset(0)
        .lateral()
    )
    distinct = (
        select(served.c.number, of_aggregate.c.root_id).join(of_aggregate, true()).distinct().subquery()
    )
    uuid = select(root.uuid).where(root.id == distinct.c.root_id).scalar_subquery().label("uuid")
    listed = select(distinct.c.number, uuid, distinct.c.root_id).offset(0).subquery().c
    query = (
        select(listed.number, listed.uuid, listed.root_id)
        .where(or_(listed.number > 0, listed.uuid > bindparam("after_uuid", type_=String)))
        .order_by(listed.number, listed.uuid)
        .limit(bindparam("size", type_=BigInteger))
    )
    return FixedStatement(query, _TYPES | {"after_uuid": "text", "size": "bigint"})


_MEMBER_COUNTS = _count_statement()
_LISTED = _list_statement()


def _tested(aggregate_ids: tuple[int, ...], size: int) -> FixedStatement:
    """Return the statement for the next roots by uuid that one of these aggregates serves.

    The OFFSET makes PostgreSQL read the few aggregates of each root, instead of looking up thousands.
    """
    of_tree = (
        select(tree_aggregates.c.aggregate_id)
        .where(tree_aggregates.c.root_id == root.id)
        .correlate(root_row)
        .offset(0)
        .subquery("of_tree")
    )
    is_served = select(of_tree.c.aggregate_id).where(is_any(of_tree.c.aggregate_id, aggregate_ids)).exists()
    return by_uuid_statement(in_order_of_uuids(size, is_served))


_cached_tested = lru_cache(STATEMENT_CACHE_SIZE)(_tested)
