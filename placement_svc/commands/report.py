"""The result of a query command: as tables for people, as JSON or as CSV for programs.

Names come from clients of the service, so control characters in them are escaped in every format.
"""

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

import click
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from placement_svc.commands.listing import Cell, Listing, shown
from placement_svc.domain.printable import printable

PIPE_WIDTH = 10_000
"""Columns of a table that is not printed on a terminal, so that a program gets each row as one line."""

BAR_LENGTH = 20

BAR_CHARACTERS = ("█", "░")
ASCII_BAR_CHARACTERS = ("#", ".")
"""The characters of the filled and of the empty part of a bar."""


class Format(StrEnum):
    """The formats of a report for programs."""

    JSON = "json"
    CSV = "csv"


Part = Listing | Text | Tree
"""A table, a sentence or a tree."""


class _Console(Console):
    """A console that leaves a closed pipe to its caller; rich's ends the program with status 1."""

    def on_broken_pipe(self) -> None:
        raise


@dataclass(frozen=True)
class Report:
    """The output of a query command, and whether its exit status is 0.

    `document` is printed as JSON, `listing` as CSV, and `parts` for people: sentences, tables and trees.
    """

    document: Any
    listing: Listing
    parts: Sequence[Part]
    is_success: bool = True

    def write(self, output: Format | None) -> None:
        """Print the report; `output` None is the form for people."""
        if sys.stdout is None:
            # The caller has closed it and needs the exit status only.
            return
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Names may have characters that the encoding of the terminal lacks.
            sys.stdout.reconfigure(errors="backslashreplace")
        if output is Format.JSON:
            # Characters beyond ASCII are escaped, so no control character of any kind remains.
            click.echo(json.dumps(self.document, indent=2))
        elif output is Format.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(_column_name(heading) for heading in self.listing.headings)
            writer.writerows([_raw(cell) for cell in row] for row in self.listing.rows)
        else:
            self._print()
        sys.stdout.flush()

    def _print(self) -> None:
        terminal_width = Console().width if sys.stdout.isatty() else PIPE_WIDTH
        # The terminal wraps lines that are longer, such as sentences. Without a height, rich would ignore the
        # width on a dumb terminal, and cut lines.
        console = _Console(width=PIPE_WIDTH, height=1, markup=False, highlight=False, emoji=False)
        for part in self.parts:
            console.print(part.table(terminal_width) if isinstance(part, Listing) else part, soft_wrap=True)


def sentence(text: str) -> Text:
    """Return a line of text without control characters."""
    return Text(printable(text))


def tree(label: str, lines: Iterable[str] = ()) -> Tree:
    """Return the node of a tree with a label and further lines below it."""
    text = Text(printable(label), style="bold")
    for line in lines:
        text.append(f"\n{printable(line)}", style="not bold")
    return Tree(text)


def bar(used: int, capacity: int, length: int = BAR_LENGTH) -> str:
    """Return a bar whose filled part is the used part of a capacity."""
    filled = length if used >= capacity > 0 else length * used // max(capacity, 1)
    full, empty = BAR_CHARACTERS if _can_print(*BAR_CHARACTERS) else ASCII_BAR_CHARACTERS
    return full * min(filled, length) + empty * (length - filled)


def _can_print(*characters: str) -> bool:
    """Return whether the encoding of standard output has these characters."""
    try:
        "".join(characters).encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def percent(used: int, capacity: int) -> str:
    """Return which part of a capacity is used, rounded down; "-" if there is no capacity."""
    if capacity <= 0:
        return "-"
    # Something used is not nothing.
    return "<1%" if 0 < 100 * used < capacity else f"{100 * used // capacity}%"


def amounts(by_class: Mapping[str, int]) -> str:
    """Return amounts as a request has them: ``VCPU:2, MEMORY_MB:512``."""
    return ", ".join(f"{name}:{amount}" for name, amount in by_class.items())


def usual_uuid(text: str) -> str | None:
    """Return the usual form of a uuid in any form that the API accepts, None for other texts."""
    try:
        return str(UUID(text))
    except ValueError:
        return None


def _raw(cell: Cell) -> str | int:
    if cell is None:
        return ""
    return cell if isinstance(cell, int) else shown(cell)


def _column_name(heading: str) -> str:
    return heading.lower().replace(" ", "_")
