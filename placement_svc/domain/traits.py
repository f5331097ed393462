"""Traits: qualities that resource providers have."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Trait:
    """A trait, standard or custom."""

    name: str
    modified: datetime


@dataclass(frozen=True)
class ProviderTraits:
    """The traits of a provider, standard ones first, and its generation."""

    generation: int
    traits: list[Trait]


@dataclass(frozen=True)
class TraitFilter:
    """Which traits are wanted: of these names, with this prefix, held (or not) by any provider."""

    names: frozenset[str] | None = None
    prefix: str = ""
    associated: bool | None = None
