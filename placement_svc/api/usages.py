"""Usages (`docs/spec/allocations.md 9 and 10`)."""

from typing import Any

from flask import Blueprint, Response, jsonify

from placement_svc.api.context import database, load_query, reader
from placement_svc.db import usages
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.microversion import since
from placement_svc.schemas.usages import UsagesQuery

bp = Blueprint("usages", __name__)


@bp.get("/resource_providers/<uuid>/usages")
@endpoint("resource_providers:usages", introduced="1.0", checks_accept=True)
def show_provider_usages(uuid: str) -> Response:
    """Show the usage of each resource class of a provider."""
    generation, used = database().read(usages.of_provider, uuid)
    return caching.set_cache_headers(
        jsonify(resource_provider_generation=generation, usages=used), caching.now()
    )


@bp.get("/usages")
@endpoint("usages", introduced="1.9", checks_accept=True, project_from_query=True, may_be_stale=True)
def show_usages() -> Response:
    """Show the usages of a project; since 1.38 by consumer type."""
    query = load_query(UsagesQuery)
    if since("1.38"):
        by_type = reader().read(usages.of_project, **query)
        body: dict[str, Any] = {
            consumer_type: {**usage.resources, "consumer_count": usage.consumer_count}
            for consumer_type, usage in by_type.items()
        }
    else:
        total = reader().read(usages.of_project, **query, consumer_type=usages.ALL_TYPES)
        body = {name: used for usage in total.values() for name, used in usage.resources.items()}
    return caching.set_cache_headers(jsonify(usages=body), caching.now())
