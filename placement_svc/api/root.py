"""The root document: which versions are served (`docs/spec/http.md 2`)."""

from flask import Blueprint, Response, jsonify

from placement_svc.http import caching
from placement_svc.http.microversion import NEWEST, OLDEST

bp = Blueprint("root", __name__)


@bp.get("/", strict_slashes=False)
def show_versions() -> Response:
    """Show the one API there is and the microversions of it."""
    version = {
        "id": "v1.0",
        "min_version": OLDEST,
        "max_version": NEWEST,
        "status": "CURRENT",
        "links": [{"rel": "self", "href": ""}],
    }
    return caching.stamp(jsonify(versions=[version]), caching.now())
