"""The roots of the cloud in the order of the best key that their trees can have, in batches.

A batch costs as much as its roots: an index has them in this order, whatever the size of the cloud.
"""

import random
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Select, any_, func, select

from placement_svc.db.engine import driver_rows
from placement_svc.db.filters import int_array
from placement_svc.db.tables import inventories, resource_providers
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.ordering import Ordering

DRAWS_PER_ROOT = 8
"""How many ids are drawn for each root that is wanted: most ids are those of other providers, or unused."""

BEHIND_UUIDS = "~"
"""A text behind all uuids."""

_root = resource_providers.alias("root").c
_inventory = inventories.alias("inventory").c
_free = _inventory.capacity - _inventory.used


class OrderedRoots:
    """The roots in order: by what is free of a class, at random, or by uuid.

    No root that is left precedes `next_position`, which is a key and a uuid. Roots of the same key are in the
    order of their uuids. A root may come twice.
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
        self._after_key: int | None = None
        """The roots with this key and better ones have been returned."""
        self._tied_key: int | None = None
        """The key whose roots are being returned by uuid, as there are more than a batch of them."""
        self._after_uuid = ""
        self.drawn: dict[int, str] = {}
        """For a random order, the roots drawn so far, and texts that sort as they were drawn."""
        self.exhausted = False
        self.next_position: tuple[float, str] = (0, "")

    def next(self, size: int) -> Sequence[int]:
        """Return about `size` further roots, with one or two statements."""
        self._deadline.check()
        if self._ordering.is_random:
            return self._draw(size)
        if self._class_id is None:
            return self._next_by_uuid(size)
        if self._tied_key is not None:
            return self._next_tied(size)
        return self._next_by_key(size)

    def _draw(self, size: int) -> Sequence[int]:
        """Return roots drawn at random: each root of the cloud has the same chance.

        Ids are drawn, and those dropped that are not the id of a root.
        """
        is_root = _root.parent_id.is_(None)
        lowest, highest = (
            select(each(_root.id)).where(is_root).scalar_subquery() for each in (func.min, func.max)
        )
        [(first, last)] = driver_rows(self._connection, select(lowest, highest), {})
        ids = range(first or 0, (last or 0) + 1)
        count = min(len(ids), DRAWS_PER_ROOT * size)
        draws = random.sample(ids, count)
        query = select(_root.id).where(is_root, _root.id == any_(int_array(draws)))
        found = {id_ for (id_,) in driver_rows(self._connection, query, {})} - self.drawn.keys()
        for id_ in self._deadline.checked(draws):
            if id_ in found:
                self.drawn[id_] = f"0{len(self.drawn):012}"
        self.exhausted = count == len(ids)
        self.next_position = (0, f"0{len(self.drawn):012}")
        return list(found)

    def _next_by_uuid(self, size: int) -> Sequence[int]:
        """Return the next roots by uuid; the index on the uuids of roots has them in order."""
        return [id_ for id_, _ in self._after(select(_root.id, _root.uuid), size, key=0)]

    def _next_by_key(self, size: int) -> Sequence[int]:
        """Return the next roots by key, all of each key.

        `inventories_free_idx` has the inventories in this order, so the statement reads `size` entries.
        """
        key = self._sign * _free
        query = (
            select(_inventory.root_id, key)
            .where(
                _inventory.resource_class_id == self._class_id,
                _free >= self._least_amount,
                *self._is_behind_key(),
            )
            .order_by(_free.desc() if self._ordering.spreads else _free)
            .limit(size)
        )
        rows = driver_rows(self._connection, query, {})
        if len(rows) < size:
            self.exhausted = True
            return [id_ for id_, _ in rows]
        last = rows[-1][1]
        complete = [(id_, each) for id_, each in rows if each != last]
        if not complete:
            self._tied_key, self._after_uuid = last, ""
            return self._next_tied(size)
        self._after_key = complete[-1][1]
        self.next_position = (last, "")
        return [id_ for id_, _ in complete]

    def _is_behind_key(self) -> Sequence[ColumnElement[bool]]:
        if self._after_key is None:
            return ()
        after = self._sign * self._after_key
        return (_free < after if self._ordering.spreads else _free > after,)

    def _next_tied(self, size: int) -> Sequence[int]:
        """Return the next roots of one key by uuid.

        PostgreSQL tests the next roots by uuid, or sorts the roots of the key: its statistics say how many
        there are.
        """
        assert self._tied_key is not None
        has_key = (
            select(_inventory.root_id)
            .where(
                _inventory.root_id == _root.id,
                _inventory.resource_class_id == self._class_id,
                _free == self._sign * self._tied_key,
            )
            .exists()
        )
        rows = self._after(select(_root.id, _root.uuid).where(has_key), size, key=self._tied_key)
        if self.exhausted:
            self.exhausted = False
            self._after_key, self._tied_key = self._tied_key, None
        return [id_ for id_, _ in rows]

    def _after(self, query: Select[int, str], size: int, *, key: int) -> Sequence[tuple[int, str]]:
        """Return the next rows of a query for roots by uuid, and remember the last one."""
        query = query.where(_root.parent_id.is_(None), _root.uuid > self._after_uuid)
        rows = driver_rows(self._connection, query.order_by(_root.uuid).limit(size), {})
        self.exhausted = len(rows) < size
        self._after_uuid = rows[-1][1] if rows else self._after_uuid
        self.next_position = (key, BEHIND_UUIDS if self.exhausted else self._after_uuid)
        return rows
