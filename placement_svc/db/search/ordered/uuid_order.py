"""Statements for the next roots in the order of their uuids."""

import math
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Select, String, bindparam, select

from placement_svc.db.prepared import FixedStatement, fetch_rows
from placement_svc.db.serial_plans import SERIAL_PLANS
from placement_svc.db.tables import resource_providers

STATEMENT_CACHE_SIZE = 64
"""Statements of one kind whose texts are cached: schedulers repeat the requests for the same flavors."""

MAX_CACHED_IDS = 1000
"""The most ids of sharing providers, or of their aggregates, in a text that is cached."""

INDEX_PLANS = f"{SERIAL_PLANS}; SET LOCAL random_page_cost = 1.1"
"""The SQL before a statement for the next roots by uuid: it prefers indexes until the end of the transaction.

With two parallel workers, which had to start and tested more roots than needed, PostgreSQL found 31 of
250,000 hosts in 22 ms instead of 6. With the cost of a random page on a disk, it read all roots of 10,000 to
find the 329 with an amount, in 1.9 ms instead of 0.5. These pages are usually in memory.
"""

BEHIND_UUIDS = "~"
"""A text behind all uuids."""

Position = tuple[float, str]
"""The place of a root in an order: the key of its tree, and its uuid or a random text."""

BEFORE_ALL: Position = (-(2**62), "")
AFTER_ALL: Position = (math.inf, "")
"""Positions before and behind all roots; the database takes the first one as a parameter."""

root_row = resource_providers.alias("root")
root = root_row.c


def in_order_of_uuids(size: int, *conditions: ColumnElement[bool]) -> Select[tuple[int, str]]:
    """Return the query for the next `size` roots that meet these conditions."""
    return (
        select(root.id, root.uuid)
        .where(root.parent_id.is_(None), root.uuid > bindparam("after_uuid", type_=String), *conditions)
        .order_by(root.uuid)
        .limit(size)
    )


def by_uuid_statement(query: Select[tuple[int, str]]) -> FixedStatement:
    """Return the statement of a query with the parameter `after_uuid`."""
    return FixedStatement(query, {"after_uuid": "text"}, prepares_at_first_use=False, preceding=INDEX_PLANS)


class UuidCursor:
    """Where the search for roots by uuid continues.

    `uuid` is that of the last root that was read; it is empty before the first one.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.restart()

    def restart(self) -> None:
        """Continue before the first root."""
        self.uuid = ""
        self.exhausted = False

    def next(self, statement: FixedStatement, size: int) -> Sequence[int]:
        """Return the next roots of a `by_uuid_statement` for so many roots."""
        rows = fetch_rows(self._connection, statement, {"after_uuid": self.uuid})
        self.exhausted = len(rows) < size
        self.uuid = rows[-1][1] if rows else self.uuid
        return [id_ for id_, _ in rows]

    def position(self, key: float) -> Position:
        """Return the position that no root with this key precedes that is left."""
        return key, BEHIND_UUIDS if self.exhausted else self.uuid
