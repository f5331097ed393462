"""Candidates that appear around several anchors, because only sharing providers supply them."""

from collections.abc import Collection, Iterator
from itertools import islice

from placement_svc.db.search.anchors import Anchor
from placement_svc.db.search.sharing import SharedSupplies
from placement_svc.domain.combining.candidates import Candidate, candidate_size
from placement_svc.domain.combining.ordering import RankedCandidates
from placement_svc.domain.combining.shared_lists import change_each, distinct_lists
from placement_svc.domain.execution.deadline import Deadline
from placement_svc.domain.execution.memory import MemoryBudget

REPEATED_ID_SIZE = 60
"""Bytes of memory that an id in a set needs, approximately."""


class RepeatedCandidates:
    """Removes repeated candidates of one search.

    A candidate of sharing providers alone appears around every anchor that these providers serve; only its
    first appearance counts.
    """

    def __init__(self, shared_supplies: SharedSupplies, deadline: Deadline, memory: MemoryBudget) -> None:
        self._deadline = deadline
        self._memory = memory
        self._root_by_provider = {
            supply.provider_id: supply.root_id for supplies in shared_supplies.values() for supply in supplies
        }
        self._sharing_ids = frozenset(self._root_by_provider)
        self._seen_supplier_ids: set[tuple[tuple[int, ...], ...]] = set()
        self._seen_candidates: set[Candidate] = set()

    def new_anchors(self, anchors: list[Anchor]) -> list[Anchor]:
        """Return the anchors that can yield new candidates."""
        return [anchor for anchor in anchors if self._is_new(anchor)] if self._sharing_ids else anchors

    def _is_new(self, anchor: Anchor) -> bool:
        self._deadline.check()
        if not all(self._sharing_ids.issuperset(ids) for ids in distinct_lists(anchor.supplier_ids)):
            return True
        if anchor.supplier_ids in self._seen_supplier_ids:
            return False
        self._seen_supplier_ids.add(anchor.supplier_ids)
        return True

    def root_ids(self, anchors: Collection[Anchor]) -> Collection[int]:
        """Return the roots of all suppliers; an anchor whose own tree supplies nothing is not among them."""
        if not self._sharing_ids:
            return [anchor.id for anchor in anchors]
        root_ids: set[int] = set()
        for anchor in anchors:
            for ids in distinct_lists(anchor.supplier_ids):
                self._deadline.check()
                sharing_ids = self._sharing_ids.intersection(ids)
                root_ids.update(map(self._root_by_provider.__getitem__, sharing_ids))
                if len(sharing_ids) < len(ids):
                    root_ids.add(anchor.id)
        return root_ids

    def new_candidates(self, candidates: Iterator[Candidate]) -> Iterator[Candidate]:
        """Yield the candidates that have not appeared before."""
        return filter(self._is_new_candidate, candidates) if self._sharing_ids else candidates

    def _is_new_candidate(self, candidate: Candidate) -> bool:
        if not self._sharing_ids.issuperset(candidate):
            return True
        if candidate in self._seen_candidates:
            return False
        self._memory.reserve(candidate_size(candidate))
        self._seen_candidates.add(candidate)
        return True


class FirstAnchors:
    """Assigns each candidate of an ordered search to the first anchor that has it.

    Whether sharing providers can be combined does not depend on the anchor. So an earlier anchor has a
    candidate if all its suppliers are among the sharing providers that can supply to that anchor.
    """

    def __init__(self, shared_supplies: SharedSupplies, deadline: Deadline, memory: MemoryBudget) -> None:
        self._deadline = deadline
        self._memory = memory
        self._sharing_ids = frozenset(
            supply.provider_id for supplies in shared_supplies.values() for supply in supplies
        )
        self._seen: dict[tuple[frozenset[int], ...], None] = {}
        """The supplies of sharing providers to the anchors so far, for each demand."""

    def new_candidates(self, anchor: Anchor, candidates: RankedCandidates) -> RankedCandidates:
        """Return those candidates of the next anchor that no earlier one has."""
        if not self._sharing_ids:
            return candidates
        self._deadline.check()
        shared = tuple(change_each(anchor.supplier_ids, self._sharing_ids.intersection))
        earlier = len(self._seen)
        if all(shared) and shared not in self._seen:
            id_count = sum(map(len, distinct_lists(shared)))
            self._memory.reserve(REPEATED_ID_SIZE * id_count + 8 * len(shared))
            self._seen[shared] = None
        return (ranked for ranked in candidates if not self._is_repeated(ranked[1], earlier))

    def _is_repeated(self, candidate: Candidate, earlier: int) -> bool:
        """Return whether one of the first so many entries of `_seen` has the candidate."""
        if not self._sharing_ids.issuperset(candidate):
            return False
        return any(
            all(id_ in ids for id_, ids in zip(candidate, shared, strict=True))
            for shared in self._deadline.checked(islice(self._seen, earlier))
        )
