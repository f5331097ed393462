"""Anchors: root providers around which every demand has a supplier (`docs/spec/candidates.md 3.1`)."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection

from placement_svc.db.filters import ids_text
from placement_svc.db.prepared import each_fixed_row, each_row
from placement_svc.db.search.anchor_statement import IDS_COLUMN, AnchorStatement, anchor_statement
from placement_svc.db.search.criteria import SearchCriteria
from placement_svc.db.search.demand_rows import parse_id_lists
from placement_svc.db.search.root_selection import RootSelection, Strategy
from placement_svc.db.search.serving import SUPPLIER_ID_SIZE, SharingSuppliers
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget

ANCHOR_SIZE = 200
"""Bytes of memory that an anchor needs besides the ids of its own suppliers, approximately."""


class Anchor(NamedTuple):
    """A root provider, and for each demand the ascending ids of the providers that can supply it."""

    id: int
    supplier_ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ScanCursor:
    """The position of a search in the sequence of all root providers.

    The roots are in the order of their ids. With `start`, they are in the order of their uuids: from `start`
    on, and behind the last uuid from the first. `after` is the position (a column of the statements) of the
    last root that was examined (None: no root was). `exhausted` means that no roots are left.
    `roots_scanned` counts the roots that the strategy `root_scan` has examined up to this position.
    """

    start: str | None = None
    after: int | str | None = None
    exhausted: bool = False
    roots_scanned: int = 0


def find_anchors(
    connection: Connection,
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    cursor: ScanCursor,
    *,
    max_anchors: int | None,
    roots_to_scan: int | None = None,
    uses_amounts: bool = False,
    checks_rules: bool = False,
    deadline: Deadline,
    memory: MemoryBudget,
) -> tuple[list[Anchor], ScanCursor]:
    """Return the next anchors behind `cursor`, at most `max_anchors`, and the cursor behind them.

    An anchor meets all conditions on single suppliers. The conditions on several suppliers (summed amounts,
    `group_policy`, `same_subtree`, traits of the unsuffixed group) are always checked by
    `placement_svc.domain.combining.constraints`. The SQL for `same_subtree` in `selective_lookup`, and that
    for the traits of the unsuffixed group, are extra filters: they only exclude roots that cannot yield a
    candidate.

    One statement. It scans at most `roots_to_scan` roots in order (`root_scan`); if that is None, it
    searches all roots that are left (`selective_lookup`). With `uses_amounts`, it first intersects the roots
    whose trees have each amount free, if the server merges sets. With `checks_rules`, a lookup leaves out
    some anchors that cannot yield a candidate because of other combination rules (`combination_conditions`).
    """
    scans = roots_to_scan is not None
    selection = RootSelection(
        strategy=Strategy.SCAN if scans else Strategy.LOOKUP,
        randomized=cursor.start is not None,
        continues=cursor.after is not None,
        merges_sets=merges_sets(connection),
        uses_amounts=uses_amounts and merges_sets(connection),
        checks_rules=checks_rules and not scans,
    )
    statement = anchor_statement(criteria, shared_supplies, selection)
    max_examined = roots_to_scan if scans else max_anchors
    values = {
        "start": cursor.start,
        "after": cursor.after,
        "max_anchors": max_anchors,
        "max_examined": max_examined,
    }
    anchors: list[Anchor] = []
    reader = _RowReader(statement, deadline, memory)
    for row in _rows(connection, statement, values):
        anchors += reader.anchors(row)
    # The last row has the largest of these numbers; there is always a row.
    examined_count, last_examined, last_anchor, examined_to_anchor = row[:IDS_COLUMN]
    is_full = len(anchors) == max_anchors
    if is_full:
        examined_count, last_examined = examined_to_anchor, last_anchor
    exhausted = not is_full and examined_count != max_examined
    return anchors, ScanCursor(
        cursor.start,
        after=cursor.after if exhausted else last_examined,
        exhausted=exhausted,
        roots_scanned=cursor.roots_scanned + (examined_count if scans else 0),
    )


def find_anchors_among(
    connection: Connection,
    criteria: SearchCriteria,
    shared_supplies: SharedSupplies,
    root_ids: Collection[int],
    *,
    deadline: Deadline,
    memory: MemoryBudget,
) -> list[Anchor]:
    """Return those of the roots that are anchors, in any order; one statement."""
    statement = anchor_statement(criteria, shared_supplies, RootSelection(strategy=Strategy.GIVEN))
    fixed = statement.with_parameters({"root_ids": "text"}, {"max_anchors": None, "max_examined": None})
    rows = each_fixed_row(connection, fixed, {"root_ids": ids_text(root_ids)})
    reader = _RowReader(statement, deadline, memory)
    return [anchor for row in rows for anchor in reader.anchors(row)]


def merges_sets(connection: Connection) -> bool:
    """Return whether PostgreSQL reads ordered sets side by side for INTERSECT and EXCEPT: from 18 on."""
    version = connection.dialect.server_version_info
    return version is not None and version >= (18,)


def _rows(connection: Connection, statement: AnchorStatement, values: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the rows of a statement.

    A session prepares its text with its values, on which the plan depends; only the cursor's are parameters.
    """
    types = {} if values["start"] is None else {"start": "text"}
    if values["after"] is not None:
        types["after"] = "text" if types else "integer"
    if types:
        fixed = statement.with_parameters(types, values)
        return each_fixed_row(connection, fixed, {name: values[name] for name in types})
    return each_row(connection, statement.with_values(values))


