"""The response that the search gives to the explained request: what cuts it, and how many roots it has."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from placement_svc.db.search.candidates import SearchOptions, SearchResult, find_candidates
from placement_svc.domain.combining.split_suppliers import divided
from placement_svc.domain.groups import CandidatesRequest


@dataclass(frozen=True)
class Answer:
    """The limit that cuts the response (None: none does), and the number of roots among its suppliers."""

    truncated_by: str | None
    returned_roots: int


NO_ANSWER = Answer(None, 0)
"""The response to a request without candidates."""


def search_answer(
    connection: Connection, request: CandidatesRequest, options: SearchOptions, *, min_candidates: int = 0
) -> Answer:
    """Run the search, and once more with a higher limit if it returns as many candidates as it may.

    There are at least `min_candidates`; the second search is omitted if the limit is lower than that.
    """
    limits = {"limit": request.limit, "max_candidates": options.max_candidates}
    limited_by, limit = min(
        ((name, n) for name, n in limits.items() if n is not None),
        key=lambda each: each[1],
        default=("", None),
    )
    result = find_candidates(connection, request, options)
    count, root_ids = _count(result)
    if limit is None or count < limit:
        return Answer(None, len(root_ids))
    if limit < min_candidates:
        return Answer(limited_by, len(root_ids))
    beyond = find_candidates(
        connection, replace(request, limit=limit + 1), replace(options, max_candidates=None)
    )
    is_cut = sum(1 for _ in beyond.candidates) > limit
    return Answer(limited_by if is_cut else None, len(root_ids))


def has_candidate(connection: Connection, request: CandidatesRequest, options: SearchOptions) -> bool:
    """Return whether the search finds a candidate."""
    options = replace(options, summary_classes=frozenset(), max_candidates=None)
    result = find_candidates(connection, replace(request, limit=1), options)
    return next(iter(result.candidates), None) is not None


def _count(result: SearchResult) -> tuple[int, set[int]]:
    """Return the number of candidates, and the ids of the roots of their suppliers."""
    count = 0
    supplier_ids: set[int] = set()
    for candidate in result.candidates:
        count += 1
        _, suppliers = divided(result.demands, candidate)
        supplier_ids.update(suppliers)
    return count, _root_ids(result, supplier_ids)


def _root_ids(result: SearchResult, supplier_ids: Iterable[int]) -> set[int]:
    return {result.trees.providers[id_][3] for id_ in supplier_ids}
