"""Aggregates and their members, an extension of this service.

It is older than the versions of the extensions, so it does not depend on them (`docs/spec/extensions.md 1`).
"""

from dataclasses import asdict

from flask import Blueprint, Response, jsonify

from placement_svc.api.context import database
from placement_svc.db import aggregates
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint

bp = Blueprint("aggregates", __name__)


@bp.get("/aggregates")
@endpoint("aggregates:list", introduced="1.0", checks_accept=True)
def list_aggregates() -> Response:
    """List the aggregates that have members, with the number of members."""
    found = database().read(aggregates.find)
    response = jsonify(aggregates=[asdict(aggregate) for aggregate in found])
    return caching.set_cache_headers(response, caching.now())


@bp.get("/aggregates/<uuid>")
@endpoint("aggregates:show", introduced="1.0", checks_accept=True)
def show_aggregate(uuid: str) -> Response:
    """Show the providers in an aggregate."""
    members = database().read(aggregates.members, uuid)
    response = jsonify(uuid=uuid, resource_providers=[asdict(member) for member in members])
    return caching.set_cache_headers(response, caching.now())
