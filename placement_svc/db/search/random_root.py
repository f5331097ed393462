"""The root at which a search in the order of uuids starts, so that searches at the same time differ."""

import random
from dataclasses import dataclass, field
from time import monotonic

from sqlalchemy import (
    Connection,
    Double,
    Integer,
    ScalarSelect,
    bindparam,
    cast,
    column,
    func,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

from placement_svc.db.prepared import FixedStatement, fetch_rows
from placement_svc.db.tables import resource_providers

FIRST_UUID = ""
"""A text before all uuids."""

DRAWS = 32
"""How many roots one statement draws: the next searches of the session need none."""

DRAWN_SECONDS = 1.0
"""Seconds for which a session uses the roots that it has drawn: there may be others later."""

_DRAWN = "placement_svc.drawn_roots"
"""The key of the `_DrawnRoots` of a session in the `info` of a connection."""

_root = resource_providers.alias("root").c
_is_root = _root.parent_id.is_(None)


@dataclass
class _DrawnRoots:
    """The uuids of the roots that were drawn and not used yet, and when they were drawn (monotonic clock)."""

    uuids: list[str] = field(default_factory=list)
    since: float = 0.0


def random_root_uuid(connection: Connection) -> str:
    """Return the uuid of a random root; `FIRST_UUID` if there is no root.

    It is the first one whose id is not below a random number. So all roots have about the same chance if
    their trees have about as many providers. A random uuid would prefer the roots behind large gaps: all
    searches would start at the same root of a cloud whose uuids begin with the same digits.
    """
    drawn: _DrawnRoots = connection.info.setdefault(_DRAWN, _DrawnRoots())
    if not drawn.uuids or monotonic() - drawn.since > DRAWN_SECONDS:
        fractions = [random.random() for _ in range(DRAWS)]
        drawn.uuids = [uuid for (uuid,) in fetch_rows(connection, _FIRST_ROOTS, {"fractions": fractions})]
        drawn.since = monotonic()
    return drawn.uuids.pop() if drawn.uuids else FIRST_UUID


def least_and_greatest_id() -> tuple[ScalarSelect[int], ScalarSelect[int]]:
    """Return queries for the least and the greatest id of a root, each of which reads one index entry."""
    least, greatest = (select(each(_root.id)).where(_is_root) for each in (func.min, func.max))
    return least.scalar_subquery(), greatest.scalar_subquery()


def _select_first_roots() -> FixedStatement:
    """Return the statement for the first root from each number on; it reads an index entry for each."""
    first, last = least_and_greatest_id()
    drawn = (
        func.unnest(bindparam("fractions", type_=ARRAY(Double)))
        .table_valued(column("fraction", Double))
        .render_derived("drawn")
    )
    ids = select(first.label("first"), last.label("last")).subquery("ids")
    number = ids.c.first + cast(func.floor(drawn.c.fraction * (ids.c.last - ids.c.first + 1)), Integer)
    from_number = (
        select(_root.uuid)
        .where(_is_root, _root.id >= number)
        .order_by(_root.id)
        .limit(1)
        .lateral("from_number")
    )
    query = select(from_number.c.uuid).select_from(ids.join(drawn, true()).join(from_number, true()))
    return FixedStatement(query, {"fractions": "double precision[]"})


_FIRST_ROOTS = _select_first_roots()
