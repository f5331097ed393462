"""Usages (`docs/spec/allocations.md 9 and 10`)."""

from typing import Any

from flask import Blueprint, Response, jsonify, request

from placement_svc.api.context import database, load_query
from placement_svc.db import usages
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.microversion import since
from placement_svc.schemas.query import parse_pairs
from placement_svc.schemas.usages import UsagesQuery

bp = Blueprint("usages", __name__)


@bp.get("/resource_providers/<uuid>/usages")
@endpoint("resource_providers:usages", checks_accept=True)
def show_provider_usages(uuid: str) -> Response:
    """Show how much is used of each class that a provider has."""
    generation, used = database().read(usages.of_provider, uuid)
    return caching.stamp(jsonify(resource_provider_generation=generation, usages=used), caching.now())


def _asked_project() -> dict[str, str]:
    """Return the project that is asked about, as the query will be read."""
    return {key: value for key, value in parse_pairs(request.query_string) if key == "project_id"}


@bp.get("/usages")
@endpoint("usages", introduced="1.9", checks_accept=True, target=_asked_project)
def show_usages() -> Response:
    """Show how much a project uses, since 1.38 by type of consumer."""
    query = load_query(UsagesQuery)
    if since("1.38"):
        by_type = database().read(usages.of_project, **query)
        shown: dict[str, Any] = {
            consumer_type: {**held.resources, "consumer_count": held.consumer_count}
            for consumer_type, held in by_type.items()
        }
    else:
        together = database().read(usages.of_project, **query, consumer_type=usages.ALL_TYPES)
        shown = {name: used for held in together.values() for name, used in held.resources.items()}
    return caching.stamp(jsonify(usages=shown), caching.now())
