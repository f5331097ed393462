"""The root document, which lists the supported versions (`docs/spec/http.md 2`)."""

from typing import Any

from flask import Blueprint, Response, g, jsonify

from placement_svc.domain.version_header import EXTENSION_VERSIONS, EXTENSIONS
from placement_svc.http import caching
from placement_svc.http.endpoint import public_endpoint
from placement_svc.http.microversion import NEWEST, OLDEST

bp = Blueprint("root", __name__)


@bp.get("/", strict_slashes=False)
@public_endpoint(introduced="1.0")
def show_versions() -> Response:
    """Show the version of the API and the range of its microversions."""
    version = {
        "id": "v1.0",
        "min_version": OLDEST,
        "max_version": NEWEST,
        "status": "CURRENT",
        "links": [{"rel": "self", "href": ""}],
    }
    body: dict[str, Any] = {"versions": [version]}
    if g.extension_version is not None:
        body[EXTENSIONS] = {
            "min_version": EXTENSION_VERSIONS[0],
            "max_version": EXTENSION_VERSIONS[-1],
        }
    return caching.set_cache_headers(jsonify(body), caching.now())
