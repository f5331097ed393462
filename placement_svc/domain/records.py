"""Records: providers, consumers and names as they are moved from one service to another.

A consumer is moved as the `Claim` of all that it holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement_svc.domain.allocations import Claim
from placement_svc.domain.errors import Invalid
from placement_svc.domain.inventory import Inventory

MOST_PROBLEMS = 100
"""How many problems of one import are told."""

MOST_NUMBERS = 10
"""How many lines of one problem are told."""


@dataclass(frozen=True)
class TraitRecord:
    """A custom trait, which a provider may have or not."""

    name: str


@dataclass(frozen=True)
class ResourceClassRecord:
    """A custom resource class, which an inventory may be of or not."""

    name: str


@dataclass(frozen=True)
class ProviderRecord:
    """A resource provider with all it has; aggregates by their uuids, inventories by resource class."""

    uuid: str
    name: str
    parent_uuid: str | None
    traits: Sequence[str]
    aggregates: Sequence[str]
    inventories: Mapping[str, Inventory]


Record = TraitRecord | ResourceClassRecord | ProviderRecord | Claim


@dataclass(frozen=True)
class Problem:
    """What is wrong with some records; `numbers` are those of their lines, counted from 1."""

    numbers: tuple[int, ...]
    message: str

    def __str__(self) -> str:
        word = "line" if len(self.numbers) == 1 else "lines"
        told = ", ".join(map(str, self.numbers[:MOST_NUMBERS]))
        rest = f" and {more} more" if (more := len(self.numbers) - MOST_NUMBERS) > 0 else ""
        return f"{word} {told}{rest}: {self.message}"


class ImportRefused(Invalid):
    """Records that cannot be imported; `problems` are the first `MOST_PROBLEMS`, in the order of lines."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.numbers)[:MOST_PROBLEMS]
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True)
class Imported:
    """How much was imported, and which of it the inventories would not grant to a new claim."""

    providers: int
    consumers: int
    overcommitted: Sequence[Problem]
