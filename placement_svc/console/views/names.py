"""The names that the forms complete: those that occur in the cloud."""

from typing import Any

from flask import Blueprint, Response, jsonify

from placement_svc.api.context import reader
from placement_svc.console.context import allows
from placement_svc.db import aggregates, capacity, traits
from placement_svc.db.connections.engine import Transaction
from placement_svc.domain.providers import ProviderFilter
from placement_svc.domain.traits import TraitFilter

bp = Blueprint("names", __name__)

MAX_NAMES = 2000
"""The most names of a kind."""


@bp.get("/console/names.json")
def show() -> Response:
    """Return the resource classes, traits and aggregates that providers have, as far as the caller may."""

    def read(connection: Transaction) -> dict[str, Any]:
        names: dict[str, list[str]] = {"resource_classes": [], "traits": [], "aggregates": []}
        if allows("capacity"):
            names["resource_classes"] = list(capacity.sums(connection, ProviderFilter()))
        if allows("traits:list"):
            found = traits.find(connection, TraitFilter(associated=True))
            names["traits"] = [trait.name for trait in found[:MAX_NAMES]]
        if allows("aggregates:list"):
            sizes = aggregates.find(connection)
            names["aggregates"] = [size.uuid for size in sizes[:MAX_NAMES]]
        return names

    return jsonify(reader().read(read))
