"""Traits: qualities that resource providers have."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Trait:
    """A trait, standard or custom, and the time of its last change."""

    name: str
    modified: datetime


@dataclass(frozen=True)
class ProviderTraits:
    """The traits of a provider, standard ones first, and the generation of the provider."""

    generation: int
    traits: list[Trait]


@dataclass(frozen=True)
class TraitFilter:
    """A filter of traits by name; None and "" accept every name.

    `associated` selects the traits that any provider has, or those that none has.
    """

    names: frozenset[str] | None = None
    prefix: str = ""
    associated: bool | None = None
