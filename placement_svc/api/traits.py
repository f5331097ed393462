"""Traits (`docs/spec/resources.md 7`)."""

from flask import Blueprint, Response, jsonify

from placement_svc.api import links
from placement_svc.api.context import database, load_query, reader
from placement_svc.db import traits
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.schemas.traits import TraitQuery, check_custom_name, to_filter

bp = Blueprint("traits", __name__)


@bp.get("/traits")
@endpoint("traits:list", introduced="1.6", checks_accept=True, may_be_stale=True)
def list_traits() -> Response:
    """List the traits that match all filters of the query."""
    trait_filter = to_filter(load_query(TraitQuery))
    found = reader().read(traits.find, trait_filter)
    response = jsonify(traits=[trait.name for trait in found])
    return caching.set_cache_headers(response, caching.newest(trait.modified for trait in found))


@bp.get("/traits/<name>")
@endpoint("traits:show", introduced="1.6")
def show_trait(name: str) -> Response:
    """Check that a trait exists."""
    trait = database().read(traits.get, name)
    return caching.set_cache_headers(Response(status=204), trait.modified)


@bp.put("/traits/<name>")
@endpoint("traits:update", introduced="1.6")
def ensure_trait(name: str) -> Response:
    """Create a custom trait if it does not exist."""
    check_custom_name(name)
    trait, created = database().write(traits.ensure, name)
    response = caching.set_cache_headers(Response(status=201 if created else 204), trait.modified)
    response.location = links.url("traits", name)
    return response


@bp.delete("/traits/<name>")
@endpoint("traits:delete", introduced="1.6")
def delete_trait(name: str) -> Response:
    """Delete a custom trait; fails if a provider has it."""
    database().write(traits.remove, name)
    return Response(status=204)
