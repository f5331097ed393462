"""Inventories of a resource provider (`docs/spec/resources.md 4`)."""

from dataclasses import asdict
from typing import Any

from flask import Blueprint, Response, jsonify
from werkzeug.exceptions import MethodNotAllowed

from placement_svc.api import links
from placement_svc.api.context import database, load_body
from placement_svc.db import inventories, providers
from placement_svc.domain.errors import NotFound
from placement_svc.domain.inventory import Inventory, ProviderInventories, check_capacities
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.microversion import since
from placement_svc.schemas.inventories import (
    ChangedInventories,
    ChangedInventory,
    NewInventory,
    to_inventory,
)

bp = Blueprint("inventories", __name__, url_prefix="/resource_providers/<uuid>/inventories")


def least_capacity() -> int:
    """Return what an inventory must at least be able to give at the present microversion."""
    return 0 if since("1.26") else 1


def show(inventory: Inventory, generation: int) -> dict[str, Any]:
    """Return how one inventory of a provider at `generation` is told about."""
    return {**asdict(inventory), "resource_provider_generation": generation}


def _answer(held: ProviderInventories) -> Response:
    answer = jsonify(
        resource_provider_generation=held.generation,
        inventories={name: asdict(inventory) for name, inventory in held.inventories.items()},
    )
    return caching.stamp(answer, held.modified)


@bp.get("")
@endpoint("resource_providers:inventories:list", checks_accept=True)
def list_inventories(uuid: str) -> Response:
    """List the inventories of a provider."""
    return _answer(database().read(inventories.get, uuid))


@bp.post("")
@endpoint("resource_providers:inventories:create", reads_json=True)
def create_inventory(uuid: str) -> Response:
    """Give a provider an inventory of one more class."""
    database().read(providers.get_id, uuid)
    body = load_body(NewInventory)
    resource_class, inventory = body["resource_class"], to_inventory(body)
    check_capacities(uuid, {resource_class: inventory}, least_capacity(), "create")
    generation = database().write(inventories.add, uuid, resource_class, inventory)
    answer = caching.stamp(jsonify(show(inventory, generation)), caching.now())
    answer.status_code = 201
    answer.location = links.url("resource_providers", uuid, "inventories", resource_class)
    return answer


@bp.put("")
@endpoint("resource_providers:inventories:update", reads_json=True)
def replace_inventories(uuid: str) -> Response:
    """Replace all inventories of a provider."""
    database().read(providers.get_id, uuid)
    body = load_body(ChangedInventories)
    wanted = body["inventories"]
    generation = database().write(
        inventories.replace_all, uuid, body["resource_provider_generation"], wanted, least_capacity()
    )
    return _answer(ProviderInventories(generation, wanted, caching.now() if wanted else None))


@bp.delete("")
@endpoint("resource_providers:inventories:delete", introduced="1.5", unintroduced=MethodNotAllowed)
def delete_inventories(uuid: str) -> Response:
    """Delete all inventories of a provider, none of which is in use."""
    database().write(inventories.remove_all, uuid)
    return Response(status=204)


@bp.get("/<resource_class>")
@endpoint("resource_providers:inventories:show", checks_accept=True)
def show_inventory(uuid: str, resource_class: str) -> Response:
    """Show the inventory that a provider has of one class."""
    held = database().read(inventories.get, uuid, resource_class)
    if resource_class not in held.inventories:
        raise NotFound(f"No inventory of class {resource_class} for {uuid}")
    return caching.stamp(jsonify(show(held.inventories[resource_class], held.generation)), held.modified)


@bp.put("/<resource_class>")
@endpoint("resource_providers:inventories:update", reads_json=True)
def replace_inventory(uuid: str, resource_class: str) -> Response:
    """Change the inventory that a provider has of one class."""
    database().read(providers.get_id, uuid)
    body = load_body(ChangedInventory)
    inventory = to_inventory(body)
    generation = database().write(
        inventories.replace,
        uuid,
        body["resource_provider_generation"],
        resource_class,
        inventory,
        least_capacity(),
    )
    return caching.stamp(jsonify(show(inventory, generation)), caching.now())


@bp.delete("/<resource_class>")
@endpoint("resource_providers:inventories:delete")
def delete_inventory(uuid: str, resource_class: str) -> Response:
    """Delete the inventory that a provider has of one class and that is not in use."""
    database().write(inventories.remove, uuid, resource_class)
    return Response(status=204)
