"""Resource providers (`docs/spec/resources.md 2 and 3`)."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from flask import Blueprint, Response, g, jsonify

from placement_svc.api import links
from placement_svc.api.context import (
    database,
    load_body,
    load_pairs,
    reader,
    request_deadline,
    require_provider,
)
from placement_svc.api.pages import respond_with_page
from placement_svc.db import provider_pages, providers
from placement_svc.domain.errors import Invalid
from placement_svc.domain.providers import Provider
from placement_svc.domain.wording import QUERY_ERROR
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.microversion import allows_extensions, since
from placement_svc.http.policy import enforce
from placement_svc.schemas.pages import parse_page
from placement_svc.schemas.provider_lists import (
    ExtendedProviderQuery,
    parse_extended_filter,
    parse_include,
    uses_extensions,
)
from placement_svc.schemas.query import Pairs
from placement_svc.schemas.resource_providers import ChangedProvider, NewProvider, parse_filter
from placement_svc.schemas.scalars import DASHED_UUID_KEY, normalized_uuid

bp = Blueprint("resource_providers", __name__)

_EXTENDED_QUERY = ExtendedProviderQuery()

LINKS = {"inventories": "1.0", "usages": "1.0", "aggregates": "1.1", "traits": "1.6", "allocations": "1.11"}
"""The links of a provider, each with the microversion that introduced it."""

PART_RULES = {
    "inventories": "resource_providers:inventories:list",
    "usages": "resource_providers:usages",
    "traits": "resource_providers:traits:list",
    "aggregates": "resource_providers:aggregates:list",
    "allocations": "resource_providers:allocations:list",
}
"""The policy rule of the single read of each part that a list of providers can include."""


def to_json(provider: Provider) -> dict[str, Any]:
    """Return the JSON object of a provider at the microversion of the current request."""
    return json_converter()(provider)


def json_converter() -> Callable[[Provider], dict[str, Any]]:
    """Return the function that converts providers as the current request needs them, also after its end."""
    rels = [rel for rel, introduced in LINKS.items() if since(introduced)]
    has_tree = since("1.14")
    list_path = links.path("resource_providers")

    def convert(provider: Provider) -> dict[str, Any]:
        self_path = f"{list_path}/{provider.uuid}"
        body: dict[str, Any] = {
            "uuid": provider.uuid,
            "name": provider.name,
            "generation": provider.generation,
            "links": [
                {"rel": "self", "href": self_path},
                *({"rel": rel, "href": f"{self_path}/{rel}"} for rel in rels),
            ],
        }
        if has_tree:
            body["parent_provider_uuid"] = provider.parent_uuid
            body["root_provider_uuid"] = provider.root_uuid
        return body

    return convert


@bp.get("/resource_providers")
@endpoint("resource_providers:list", introduced="1.0", checks_accept=True, may_be_stale=True)
def list_providers() -> Response:
    """List the providers that match all filters of the query."""
    pairs = load_pairs()
    if allows_extensions() and uses_extensions(pairs):
        return _list_page(pairs)
    found = reader().read(providers.find, parse_filter(pairs, g.microversion))
    convert = json_converter()
    response = jsonify(resource_providers=[convert(each) for each in request_deadline().checked(found)])
    return caching.set_cache_headers(response, caching.newest(provider.modified for provider in found))


def _list_page(pairs: Pairs) -> Response:
    """List a page of the providers with the parts that the query includes, or all of them."""
    query = _EXTENDED_QUERY.check(dict(pairs), QUERY_ERROR)
    provider_filter = parse_extended_filter(query, pairs, g.microversion)
    include, page = parse_include(query), parse_page(query, DASHED_UUID_KEY)
    for kind in sorted(include):
        enforce(PART_RULES[kind])
    read, convert = reader().read, json_converter()
    return respond_with_page(
        "resource_providers",
        page,
        lambda part: read(provider_pages.find_page, provider_filter, include, part),
        lambda details: convert(details.provider) | details.parts,
    )


@bp.post("/resource_providers")
@endpoint("resource_providers:create", introduced="1.0", reads_json=True)
def create_provider() -> Response:
    """Create a provider, with a parent if the body names one."""
    body = load_body(NewProvider)
    uuid = normalized_uuid(body["uuid"]) if "uuid" in body else str(uuid4())
    if not body["name"]:
        raise Invalid(f'Unable to create resource provider "", {uuid}: name is required')
    created = database().write(providers.create, uuid, body["name"], body.get("parent_provider_uuid"))
    if since("1.20"):
        response = caching.set_cache_headers(jsonify(to_json(created)), created.modified)
    else:
        response = Response(status=201)
    response.location = links.url("resource_providers", created.uuid)
    return response


@bp.get("/resource_providers/<uuid>")
@endpoint("resource_providers:show", introduced="1.0", checks_accept=True)
def show_provider(uuid: str) -> Response:
    """Show one provider."""
    found = database().read(providers.get, uuid)
    return caching.set_cache_headers(jsonify(to_json(found)), found.modified)


@bp.delete("/resource_providers/<uuid>")
@endpoint("resource_providers:delete", introduced="1.0")
def delete_provider(uuid: str) -> Response:
    """Delete a provider; fails if it has children or allocations."""
    database().write(providers.remove, uuid)
    return Response(status=204)


@bp.put("/resource_providers/<uuid>")
@endpoint("resource_providers:update", introduced="1.0", reads_json=True)
def change_provider(uuid: str) -> Response:
    """Rename a provider and, if the body has `parent_provider_uuid`, move it."""
    require_provider(uuid)
    body = load_body(ChangedProvider)
    if "parent_provider_uuid" in body:
        changed = database().write(
            providers.change,
            uuid,
            body["name"],
            body["parent_provider_uuid"],
            may_leave_parent=since("1.37"),
        )
    else:
        changed = database().write(providers.rename, uuid, body["name"])
    return caching.set_cache_headers(jsonify(to_json(changed.provider)), changed.changed_before)
