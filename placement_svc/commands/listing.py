"""Rows as a table that fits a terminal without cutting words, or else with one field per line."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from placement_svc.domain.printable import printable

Cell = str | int | tuple[str, ...] | None
"""A text, a number, several lines, or nothing."""

_UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_ID = re.compile(f"(?:req-)?{_UUID}")
"""A uuid or a request id, which is never folded."""

_IN_NUMBER = r"(?<=\d[,.:])(?=\d)"
"""The place after a character in a number, such as 57,344 or 1.5, or in a time."""

_BREAK = re.compile(f"(?<=[,&= ])(?!{_IN_NUMBER})|(?=req-{_UUID})|(?<!req-)(?={_UUID})|(?<={_UUID})")
"""The places where a text is folded if possible."""

_NAME_BREAK = re.compile(f"(?<=[-_.:/])(?!{_IN_NUMBER})")
"""The places where what is between two of them is folded if it is too long."""


@dataclass(frozen=True)
class Listing:
    """Rows with a heading for each column."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def table(self, terminal_width: int) -> Table | Text:
        """Return a table that folds texts to fit a terminal; if it cannot, each row has a line per field."""
        columns = [
            _Column(heading, [row[number] for row in self.rows])
            for number, heading in enumerate(self.headings)
        ]
        borders = 3 * len(columns) + 1
        available = terminal_width - borders
        if self.rows and sum(column.least_width for column in columns) > available:
            return self._expanded(terminal_width)
        widths = _widths(columns, available)
        has_lines = any(isinstance(cell, tuple) for row in self.rows for cell in row)
        table = Table(box=box.SQUARE, show_lines=has_lines)
        for column, width in zip(columns, widths, strict=True):
            justify: JustifyMethod = "right" if column.is_number else "left"
            table.add_column(Text(_fold(column.heading, width)), justify=justify, width=width, no_wrap=True)
        for row in self.rows:
            table.add_row(*(Text(_fold(shown(cell), width)) for cell, width in zip(row, widths, strict=True)))
        return table

    def _expanded(self, terminal_width: int) -> Text:
        """Return a line for each field, with its heading, and a blank line between rows."""
        margin = max(map(len, self.headings)) + 2
        text = Text()
        for number, row in enumerate(self.rows):
            text.append("\n\n" if number else "")
            for position, (heading, cell) in enumerate(zip(self.headings, row, strict=True)):
                lines = _fold(shown(cell), terminal_width - margin).split("\n")
                text.append("\n" if position else "")
                text.append(heading.ljust(margin), style="bold")
                text.append(f"\n{' ' * margin}".join(lines))
        return text


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
        texts = (self.heading, *map(shown, self.cells))
        words = (word for text in texts for line in text.split("\n") for word in _words(line, 0))
        return max((cell_len(word.rstrip()) for word in words), default=0)


def _widths(columns: Sequence[_Column], available: int) -> list[int]:
    """Return the widths of columns that have so many cells together."""
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
    """Return a text with line breaks, none of them in a word."""
    return "\n".join(line for long_line in text.split("\n") for line in _folded_lines(long_line, width))


def _folded_lines(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a text without line breaks; a word that is too long is a line."""
    line = ""
    for word in _words(text, width):
        if line and cell_len(line + word.rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += word
    yield line.rstrip()


def _words(text: str, width: int) -> Iterator[str]:
    """Yield the words of a text; one that is wider than `width` and is not an id is split into its parts."""
    for word in filter(None, _BREAK.split(text)):
        if cell_len(word.rstrip()) <= width or _ID.fullmatch(word):
            yield word
        else:
            yield from _NAME_BREAK.split(word)


def shown(cell: Cell) -> str:
    """Return the text of a cell without control characters, except for line breaks between its lines."""
    if cell is None:
        return "-"
    if isinstance(cell, int):
        return f"{cell:,}"
    return "\n".join(map(printable, cell if isinstance(cell, tuple) else (cell,)))
