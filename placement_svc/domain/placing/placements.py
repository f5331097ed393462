"""Placements: consumers with the candidates that one call claims for them (`docs/spec/extensions.md 5`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement_svc.domain.allocations import Claim
from placement_svc.domain.groups import CandidatesRequest


@dataclass(frozen=True)
class PlacementRequest:
    """Consumers to place on candidates of one request, in their order.

    The `allocations` of `consumers` are empty, and are those of the candidates later. At least `min_count`
    of them have to be placed. The request ignores the consumers that exist already. `explanation` is the path
    and query of the explanation of the request, None if a request line cannot have them. `placement_group` is
    the uuid of the group that the consumers become members of, if there is one.
    """

    request: CandidatesRequest
    consumers: Sequence[Claim]
    min_count: int
    explanation: str | None
    placement_group: str | None = None

    @property
    def moves(self) -> bool:
        """Whether any consumer exists already, so that its allocations are replaced."""
        return any(consumer.generation is not None for consumer in self.consumers)


@dataclass(frozen=True)
class Root:
    """A root provider."""

    uuid: str
    name: str


@dataclass(frozen=True)
class Placement:
    """The claim of a consumer, the suppliers of each request group by suffix, and one of its roots."""

    claim: Claim
    mappings: Mapping[str, Sequence[str]]
    root: Root
    root_ids: frozenset[int]
    """The roots of the consumer, as `placement_svc.domain.placing.rule` defines them."""


@dataclass(frozen=True)
class Placements:
    """The placed consumers, in the order of the request; the others follow them there."""

    placed: Sequence[Placement]

    @property
    def claims(self) -> list[Claim]:
        """The claims of the placed consumers."""
        return [placement.claim for placement in self.placed]
