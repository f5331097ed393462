"""Resource providers (`docs/spec/resources.md 2 and 3`)."""

from typing import Any
from uuid import UUID, uuid4

from flask import Blueprint, Response, g, jsonify

from placement_svc.api import links
from placement_svc.api.context import database, load_body, load_pairs
from placement_svc.db import providers
from placement_svc.domain.errors import Invalid
from placement_svc.domain.providers import Provider
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.microversion import since
from placement_svc.schemas.resource_providers import ChangedProvider, NewProvider, parse_filter

bp = Blueprint("resource_providers", __name__)

LINKS = {"inventories": "1.0", "usages": "1.0", "aggregates": "1.1", "traits": "1.6", "allocations": "1.11"}
"""What a provider links to, and the microversion that brought the link."""


def show(provider: Provider) -> dict[str, Any]:
    """Return how a provider is told about at the present microversion."""
    rels = [rel for rel, introduced in LINKS.items() if since(introduced)]
    self_path = links.path("resource_providers", provider.uuid)
    shown: dict[str, Any] = {
        "uuid": provider.uuid,
        "name": provider.name,
        "generation": provider.generation,
        "links": [
            {"rel": "self", "href": self_path},
            *({"rel": rel, "href": f"{self_path}/{rel}"} for rel in rels),
        ],
    }
    if since("1.14"):
        shown["parent_provider_uuid"] = provider.parent_uuid
        shown["root_provider_uuid"] = provider.root_uuid
    return shown


@bp.get("/resource_providers")
@endpoint("resource_providers:list", checks_accept=True)
def list_providers() -> Response:
    """List the providers that meet all of the query."""
    found = database().read(providers.find, parse_filter(load_pairs(), g.microversion))
    answer = jsonify(resource_providers=[show(provider) for provider in found])
    return caching.stamp(answer, caching.newest(provider.modified for provider in found))


@bp.post("/resource_providers")
@endpoint("resource_providers:create", reads_json=True)
def create_provider() -> Response:
    """Create a provider, below a parent if one is named."""
    body = load_body(NewProvider)
    uuid = str(UUID(body["uuid"])) if "uuid" in body else str(uuid4())
    if not body["name"]:
        raise Invalid(f'Unable to create resource provider "", {uuid}: name is required')
    created = database().write(providers.create, uuid, body["name"], body.get("parent_provider_uuid"))
    if since("1.20"):
        answer = caching.stamp(jsonify(show(created)), created.modified)
    else:
        answer = Response(status=201)
    answer.location = links.url("resource_providers", created.uuid)
    return answer


@bp.get("/resource_providers/<uuid>")
@endpoint("resource_providers:show", checks_accept=True)
def show_provider(uuid: str) -> Response:
    """Show one provider."""
    found = database().read(providers.get, uuid)
    return caching.stamp(jsonify(show(found)), found.modified)


@bp.delete("/resource_providers/<uuid>")
@endpoint("resource_providers:delete")
def delete_provider(uuid: str) -> Response:
    """Delete a provider that has no children and no allocations."""
    database().write(providers.remove, uuid)
    return Response(status=204)


@bp.put("/resource_providers/<uuid>")
@endpoint("resource_providers:update", reads_json=True)
def change_provider(uuid: str) -> Response:
    """Give a provider a name and, where the body says so, a parent."""
    database().read(providers.get_id, uuid)
    body = load_body(ChangedProvider)
    if "parent_provider_uuid" in body:
        changed = database().write(
            providers.change, uuid, body["name"], body["parent_provider_uuid"], since("1.37")
        )
    else:
        changed = database().write(providers.rename, uuid, body["name"])
    return caching.stamp(jsonify(show(changed.provider)), changed.changed_before)
