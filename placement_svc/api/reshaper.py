"""The reshaper (`docs/spec/allocations.md 11`)."""

from flask import Blueprint, Response, g

from placement_svc.api.context import database
from placement_svc.db import reshaper
from placement_svc.http.body import read_json
from placement_svc.http.endpoint import endpoint
from placement_svc.schemas.reshaper import parse_reshape

bp = Blueprint("reshaper", __name__)


@bp.post("/reshaper")
@endpoint("reshaper:reshape", introduced="1.30", reads_json=True)
def reshape() -> Response:
    """Replace inventories of providers and allocations of consumers: all of them, or none."""
    database().write(reshaper.reshape, parse_reshape(read_json(), g.microversion))
    return Response(status=204)
