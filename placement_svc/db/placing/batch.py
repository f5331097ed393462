"""A batch of requests that one search and one claim place together."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Protocol

from placement_svc.db.claims.refusal import Refusal
from placement_svc.domain.allocations import Claim, check_generations, check_inventories, check_providers
from placement_svc.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    Invalid,
    NoCandidates,
    OutcomeUnknown,
    Unavailable,
)
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.placing.placements import Placement, PlacementRequest, Placements


class LostRace(Exception):
    """Another request has used what this one has found, or could have found."""


class PlacingCall(Protocol):
    """One request; its methods run in the thread that calls them."""

    wanted: PlacementRequest
    deadline: Deadline
    searches: int
    """The number of snapshots that were searched for it."""

    def find(self, wanted: PlacementRequest) -> Placements:
        """Search one snapshot; raise `NoCandidates` if it has too few candidates."""

    def try_to_claim(self, claims: list[Claim]) -> Refusal | None:
        """Claim all or none; return the refusal."""

    def claim_found(self, placements: Placements) -> Placements:
        """Claim what a search has found, and return it."""

    def place_alone(self) -> Placements:
        """Search, and claim what the search has found."""


@dataclass(eq=False)
class BatchMember:
    """A request of a batch. `ready` is set when it leads the next batch, or when its batch has ended.

    `is_claiming` is whether its claim has been submitted, so that it cannot withdraw any more.
    """

    call: PlacingCall
    ready: Event = field(default_factory=Event)
    leads: bool = False
    searches: int = 0
    """The number of snapshots that the leader has searched for it."""

    is_paused: bool = False
    """Whether others have its slot."""

    is_alone: bool = False
    """Whether it searches by itself: it waits no longer, or the search of the batch has failed."""

    is_claiming: bool = False
    is_refused: bool = False
    is_granted: bool = False
    placement: Placement | None = None
    error: BaseException | None = None

    @property
    def claim(self) -> Claim:
        """The claim of what the search of the batch has found."""
        assert self.placement is not None
        return self.placement.claim

    @property
    def is_done(self) -> bool:
        """Whether the batch has done all that the request needs."""
        return not self.is_alone and (self.is_granted or self.is_refused or self.error is not None)

    def pause(self) -> None:
        """Release the slot of the request while it waits for others."""
        if not self.is_paused:
            self.is_paused = True
            self.call.deadline.pause()

    def resume(self) -> None:
        """Get a slot again; raise what `Deadline.resume` raises."""
        if self.is_paused:
            self.is_paused = False
            self.call.deadline.resume()

    def finish(self) -> Placements:
        """Return the placement that the batch has claimed; do by itself what the batch has not done.

        Raises `LostRace` if others get what was found.
        """
        if self.is_alone:
            return self.call.place_alone()
        if self.error is not None:
            raise self.error
        if self.is_refused:
            raise NoCandidates(placeable=0, wanted=1, explanation=self.call.wanted.explanation)
        if self.placement is None:
            raise LostRace
        placements = Placements([self.placement])
        return placements if self.is_granted else self.call.claim_found(placements)


def search_for(call: PlacingCall, batch: Sequence[BatchMember]) -> None:
    """Find placements for the first members of a batch, or refuse all if there is none for the first."""
    consumers = [consumer for each in batch for consumer in each.call.wanted.consumers]
    for each in batch:
        each.searches = 1
    try:
        found = call.find(replace(call.wanted, consumers=consumers, min_count=1))
    except NoCandidates:
        for each in batch:
            each.is_refused = True
    except (ConcurrentUpdate, Invalid):
        # It may be the error of another member.
        for each in batch:
            each.is_alone = True
    else:
        for each, placement in zip(batch, found.placed, strict=False):
            each.placement = placement


def claim_for(call: PlacingCall, members: Sequence[BatchMember]) -> None:
    """Claim what the search has found; after a refusal, once more without the claims that cause it."""
    refusal = _claim_all(call, members)
    if refusal is not None:
        granted = [each for each in members if _is_granted(each, refusal)]
        if len(granted) < len(members):
            _claim_all(call, granted)


def _claim_all(call: PlacingCall, members: Sequence[BatchMember]) -> Refusal | None:
    """Claim what was found for members: for all, or for none, and return the refusal."""
    if not members:
        return None
    try:
        refusal = call.try_to_claim([each.claim for each in members])
    except OutcomeUnknown as error:
        for each in members:
            each.error = error
        return None
    except (Invalid, Unavailable):
        # Nothing was claimed. It may be the error of another member, so each claims by itself.
        return None
    if refusal is None:
        for each in members:
            each.is_granted = True
    return refusal


def _is_granted(member: BatchMember, refusal: Refusal) -> bool:
    """Return whether a member's claim is no reason for a refusal.

    If the claim would be refused alone, because others have used the amounts, forget the placement.
    """
    try:
        check_generations([member.claim], refusal.generations)
        if not refusal.is_generation_conflict:
            check_providers([member.claim], refusal.provider_ids)
            check_inventories([member.claim], refusal.usages)
    except ConcurrentUpdate:
        return False
    except (Conflict, Invalid):
        member.placement = None
        return False
    return True
