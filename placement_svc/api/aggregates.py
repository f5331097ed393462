"""Aggregates and who is in them, which only this service tells."""

from dataclasses import asdict

from flask import Blueprint, Response, jsonify

from placement_svc.api.context import database
from placement_svc.db import aggregates
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint

bp = Blueprint("aggregates", __name__)


@bp.get("/aggregates")
@endpoint("aggregates:list", checks_accept=True)
def list_aggregates() -> Response:
    """List the aggregates that providers are in, with the number of those."""
    found = database().read(aggregates.find)
    answer = jsonify(aggregates=[asdict(aggregate) for aggregate in found])
    return caching.stamp(answer, caching.now())


@bp.get("/aggregates/<uuid>")
@endpoint("aggregates:show", checks_accept=True)
def show_aggregate(uuid: str) -> Response:
    """Show the providers that are in an aggregate."""
    members = database().read(aggregates.members, uuid)
    answer = jsonify(uuid=uuid, resource_providers=[asdict(member) for member in members])
    return caching.stamp(answer, caching.now())
