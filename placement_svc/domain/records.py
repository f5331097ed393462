"""Records: the resource providers, consumers, placement groups and names that an export contains.

The record of a consumer is a `Claim` with all of its allocations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import Invalid
from placement_svc.domain.inventory import Inventory
from placement_svc.domain.placement_groups import PlacementGroup
from placement_svc.domain.printable import printable

MAX_PROBLEMS = 100
"""The largest number of problems that one import reports."""

MAX_LINE_NUMBERS = 10
"""The largest number of line numbers in the text of one problem."""


@dataclass(frozen=True)
class TraitRecord:
    """A custom trait, whether or not a provider has it."""

    name: str


@dataclass(frozen=True)
class ResourceClassRecord:
    """A custom resource class, whether or not a provider has an inventory of it."""

    name: str


@dataclass(frozen=True)
class ProviderRecord:
    """A resource provider with the uuids of its aggregates and its inventories by resource class."""

    uuid: str
    name: str
    parent_uuid: str | None
    traits: Sequence[str]
    aggregates: Sequence[str]
    inventories: Mapping[str, Inventory]


@dataclass(frozen=True)
class PlacementGroupRecord:
    """A placement group with the uuids of its members."""

    group: PlacementGroup
    members: Sequence[str]


Record = TraitRecord | ResourceClassRecord | ProviderRecord | Claim | PlacementGroupRecord

RECORD_TYPES: Mapping[type[Record], str] = {
    TraitRecord: "trait",
    ResourceClassRecord: "resource_class",
    ProviderRecord: "resource_provider",
    Claim: "consumer",
    PlacementGroupRecord: "placement_group",
}
"""The name of each record type in a file."""


@dataclass(frozen=True)
class RecordCounts:
    """The number of records of each type in a file, by the names in `RECORD_TYPES`: its last line."""

    by_type: Mapping[str, int]

    @classmethod
    def of(cls, numbers: Mapping[type[Record], int]) -> Self:
        """Return the counts for the number of records of each class."""
        return cls({name: numbers.get(record_class, 0) for record_class, name in RECORD_TYPES.items()})


@dataclass(frozen=True)
class ImportProblem:
    """An error or a warning about the records on some lines; lines are counted from 1.

    The message may quote a file. It is written to terminals, so its control characters are escaped.
    """

    line_numbers: tuple[int, ...]
    message: str

    def __post_init__(self) -> None:
        """Escape control characters in the message."""
        object.__setattr__(self, "message", printable(self.message))

    def __str__(self) -> str:
        noun = "line" if len(self.line_numbers) == 1 else "lines"
        listed = ", ".join(map(str, self.line_numbers[:MAX_LINE_NUMBERS]))
        omitted = len(self.line_numbers) - MAX_LINE_NUMBERS
        rest = f" and {omitted} more" if omitted > 0 else ""
        return f"{noun} {listed}{rest}: {self.message}"


class ImportRefused(Invalid):
    """The records cannot be imported; `problems` are the first `MAX_PROBLEMS`, sorted by line."""

    def __init__(self, problems: Sequence[ImportProblem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.line_numbers)[:MAX_PROBLEMS]
        lines = [str(problem) for problem in self.problems]
        if len(lines) == MAX_PROBLEMS:
            lines.append(f"Only the first {MAX_PROBLEMS} problems are listed: there may be more.")
        super().__init__("\n".join(lines))


@dataclass(frozen=True)
class ImportResult:
    """The number of objects that an import has added.

    Custom traits and resource classes that exist already are not counted. `overcommitted` has a problem for
    each imported allocation that a new claim would not get.
    """

    providers: int
    consumers: int
    placement_groups: int
    traits: int
    resource_classes: int
    overcommitted: Sequence[ImportProblem]
