"""Allocation candidates (`docs/spec/candidates.md`)."""

from collections.abc import Iterator
from contextlib import contextmanager

from flask import Blueprint, Response, g

from placement_svc.api.candidates_response import CandidatesResponse
from placement_svc.api.context import load_pairs, reader, request_deadline, settings
from placement_svc.db.connections.engine import Transaction
from placement_svc.db.search.candidates import SearchOptions, candidate_search
from placement_svc.db.search.demand_rows import MAX_SUBQUERY_DEMANDS
from placement_svc.domain.execution.fair_semaphore import FairSemaphore
from placement_svc.domain.execution.memory import MEGABYTE, MemoryBudget
from placement_svc.domain.groups import CandidatesRequest
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.json import respond
from placement_svc.http.microversion import allows_extensions, since
from placement_svc.http.policy import enforce
from placement_svc.schemas.allocation_candidates import check_group_count, parse_request

bp = Blueprint("allocation_candidates", __name__)

MANY_AMOUNTS = MAX_SUBQUERY_DEMANDS + 1
"""Amounts in all groups from which on a request counts as long, as its statements can be large.

On a busy machine such requests take more than 0.1 s together: all but a few of them would start again
(`NoLongSlot`), and a small request that takes so long meanwhile would wait for a long slot behind them.
"""

MAX_WAITING = 100
"""How many requests with so many amounts may wait in a process, each in a thread."""

_large_requests = FairSemaphore(1, max_waiting=MAX_WAITING)


@bp.get("/allocation_candidates")
@endpoint("allocation_candidates:list", introduced="1.10", checks_accept=True, may_be_stale=True)
def list_candidates() -> Response:
    """List the allocation candidates for the request groups in the query."""
    pairs = load_pairs()
    check_group_count(pairs, settings().max_groups)
    candidates_request = parse_request(pairs, g.microversion, extended=allows_extensions())
    check_ignored_consumers(candidates_request)
    with one_at_a_time(candidates_request):
        found = reader().read(read_candidates, candidates_request, search_options(candidates_request))
        return caching.set_cache_headers(respond(found.pieces()), caching.now())


def read_candidates(
    connection: Transaction, candidates_request: CandidatesRequest, options: SearchOptions
) -> CandidatesResponse:
    """Search candidates, and generate a part of the response while the inventories are fetched."""
    with candidate_search(connection, candidates_request, options) as result:
        response = CandidatesResponse(result)
        response.generate_while_fetching()
        return response


def check_ignored_consumers(candidates_request: CandidatesRequest) -> None:
    """Raise `Forbidden` if the request ignores consumers whose allocations the caller may not read.

    The response shows where these consumers are.
    """
    if candidates_request.ignore_consumer:
        enforce("allocations:list")


@contextmanager
def one_at_a_time(candidates_request: CandidatesRequest) -> Iterator[None]:
    """Run the block for one request with `MANY_AMOUNTS` at a time, in a long slot; for others at once.

    Raises `Unavailable` if too many such requests wait.
    """
    if sum(len(group.resources) for group in candidates_request.groups) < MANY_AMOUNTS:
        yield
        return
    request_deadline().acquire(_large_requests, "Too many large requests wait: ask for fewer amounts.")
    try:
        yield
    finally:
        _large_requests.release()


def search_options(candidates_request: CandidatesRequest) -> SearchOptions:
    """Return the options that the settings and the microversion imply."""
    configured = settings()
    requested_classes = frozenset(name for group in candidates_request.groups for name in group.resources)
    return SearchOptions(
        deadline=request_deadline(),
        memory=MemoryBudget(configured.max_search_memory * MEGABYTE),
        one_provider_per_tree=not since("1.29"),
        summary_classes=None if since("1.27") else requested_classes,
        randomize=configured.randomize_candidates,
        depth_first=configured.candidates_strategy == "depth-first",
        max_candidates=configured.max_candidates or None,
    )
