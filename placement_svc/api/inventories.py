"""Inventories of a resource provider (`docs/spec/resources.md 4`)."""

from dataclasses import asdict
from typing import Any

from flask import Blueprint, Response, jsonify
from werkzeug.exceptions import MethodNotAllowed

from placement_svc.api import links
from placement_svc.api.context import database, load_body, require_provider
from placement_svc.db import inventories
from placement_svc.domain.errors import NotFound
from placement_svc.domain.inventory import Inventory, ProviderInventories, check_capacities
from placement_svc.http import caching
from placement_svc.http.body import read_json
from placement_svc.http.endpoint import endpoint
from placement_svc.http.microversion import since
from placement_svc.schemas.base import check
from placement_svc.schemas.inventories import (
    GENERATION_KEY,
    ChangedInventories,
    ChangedInventory,
    NewInventory,
    PatchedInventories,
    to_inventory,
)

bp = Blueprint("inventories", __name__, url_prefix="/resource_providers/<uuid>/inventories")


def min_capacity() -> int:
    """Return the smallest valid capacity of an inventory; since 1.26 `reserved` may equal `total`."""
    return 0 if since("1.26") else 1


def to_json(inventory: Inventory, generation: int) -> dict[str, Any]:
    """Return the JSON object of one inventory, with the generation of its provider."""
    return {**asdict(inventory), "resource_provider_generation": generation}


def _response(found: ProviderInventories) -> Response:
    response = jsonify(
        resource_provider_generation=found.generation,
        inventories={name: asdict(inventory) for name, inventory in found.inventories.items()},
    )
    return caching.set_cache_headers(response, found.modified)


@bp.get("")
@endpoint("resource_providers:inventories:list", introduced="1.0", checks_accept=True)
def list_inventories(uuid: str) -> Response:
    """List the inventories of a provider."""
    return _response(database().read(inventories.get, uuid))


@bp.post("")
@endpoint("resource_providers:inventories:create", introduced="1.0", reads_json=True)
def create_inventory(uuid: str) -> Response:
    """Add an inventory of one more resource class to a provider."""
    require_provider(uuid)
    body = load_body(NewInventory)
    resource_class, inventory = body["resource_class"], to_inventory(body)
    check_capacities(uuid, {resource_class: inventory}, min_capacity(), "create")
    generation = database().write(inventories.add, uuid, resource_class, inventory)
    response = caching.set_cache_headers(jsonify(to_json(inventory, generation)), caching.now())
    response.status_code = 201
    response.location = links.url("resource_providers", uuid, "inventories", resource_class)
    return response


@bp.put("")
@endpoint("resource_providers:inventories:update", introduced="1.0", reads_json=True)
def replace_inventories(uuid: str) -> Response:
    """Replace all inventories of a provider."""
    require_provider(uuid)
    body = load_body(ChangedInventories)
    new = body["inventories"]
    generation = database().write(
        inventories.replace_all, uuid, body["resource_provider_generation"], new, min_capacity()
    )
    return _response(ProviderInventories(generation, new, caching.now() if new else None))


@bp.patch("")
@endpoint("resource_providers:inventories:update", introduced="1.0", is_extension=True, reads_json=True)
def change_inventories(uuid: str) -> Response:
    """Change, add or remove inventories of a provider."""
    require_provider(uuid)
    changes = check(PatchedInventories(), read_json())
    generation = changes.pop(GENERATION_KEY, None)
    return _response(database().write(inventories.change, uuid, generation, changes))


@bp.delete("")
@endpoint("resource_providers:inventories:delete", introduced="1.5", error_before=MethodNotAllowed)
def delete_inventories(uuid: str) -> Response:
    """Delete all inventories of a provider; fails if one of them is in use."""
    database().write(inventories.remove_all, uuid)
    return Response(status=204)


@bp.get("/<resource_class>")
@endpoint("resource_providers:inventories:show", introduced="1.0", checks_accept=True)
def show_inventory(uuid: str, resource_class: str) -> Response:
    """Show the inventory of one resource class of a provider."""
    found = database().read(inventories.get, uuid, resource_class)
    if resource_class not in found.inventories:
        raise NotFound(f"No inventory of class {resource_class} for {uuid}")
    return caching.set_cache_headers(
        jsonify(to_json(found.inventories[resource_class], found.generation)), found.modified
    )


@bp.put("/<resource_class>")
@endpoint("resource_providers:inventories:update", introduced="1.0", reads_json=True)
def replace_inventory(uuid: str, resource_class: str) -> Response:
    """Replace the inventory of one resource class of a provider."""
    require_provider(uuid)
    body = load_body(ChangedInventory)
    inventory = to_inventory(body)
    generation = database().write(
        inventories.replace,
        uuid,
        body["resource_provider_generation"],
        resource_class,
        inventory,
        min_capacity(),
    )
    return caching.set_cache_headers(jsonify(to_json(inventory, generation)), caching.now())


@bp.delete("/<resource_class>")
@endpoint("resource_providers:inventories:delete", introduced="1.0")
def delete_inventory(uuid: str, resource_class: str) -> Response:
    """Delete the inventory of one resource class of a provider; fails if it is in use."""
    database().write(inventories.remove, uuid, resource_class)
    return Response(status=204)
