"""The traits of a resource provider (`docs/spec/resources.md 6`)."""

from flask import Blueprint, Response, jsonify

from placement_svc.api.context import database, load_body
from placement_svc.db import provider_traits
from placement_svc.domain.traits import ProviderTraits
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.schemas.patches import check_disjoint
from placement_svc.schemas.traits import ChangedTraits, PatchedTraits

bp = Blueprint("provider_traits", __name__)


def _response(found: ProviderTraits) -> Response:
    response = jsonify(
        traits=[trait.name for trait in found.traits], resource_provider_generation=found.generation
    )
    return caching.set_cache_headers(response, caching.newest(trait.modified for trait in found.traits))


@bp.get("/resource_providers/<uuid>/traits")
@endpoint("resource_providers:traits:list", introduced="1.6", checks_accept=True)
def list_provider_traits(uuid: str) -> Response:
    """List the traits of a provider."""
    return _response(database().read(provider_traits.get, uuid))


@bp.put("/resource_providers/<uuid>/traits")
@endpoint("resource_providers:traits:update", introduced="1.6", reads_json=True)
def replace_provider_traits(uuid: str) -> Response:
    """Replace the traits of a provider."""
    body = load_body(ChangedTraits)
    return _response(
        database().write(provider_traits.replace, uuid, body["resource_provider_generation"], body["traits"])
    )


@bp.patch("/resource_providers/<uuid>/traits")
@endpoint("resource_providers:traits:update", introduced="1.0", is_extension=True, reads_json=True)
def change_provider_traits(uuid: str) -> Response:
    """Add traits to a provider, and remove others."""
    body = load_body(PatchedTraits)
    check_disjoint(body)
    return _response(
        database().write(
            provider_traits.change,
            uuid,
            body.get("resource_provider_generation"),
            add=body.get("add", ()),
            remove=body.get("remove", ()),
        )
    )


@bp.delete("/resource_providers/<uuid>/traits")
@endpoint("resource_providers:traits:delete", introduced="1.6")
def delete_provider_traits(uuid: str) -> Response:
    """Delete all traits of a provider."""
    database().write(provider_traits.remove_all, uuid)
    return Response(status=204)
