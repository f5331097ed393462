"""Allocation candidates (`docs/spec/candidates.md`)."""

from flask import Blueprint, Response, g

from placement_svc.api.candidates_response import Answer
from placement_svc.api.context import database, load_pairs, settings
from placement_svc.db.search.candidates import Manner, find_candidates
from placement_svc.domain.deadline import Deadline
from placement_svc.domain.groups import CandidatesRequest
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.json import respond
from placement_svc.http.microversion import since
from placement_svc.schemas.allocation_candidates import check_size, parse_request

bp = Blueprint("allocation_candidates", __name__)


@bp.get("/allocation_candidates")
@endpoint("allocation_candidates:list", introduced="1.10", checks_accept=True)
def list_candidates() -> Response:
    """List the combinations of providers that can supply what the query asks."""
    pairs = load_pairs()
    check_size(pairs, settings().max_groups)
    wanted = parse_request(pairs, g.microversion)
    found = database().read(find_candidates, wanted, _manner(wanted))
    return caching.set_cache_headers(respond(Answer(found).pieces()), caching.now())


def _manner(wanted: CandidatesRequest) -> Manner:
    configured = settings()
    asked_for = frozenset(name for group in wanted.groups for name in group.resources)
    return Manner(
        deadline=Deadline.of(configured.request_deadline),
        one_per_tree=not since("1.29"),
        shown=None if since("1.27") else asked_for,
        randomize=configured.randomize_candidates,
        depth_first=configured.candidates_strategy == "depth-first",
        maximum=configured.max_candidates or None,
    )
