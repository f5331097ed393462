"""Rows as a table that fits a terminal without cutting uuids."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from placement_svc.domain.printable import printable

FOLDED_WIDTH = 8
"""The least width of a column whose texts are folded."""

Cell = str | int | tuple[str, ...] | None
"""A text, a number, several lines, or nothing."""

_UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_ID = re.compile(f"(?:req-)?{_UUID}")
"""A uuid or a request id, which is never folded."""

_BREAK = re.compile(f"(?<=[,&= ])|(?=req-{_UUID})|(?<!req-)(?={_UUID})|(?<={_UUID})")
"""The places where a text is folded if possible."""


@dataclass(frozen=True)
class Listing:
    """Rows with a heading for each column."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def table(self, terminal_width: int) -> Table:
        """Return a table that folds texts to fit a terminal; it is wider if its numbers and ids need that."""
        columns = [
            _Column(heading, [row[number] for row in self.rows])
            for number, heading in enumerate(self.headings)
        ]
        borders = 3 * len(columns) + 1
        widths = _widths(columns, terminal_width - borders)
        has_lines = any(isinstance(cell, tuple) for row in self.rows for cell in row)
        table = Table(box=box.SQUARE, show_lines=has_lines)
        for column, width in zip(columns, widths, strict=True):
            justify: JustifyMethod = "right" if column.is_number else "left"
            table.add_column(Text(_fold(column.heading, width)), justify=justify, width=width, no_wrap=True)
        for row in self.rows:
            table.add_row(*(Text(_fold(shown(cell), width)) for cell, width in zip(row, widths, strict=True)))
        return table


@dataclass(frozen=True)
class _Column:
    """A column of a listing, with its widths in cells of a terminal."""

    heading: str
    cells: Sequence[Cell]

    @property
    def is_number(self) -> bool:
        return all(isinstance(cell, int) or cell is None for cell in self.cells)

    @property
    def width(self) -> int:
        """The width without folding."""
        lines = (line for cell in self.cells for line in shown(cell).split("\n"))
        return max(map(cell_len, (self.heading, *lines)))

    @property
    def least_width(self) -> int:
        """The width with folding."""
        if self.is_number:
            return self.width
        ids = (len(found) for cell in self.cells for found in _ID.findall(shown(cell)))
        return max(min(self.width, FOLDED_WIDTH), *ids, 0)


def _widths(columns: Sequence[_Column], available: int) -> list[int]:
    """Return the widths of columns that have so many cells together, or more if they need more."""
    wanted = [column.width for column in columns]
    if sum(wanted) <= available:
        return wanted
    widths = [column.least_width for column in columns]
    for _ in range(available - sum(widths)):
        # The narrowest of the folded columns gets the next cell.
        folded = [number for number, width in enumerate(widths) if width < wanted[number]]
        widths[min(folded, key=lambda number: widths[number])] += 1
    return widths


def _fold(text: str, width: int) -> str:
    """Return a text with line breaks, none of them in an id."""
    return "\n".join(line for long_line in text.split("\n") for line in _folded_lines(long_line, width))


def _folded_lines(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a text without line breaks; words that are too long are cut."""
    line = ""
    for word in _BREAK.split(text):
        if line and cell_len(line + word.rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += word
        if cell_len(line.rstrip()) > width:
            *pieces, line = chop_cells(line, width)
            yield from pieces
    yield line.rstrip()


def shown(cell: Cell) -> str:
    """Return the text of a cell without control characters, except for line breaks between its lines."""
    if cell is None:
        return "-"
    if isinstance(cell, int):
        return f"{cell:,}"
    return "\n".join(map(printable, cell if isinstance(cell, tuple) else (cell,)))
