"""Resource classes (`docs/spec/resources.md 8`)."""

from typing import Any

from flask import Blueprint, Response, g, jsonify

from placement_svc.api import links
from placement_svc.api.context import database, load_body
from placement_svc.db import resource_classes
from placement_svc.domain.errors import Invalid
from placement_svc.http import caching
from placement_svc.http.endpoint import endpoint
from placement_svc.http.microversion import since
from placement_svc.schemas.resource_classes import NamedResourceClass

bp = Blueprint("resource_classes", __name__)


def to_json(name: str) -> dict[str, Any]:
    """Return the JSON object of a resource class."""
    return {"name": name, "links": [{"rel": "self", "href": links.path("resource_classes", name)}]}


def put_renames() -> bool:
    """Return whether PUT of a resource class renames it; since 1.7 it creates the class if missing."""
    return not since("1.7")


@bp.get("/resource_classes")
@endpoint("resource_classes:list", introduced="1.2", checks_accept=True)
def list_resource_classes() -> Response:
    """List all resource classes."""
    found = database().read(resource_classes.find)
    response = jsonify(resource_classes=[to_json(resource_class.name) for resource_class in found])
    return caching.set_cache_headers(
        response, caching.newest(resource_class.modified for resource_class in found)
    )


@bp.post("/resource_classes")
@endpoint("resource_classes:create", introduced="1.2", reads_json=True)
def create_resource_class() -> Response:
    """Create a custom resource class."""
    name = load_body(NamedResourceClass)["name"]
    database().write(resource_classes.create, name)
    return _empty(201, name)


@bp.get("/resource_classes/<name>")
@endpoint("resource_classes:show", introduced="1.2", checks_accept=True)
def show_resource_class(name: str) -> Response:
    """Show one resource class."""
    found = database().read(resource_classes.get, name)
    return caching.set_cache_headers(jsonify(to_json(found.name)), found.modified)


@bp.put("/resource_classes/<name>")
@endpoint("resource_classes:update", introduced="1.2", reads_json=put_renames)
def put_resource_class(name: str) -> Response:
    """Create a custom resource class if it does not exist; before 1.7, rename it."""
    if put_renames():
        new_name = load_body(NamedResourceClass)["name"]
        database().write(resource_classes.rename, name, new_name)
        return jsonify(to_json(new_name))
    if '"' in name or "\\" in name:
        raise Invalid("Malformed JSON: the name has a quotation mark or a backslash")
    NamedResourceClass.at(g.microversion).check({"name": name})
    created = database().write(resource_classes.ensure, name)
    return _empty(201 if created else 204, name)


@bp.delete("/resource_classes/<name>")
@endpoint("resource_classes:delete", introduced="1.2")
def delete_resource_class(name: str) -> Response:
    """Delete a custom resource class; fails if a provider has an inventory of it."""
    database().write(resource_classes.remove, name)
    return Response(status=204)


def _empty(status: int, name: str) -> Response:
    response = Response(status=status)
    response.location = links.url("resource_classes", name)
    return response
