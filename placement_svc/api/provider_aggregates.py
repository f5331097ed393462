"""The aggregates of a resource provider (`docs/spec/resources.md 5`)."""

from flask import Blueprint, Response, jsonify

from placement_svc.api.context import database, load_body, require_provider
from placement_svc.db import provider_aggregates
from placement_svc.domain.aggregates import ProviderAggregates
from placement_svc.http import caching
from placement_svc.http.body import read_json
from placement_svc.http.endpoint import endpoint
from placement_svc.http.microversion import since
from placement_svc.schemas.aggregates import AggregateUuids, ChangedAggregates, PatchedAggregates
from placement_svc.schemas.base import check
from placement_svc.schemas.patches import check_disjoint

bp = Blueprint("provider_aggregates", __name__)


def _response(found: ProviderAggregates) -> Response:
    body: dict[str, list[str] | int] = {"aggregates": found.uuids}
    if since("1.19"):
        body["resource_provider_generation"] = found.generation
    return caching.set_cache_headers(jsonify(body), caching.now())


@bp.get("/resource_providers/<uuid>/aggregates")
@endpoint("resource_providers:aggregates:list", introduced="1.1", checks_accept=True, media_first=True)
def list_provider_aggregates(uuid: str) -> Response:
    """List the aggregates of a provider."""
    return _response(database().read(provider_aggregates.get, uuid))


@bp.put("/resource_providers/<uuid>/aggregates")
@endpoint("resource_providers:aggregates:update", introduced="1.1", reads_json=True, media_first=True)
def replace_provider_aggregates(uuid: str) -> Response:
    """Replace the aggregates of a provider; since 1.19 the request names the provider's generation."""
    require_provider(uuid)
    if since("1.19"):
        body = load_body(ChangedAggregates)
        uuids, expected = body["aggregates"], body["resource_provider_generation"]
    else:
        uuids, expected = check(AggregateUuids(), read_json()), None
    generation = database().write(provider_aggregates.replace, uuid, uuids, expected)
    return _response(ProviderAggregates(generation, uuids))


@bp.patch("/resource_providers/<uuid>/aggregates")
@endpoint("resource_providers:aggregates:update", introduced="1.0", is_extension=True, reads_json=True)
def change_provider_aggregates(uuid: str) -> Response:
    """Add a provider to aggregates, and remove it from others."""
    require_provider(uuid)
    body = load_body(PatchedAggregates)
    check_disjoint(body)
    return _response(
        database().write(
            provider_aggregates.change,
            uuid,
            body.get("resource_provider_generation"),
            add=body.get("add", ()),
            remove=body.get("remove", ()),
        )
    )
