"""The aggregates of a resource provider (`docs/spec/resources.md 5`)."""

from flask import Blueprint, Response, jsonify

from placement_svc.api.context import database, load_body
from placement_svc.db import provider_aggregates, providers
from placement_svc.domain.aggregates import ProviderAggregates
from placement_svc.http import caching
from placement_svc.http.body import read_json
from placement_svc.http.endpoint import endpoint
from placement_svc.http.microversion import since
from placement_svc.schemas.aggregates import AggregateUuids, ChangedAggregates
from placement_svc.schemas.base import check

bp = Blueprint("provider_aggregates", __name__)


def _answer(joined: ProviderAggregates) -> Response:
    shown: dict[str, list[str] | int] = {"aggregates": joined.uuids}
    if since("1.19"):
        shown["resource_provider_generation"] = joined.generation
    return caching.stamp(jsonify(shown), caching.now())


@bp.get("/resource_providers/<uuid>/aggregates")
@endpoint("resource_providers:aggregates:list", introduced="1.1", checks_accept=True, media_first=True)
def list_provider_aggregates(uuid: str) -> Response:
    """List the aggregates that a provider is in."""
    return _answer(database().read(provider_aggregates.get, uuid))


@bp.put("/resource_providers/<uuid>/aggregates")
@endpoint("resource_providers:aggregates:update", introduced="1.1", reads_json=True, media_first=True)
def replace_provider_aggregates(uuid: str) -> Response:
    """Replace the aggregates that a provider is in; since 1.19 only at the generation sent."""
    database().read(providers.get_id, uuid)
    if since("1.19"):
        body = load_body(ChangedAggregates)
        uuids, expected = body["aggregates"], body["resource_provider_generation"]
    else:
        uuids, expected = check(AggregateUuids(), read_json()), None
    generation = database().write(provider_aggregates.replace, uuid, uuids, expected)
    return _answer(ProviderAggregates(generation, uuids))
