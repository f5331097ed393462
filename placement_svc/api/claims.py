"""Search and claim in one request, an extension (`docs/spec/extensions.md 5`)."""

from typing import Any

from flask import Blueprint, Response, g, jsonify, request

from placement_svc.api.allocation_candidates import one_at_a_time, search_options
from placement_svc.api.context import placing_service, request_deadline, settings
from placement_svc.db.placement_group_rule import PlacementGroupRule
from placement_svc.db.placing.service import PlacingOptions, PlacingResult
from placement_svc.domain.execution import request_stats
from placement_svc.domain.placing.placements import Placement, PlacementRequest
from placement_svc.http import caching
from placement_svc.http.body import read_json
from placement_svc.http.endpoint import endpoint
from placement_svc.schemas.claims import parse_claims_request

bp = Blueprint("claims", __name__)

ADVICE = "send it again later, place fewer consumers with it, or ask for fewer groups and amounts"
"""What the client can do if the deadline of a request has passed; a limit has no effect here."""


@bp.post("/claims")
@endpoint("allocations:update", introduced="1.0", is_extension=True, reads_json=True)
def place_consumers() -> Response:
    """Place consumers on allocation candidates: find candidates and claim them in one transaction."""
    wanted, is_dry_run = parse_claims_request(
        read_json(),
        g.microversion,
        base_path=request.script_root,
        max_groups=settings().max_groups,
        max_items=settings().max_items,
    )
    rule = None if wanted.placement_group is None else PlacementGroupRule(wanted.placement_group)
    request_deadline().advice = ADVICE
    options = PlacingOptions(search=search_options(wanted.request), rule=rule)
    request_stats.current().is_claim = not is_dry_run
    service = placing_service()
    with one_at_a_time(wanted.request):
        result = service.find(wanted, options) if is_dry_run else service.place(wanted, options)
    body = _to_json(wanted, result)
    if rule is not None:
        body["violations"] = rule.violations(result.placements)
    return caching.set_cache_headers(jsonify(body), caching.now())


def _to_json(wanted: PlacementRequest, result: PlacingResult) -> dict[str, Any]:
    placed = result.placements.placed
    return {
        "claims": [_placement_to_json(placement) for placement in placed],
        "unplaced": [consumer.consumer_uuid for consumer in wanted.consumers[len(placed) :]],
        "attempts": result.attempts,
    }


def _placement_to_json(placement: Placement) -> dict[str, Any]:
    claim = placement.claim
    return {
        "consumer_uuid": claim.consumer_uuid,
        "consumer_generation": (claim.generation or 0) + 1,
        "allocations": {uuid: {"resources": resources} for uuid, resources in claim.allocations.items()},
        "mappings": placement.mappings,
        "root": vars(placement.root),
    }