class _RowReader:
    """Reads the anchors in the rows of a statement; demands with the same criteria share one tuple."""

    def __init__(self, statement: AnchorStatement, deadline: Deadline, memory: MemoryBudget) -> None:
        self._statement = statement
        self._deadline = deadline
        self._memory = memory
        self._sharing = SharingSuppliers(statement.serving_sets, memory)

    def anchors(self, row: Sequence[Any]) -> Iterable[Anchor]:
        """Return the anchors in a row."""
        self._deadline.check()
        ids_of_row, *texts = row[IDS_COLUMN:]
        if ids_of_row is None:
            return ()
        ids = [id_ for (id_,) in _parse_lists(ids_of_row)]
        indexes = self._statement.id_list_of_demand
        id_count = len(ids) * len(texts) + sum(text.count(",") + text.count(";") for text in texts)
        self._memory.reserve(len(ids) * (ANCHOR_SIZE + 8 * len(indexes)) + SUPPLIER_ID_SIZE * id_count)
        columns = self._columns(texts)
        return map(Anchor, ids, zip(*[columns[index] for index in indexes], strict=True))

    def _columns(self, texts: Sequence[str]) -> Sequence[Sequence[tuple[int, ...]]]:
        """Return for each distinct supplier criteria the list of the suppliers of each anchor in a row."""
        id_lists = texts[:-1] if self._statement.serving_sets else texts
        columns: Sequence[Sequence[tuple[int, ...]]]
        if self._statement.has_text:
            columns = list(zip(*map(parse_id_lists, id_lists[0].split(" ")), strict=True))
        else:
            # Most hosts are the only suppliers around themselves, so the texts are often equal.
            by_text = {text: _parse_lists(text) for text in set(id_lists)}
            columns = [by_text[text] for text in id_lists]
        if self._statement.serving_sets:
            sets = map(self._sharing.lists, _parse_lists(texts[-1]))
            return list(zip(*map(self._with_sharing, zip(*columns, strict=True), sets), strict=True))
        return columns

    def _with_sharing(
        self, own_lists: Iterable[tuple[int, ...]], shared_lists: Mapping[int, tuple[int, ...]]
    ) -> Sequence[tuple[int, ...]]:
        lists = list(own_lists)
        self._memory.reserve(SUPPLIER_ID_SIZE * _add_sharing_ids(lists, shared_lists))
        return lists


def _parse_lists(text: str) -> list[tuple[int, ...]]:
    """Return the lists in a text such as `7 9,10`, each in ascending order."""
    lists = orjson.loads(f"[[{text.replace(' ', '],[')}]]")
    return [tuple(ids) if len(ids) == 1 else tuple(sorted(ids)) for ids in lists]


def _add_sharing_ids(lists: list[tuple[int, ...]], shared_lists: Mapping[int, tuple[int, ...]]) -> int:
    """Add the ids in `shared_lists` to the lists at these indexes; return how many of them were copied."""
    copied_count = 0
    for index, shared_ids in shared_lists.items():
        # Most trees have none of their own; a sharing provider may be in a tree that it serves.
        own_ids = set(lists[index]).difference(shared_ids) if lists[index] else ()
        if own_ids:
            lists[index] = tuple(sorted((*shared_ids, *own_ids)))
            copied_count += len(shared_ids)
        else:
            lists[index] = shared_ids
    return copied_count
